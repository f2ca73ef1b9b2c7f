//! What the start prints: who this broker is, where each shard runs and what clients are told.
//!
//! Pure: texts only. `tests/` and people read these lines, so their first words stay as they are.

use std::fmt::Write as _;

use hardware::{Check, Finding, Level, Status, format_size};
use reactor::Backend;

use crate::config::Settings;

/// One shard's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLine {
    pub shard: usize,
    pub node_id: i32,
    pub cpu: Option<usize>,
    pub advertised: String,
}

/// Printed before the shards start; `ready` follows when all of them serve.
pub fn banner(settings: &Settings, cluster_id: &str, new: bool, shards: &[ShardLine]) -> String {
    let mut out = String::new();
    let dirs: Vec<String> =
        settings.data_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let made = if new { " (new)" } else { "" };
    // Writing into a String cannot fail.
    let _ = writeln!(out, "corelane {}", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "cluster {cluster_id}{made}");
    let _ = writeln!(out, "data {}", dirs.join(", "));
    let _ = writeln!(out, "memory {}", format_size(settings.memory_bytes));
    if settings.backend != Backend::default() {
        let _ = writeln!(out, "backend {}", settings.backend.name());
    }
    for line in shards {
        let cpu = line.cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let ShardLine { shard, node_id, advertised, .. } = line;
        let _ = writeln!(out, "shard {shard}  node {node_id}  core {cpu}  {advertised}");
    }
    if settings.listen.is_loopback() && settings.advertised.is_loopback() {
        let port = settings.listen.port;
        let _ = writeln!(
            out,
            "only clients on this machine can connect; for others: --listen 0.0.0.0:{port} \
             --advertise HOST"
        );
    }
    out
}

/// `corelane serve --check`.
pub fn check_list(checks: &[Check]) -> String {
    let mut out = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        let remedy = check.remedy.as_ref().map_or(String::new(), |r| format!("; {r}"));
        let _ = writeln!(out, "{status:<5} {:<15} {}{remedy}", check.name, check.finding);
    }
    out
}

/// What follows it: the host's problems, which do not keep the broker from starting, and a word on the
/// rest.
pub fn host_list(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|finding| finding.level == Level::Problem) {
        let Finding { id, subject, present, wanted, .. } = finding;
        let _ = writeln!(out, "warn  {id:<15} {subject} {present}; {wanted}");
    }
    let advice = findings.iter().filter(|finding| finding.level == Level::Advice).count();
    if advice > 0 {
        let _ = writeln!(out, "`corelane doctor` has {advice} pieces of advice for this host");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hardware::{Cpus, Memory};

    use super::*;
    use crate::cli::args::ServeArgs;
    use crate::config::Machine;

    fn settings(listen: &str) -> Settings {
        let machine = Machine {
            cpus: Cpus { ids: vec![0, 1], quota: None },
            memory: Memory { total: 1 << 30, limit: None },
            address: Some(IpAddr::from([10, 0, 0, 5])),
        };
        let args = ServeArgs { listen: Some(listen.into()), ..ServeArgs::default() };
        Settings::resolve(&args, None, &machine).unwrap()
    }

    #[test]
    fn the_banner_says_who_where_and_what_clients_are_told() {
        let line = |shard, cpu| ShardLine {
            shard,
            node_id: 3000 + shard as i32,
            cpu,
            advertised: format!("127.0.0.1:{}", 9092 + shard),
        };
        let text =
            banner(&settings("127.0.0.1:9092"), "abc", true, &[line(0, Some(4)), line(1, None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "cluster abc (new)");
        assert_eq!(lines[2], "data ./corelane-data");
        assert_eq!(lines[3], "memory 512 MiB");
        assert_eq!(lines[4], "shard 0  node 3000  core 4  127.0.0.1:9092");
        assert_eq!(lines[5], "shard 1  node 3001  core any  127.0.0.1:9093");
        assert!(lines[6].contains("--advertise"));
        let open = banner(&settings("0.0.0.0:9092"), "abc", false, &[]);
        assert!(!open.contains("--advertise") && open.contains("cluster abc\n"));
    }

    #[test]
    fn the_check_list_has_a_line_for_each() {
        let check = |status, remedy: Option<&str>| Check {
            name: "port",
            status,
            finding: "x".into(),
            remedy: remedy.map(Into::into),
        };
        let text = check_list(&[check(Status::Ok, None), check(Status::Fail, Some("do y"))]);
        assert_eq!(text, "ok    port            x\nfail  port            x; do y\n");
    }
}
