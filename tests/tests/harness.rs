//! The harness itself, with shell scripts in the broker's place: ready, clean end, crash, restart,
//! and a start that fails. And that every shell script in the repository at least parses.

use std::path::PathBuf;
use std::process::Command;

use corelane_tests::{Broker, BrokerOptions, Error, Target, repository};

/// Options for a stand-in that runs this shell text; its arguments are those of the broker, then
/// the text.
fn stand_in(body: &str) -> BrokerOptions {
    BrokerOptions {
        binary: Some(repository::root().join("tests/tests/stand-in")),
        flags: vec![body.to_owned()],
        ..BrokerOptions::new(Target::Corelane)
    }
}

#[test]
fn starts_stops_and_starts_again_on_the_same_ports_and_data() {
    let options = stand_in(
        r#"mkdir -p "$3"; echo "$1 $2 $3 $4 $5 $6 $7 $8 $9" >> "$3/starts"
        trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"#,
    );
    let mut broker = Broker::start_new(options.with("num.partitions", 3)).unwrap();
    let bootstrap = broker.bootstrap();
    assert!(broker.alive());
    assert_eq!(broker.stop().unwrap().unwrap().code(), Some(7));
    assert!(!broker.alive());
    broker.start().unwrap();
    broker.kill();
    assert!(broker.pid().is_none());

    let starts = std::fs::read_to_string(broker.data_dir().join("starts")).unwrap();
    let data = broker.data_dir().display().to_string();
    let line =
        format!("serve --data-dir {data} --listen {bootstrap} --shards 4 --set num.partitions=3\n");
    assert_eq!(starts, line.repeat(2));
}

#[test]
fn a_broker_that_ends_before_it_is_ready_tells_what_it_said() {
    let options = stand_in("echo 'port 9092 is in use' >&2; exit 3");
    match Broker::start_new(options) {
        Err(Error::Died { status, tail, .. }) => {
            assert_eq!(status.code(), Some(3));
            assert!(tail.contains("port 9092 is in use"), "{tail}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn dropping_a_broker_ends_its_process() {
    let options = stand_in("echo ready; exec sleep 600");
    let broker = Broker::start_new(options).unwrap();
    let process = PathBuf::from(format!("/proc/{}", broker.pid().unwrap()));
    assert!(process.exists());
    drop(broker);
    assert!(!process.exists());
}

#[test]
fn every_shell_script_parses() {
    let listed = repository::run_quietly(
        Command::new("git").current_dir(repository::root()).args(["ls-files", "-co"]).args([
            "--exclude-standard",
            ".ci/run",
            "scripts",
            "tests/kafka",
            "tests/clients/*/run",
        ]),
    )
    .unwrap();
    let mut scripts = 0;
    for file in listed.lines().map(|line| repository::root().join(line)) {
        let text = std::fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        if first.starts_with("#!") && first.ends_with("sh") {
            scripts += 1;
            repository::run_quietly(Command::new("bash").arg("-n").arg(&file)).unwrap();
        }
    }
    assert!(scripts >= 9, "only {scripts} scripts found");
}
