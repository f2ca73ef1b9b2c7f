//! Apache Kafka from its Maven artifacts: the jars, a formatted data directory, the start command.
//!
//! One KRaft process that is broker and controller. The version is in `tests/kafka/pom.xml`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::brokers::BrokerOptions;
use crate::repository::{root, run_quietly};
use crate::{Error, Result};

/// Small and quick to start: tests run many.
const JAVA_OPTIONS: [&str; 3] = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4"];
/// Any fixed id will do: every broker of the harness is a cluster of its own.
const CLUSTER_ID: &str = "Y29yZWxhbmUtdGVzdHMtMQ";

/// The folder of Apache Kafka's jars, as a class path; resolved on first use.
pub fn class_path() -> Result<String> {
    let lib = run_quietly(&mut Command::new(root().join("tests/kafka/resolve")))?;
    Ok(format!("{}/*", lib.trim()))
}

/// `java` with Kafka's class path, warnings and worse logged to stderr.
pub fn java(class_path: &str) -> Command {
    java_with(JAVA_OPTIONS, class_path)
}

fn java_with<S: AsRef<OsStr>>(options: impl IntoIterator<Item = S>, class_path: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(options)
        .args(["-cp", class_path])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command
}

/// Writes `server.properties`, formats `logs` unless they are formatted, and gives the start
/// command.
pub(crate) fn prepare(
    folder: &Path,
    logs: &[PathBuf],
    port: u16,
    o: &BrokerOptions,
) -> Result<Command> {
    let class_path = class_path()?;
    let file = folder.join("server.properties");
    std::fs::write(&file, properties(logs, port, &o.settings))
        .map_err(Error::io(format!("write {}", file.display())))?;
    if !logs.iter().all(|dir| dir.join("meta.properties").exists()) {
        run_quietly(
            java(&class_path)
                .args(["kafka.tools.StorageTool", "format", "--standalone"])
                .args(["-t", CLUSTER_ID, "-c"])
                .arg(&file),
        )?;
    }
    let mut command = match &o.java {
        Some(options) => java_with(options, &class_path),
        None => java(&class_path),
    };
    command.arg("kafka.Kafka").arg(&file);
    Ok(command)
}

fn properties(logs: &[PathBuf], port: u16, settings: &[(String, String)]) -> String {
    let logs: Vec<String> = logs.iter().map(|dir| dir.display().to_string()).collect();
    let controller = port + 1;
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n",
        logs.join(",")
    );
    for (key, value) in settings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key}={value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_settings_come_last_so_they_win() {
        let settings = [("node.id".to_owned(), "7".to_owned())];
        let text = properties(&["/logs".into(), "/more".into()], 20_000, &settings);
        assert!(text.contains("CONTROLLER://127.0.0.1:20001"));
        assert!(text.contains("log.dirs=/logs,/more\n"));
        assert!(text.ends_with("node.id=7\n"));
    }
}
