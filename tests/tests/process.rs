//! The broker as a process: what stops it from starting, how it ends, what a restart finds.
//! Corelane only; `cli.rs` has what any broker must do.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, Ended, binary, corelane, numbers, sorted};
use corelane_tests::repository::temporary_folder;
use corelane_tests::{BrokerOptions, Target};
use rustix::process::{Pid, Signal, kill_process};

/// Far more than any start or stop takes; a limit so that a hang ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(shards: u16) -> BrokerOptions {
    BrokerOptions { shards, ..BrokerOptions::new(Target::Corelane) }
}

/// A start that is expected to fail. Port 1 would need a privilege only after all other checks.
fn serve(arguments: &[&str]) -> Ended {
    corelane(&[&["serve", "--log", "error"], arguments].concat(), b"")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// A broker that does not outlive its test.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("the signal is sent");
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker with its stderr at hand, past `ready`.
fn start_by_hand(arguments: &[&str]) -> (Running, Vec<String>) {
    let child = Command::new(binary())
        .arg("serve")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut child = Running(child);
    let stdout = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let mut lines = Vec::new();
    for line in stdout.lines().map_while(Result::ok) {
        let ready = line == "ready";
        lines.push(line);
        if ready {
            return (child, lines);
        }
    }
    panic!("it ended before it was ready: {lines:?} {:?}", child.exit_code());
}

#[test]
fn the_start_says_who_and_where() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    // Two ports in a row: the harness's search, done by starting it.
    let cluster = Cluster::start_with(options(2));
    let log = std::fs::read_to_string(cluster.broker.log_file()).expect("a log");
    let lines: Vec<&str> = log.lines().collect();
    let line = |start: &str| {
        let found = lines.iter().find(|line| line.starts_with(start));
        *found.unwrap_or_else(|| panic!("no line `{start}` in {log}"))
    };
    let id = line("cluster ").split(' ').nth(1).expect("an id");
    assert_eq!(id.len(), 22);
    assert!(line("cluster ").ends_with("(new)"));
    let bootstrap = cluster.broker.bootstrap();
    let (host, port) = bootstrap.rsplit_once(':').expect("a port");
    let next = port.parse::<u16>().expect("a number") + 1;
    assert!(line("shard 0  node 0  core ").ends_with(&bootstrap));
    assert!(line("shard 1  node 1  core ").ends_with(&format!("{host}:{next}")));
    let meta = cluster.broker.data_dir().join("meta.properties");
    let meta = std::fs::read_to_string(meta).expect("it is formatted");
    assert!(meta.contains(&format!("cluster.id={id}\n")), "{meta}");
    assert!(meta.contains("node.id=0\n") && meta.contains("version=1\n"), "{meta}");
    drop(cluster);

    let port = free_port().to_string();
    let listen = format!("127.0.0.1:{port}");
    let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", "1"];
    let (mut child, first) = start_by_hand(&[&arguments[..], &["--broker-id", "7"]].concat());
    assert!(first.iter().any(|line| line.starts_with("shard 0  node 7000 ")), "{first:?}");
    child.signal(Signal::TERM);
    assert_eq!(child.exit_code(), Some(0));
    // The directory knows the id; another one is refused.
    let (mut child, second) = start_by_hand(&arguments);
    assert!(second.iter().any(|line| line.starts_with("shard 0  node 7000 ")), "{second:?}");
    assert!(second.iter().all(|line| !line.ends_with("(new)")), "{second:?}");
    child.signal(Signal::INT);
    assert_eq!(child.exit_code(), Some(0));
    let other = serve(&[&arguments[..], &["--broker-id", "8"]].concat());
    other.refused(4, &["meta.properties", "broker 7, not 8", "--broker-id 7"]);
}

#[test]
fn a_second_process_cannot_take_the_directory() {
    let cluster = Cluster::start_with(options(1));
    let data = cluster.broker.data_dir();
    let listen = format!("127.0.0.1:{}", free_port());
    let second = serve(&["--data-dir", text(&data), "--listen", &listen, "--shards", "1"]);
    second.refused(4, &[text(&data), "in use by another process"]);
    // The first one has not noticed.
    cluster.run(&["topic", "create", "t"]).done();
}

#[test]
fn a_port_in_use_is_named_before_anything_is_written() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = holder.local_addr().expect("an address").to_string();
    let refused = serve(&["--data-dir", text(&data), "--listen", &address, "--shards", "1"]);
    refused.refused(3, &[&address, "in use", "--listen"]);
    assert!(!data.exists(), "the directory was made although the port is taken");
}

#[test]
fn a_damaged_or_foreign_directory_is_refused_and_left_alone() {
    let folder = temporary_folder("process-").expect("a folder");
    let listen = format!("127.0.0.1:{}", free_port());
    let start =
        |data: &Path| serve(&["--data-dir", text(data), "--listen", &listen, "--shards", "1"]);
    let damaged = folder.path().join("damaged");
    std::fs::create_dir(&damaged).expect("a folder");
    let meta = damaged.join("meta.properties");
    for content in [&b""[..], b"\0\0\0\0", b"version=1\nnode.id=0\n", b"version=7\n", &[0xff; 64]] {
        std::fs::write(&meta, content).expect("written");
        start(&damaged).refused(4, &[text(&meta), "is damaged", "--data-dir"]);
        assert_eq!(std::fs::read(&meta).expect("read"), content, "the file was changed");
    }
    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).expect("a folder");
    std::fs::write(foreign.join("thesis.txt"), "all of it").expect("written");
    start(&foreign).refused(4, &[text(&foreign), "not empty", "thesis.txt"]);
    assert!(!foreign.join("meta.properties").exists());
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    start(&file).refused(3, &[text(&file), "not a directory"]);
}

#[test]
fn a_damaged_metadata_log_is_refused_and_left_alone() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", "1"];
    let (mut child, _) = start_by_hand(&arguments);
    child.signal(Signal::TERM);
    assert_eq!(child.exit_code(), Some(0));
    let log = data.join("__cluster_metadata-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("read");
    // In the records of its first batch, which a clean shutdown has synced.
    bytes[70] ^= 1;
    std::fs::write(&log, &bytes).expect("written");
    // The log says it too; here only the last word counts.
    let quiet = [&["serve", "--log", "off"], &arguments[..]].concat();
    corelane(&quiet, b"").refused(4, &["__cluster_metadata-0", "from a copy"]);
    assert_eq!(std::fs::read(&log).expect("read"), bytes, "the file was changed");
}

#[test]
fn data_directories_may_be_named_in_any_order_and_none_left_out() {
    let folder = temporary_folder("process-").expect("a folder");
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = |dirs: &[&Path]| -> Vec<String> {
        let dirs = dirs.iter().flat_map(|dir| ["--data-dir", text(dir)]);
        ["--listen", &listen, "--shards", "1"].into_iter().chain(dirs).map(String::from).collect()
    };
    let cli = |command: &[&str], stdin: &[u8]| {
        corelane(&[command, &["--bootstrap", &listen]].concat(), stdin).done()
    };
    let with = |dirs: &[&Path], work: &dyn Fn()| {
        let arguments = arguments(dirs);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (mut child, _) = start_by_hand(&arguments);
        work();
        child.signal(Signal::TERM);
        assert_eq!(child.exit_code(), Some(0));
    };
    let sent = numbers(1..=8);
    with(&[&a, &b], &|| {
        cli(&["topic", "create", "t", "--partitions", "2"], b"");
        for partition in ["0", "1"] {
            cli(&["produce", "t", "--partition", partition], sent.as_bytes());
        }
    });
    let all_there = || assert_eq!(sorted(&cli(&["consume", "t"], b"")), sorted(&sent.repeat(2)));
    with(&[&b, &a], &all_there);
    with(&[&c, &b, &a], &all_there);
    // Without the metadata every partition would be nobody's.
    let alone = arguments(&[&b]);
    let alone: Vec<&str> = alone.iter().map(String::as_str).collect();
    serve(&alone).refused(4, &["__cluster_metadata-0", "t-", "--data-dir"]);
    with(&[&a, &b], &all_there);
}

#[test]
fn an_unwritable_directory_is_named() {
    // Not a directory without the write bit: root may write there all the same.
    let refused = serve(&["--data-dir", "/proc/sys", "--listen", "127.0.0.1:29999"]);
    refused.refused(3, &["/proc/sys", "cannot write", "--data-dir"]);
}

#[test]
fn a_backend_that_is_not_in_is_refused_in_one_line() {
    let version = corelane(&["version"], b"").done();
    let backends = version.lines().find_map(|line| line.strip_prefix("backends "));
    let backends: Vec<&str> = backends.expect("a line of backends").split(", ").collect();
    assert!(backends.contains(&"uring"), "{version}");
    if backends.contains(&"glommio") {
        let folder = temporary_folder("process-").expect("a folder");
        let listen = format!("127.0.0.1:{}", free_port());
        let data = folder.path().join("data");
        let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", "1"];
        let (mut broker, said) =
            start_by_hand(&[&arguments[..], &["--backend", "glommio"]].concat());
        assert!(said.iter().any(|line| line == "backend glommio"), "{said:?}");
        broker.signal(Signal::TERM);
        assert_eq!(broker.exit_code(), Some(0));
    } else {
        serve(&["--backend", "glommio"]).refused(2, &["--backend glommio", "--features glommio"]);
    }
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_match() {
    let folder = temporary_folder("process-").expect("a folder");
    let file = folder.path().join("server.properties");
    std::fs::write(&file, "# settings\nnum.partitons=3\n").expect("written");
    let refused = serve(&["--config", text(&file)]);
    refused.refused(2, &[text(&file), "line 2", "num.partitons", "did you mean num.partitions?"]);
    serve(&["--set", "log.dris=/x"]).refused(2, &["log.dris", "log.dirs"]);
    serve(&["--set", "num.partitions=many"]).refused(2, &["num.partitions", "many"]);
    serve(&["--config", "/no/such/file"]).refused(2, &["/no/such/file"]);
}

#[test]
fn a_properties_file_of_kafka_runs_the_broker() {
    let folder = temporary_folder("process-").expect("a folder");
    let file = folder.path().join("server.properties");
    let (data, port) = (folder.path().join("data"), free_port());
    let content = format!(
        "process.roles=broker,controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n\
         controller.quorum.bootstrap.servers=localhost:{port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://:{}\n\
         advertised.listeners=PLAINTEXT://localhost:{port}\nnum.partitions=5\n\
         num.network.threads=3\nlog.dirs={}\n",
        port + 1,
        text(&data)
    );
    std::fs::write(&file, content).expect("written");
    let (mut child, lines) = start_by_hand(&["--config", text(&file), "--shards", "1"]);
    let expected = format!("shard 0  node 3000  core 0  localhost:{port}");
    let shown = lines.iter().find(|line| line.starts_with("shard 0")).expect("a shard line");
    assert!(shown.starts_with("shard 0  node 3000 "), "{shown}");
    assert!(shown.ends_with(expected.rsplit(' ').next().expect("an address")), "{shown}");
    let bootstrap = format!("127.0.0.1:{port}");
    corelane(&["topic", "create", "t", "--bootstrap", &bootstrap], b"").done();
    let topic = corelane(&["topic", "describe", "t", "--bootstrap", &bootstrap], b"").done();
    assert!(topic.starts_with("t  partitions 5 "), "{topic}");
    child.signal(Signal::TERM);
    assert_eq!(child.exit_code(), Some(0));
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start_with(options(4));
    cluster.run(&["topic", "create", "t", "-p", "8"]).done();
    let mut expected = String::new();
    for round in 0..3u32 {
        let sent = numbers(round * 1000 + 1..=round * 1000 + 1000);
        cluster.feed(&["produce", "t"], sent.as_bytes()).done();
        expected.push_str(&sent);
        cluster.broker.kill();
        cluster.broker.start().expect("it starts again");
        assert_eq!(sorted(&cluster.run(&["consume", "t"]).done()), expected, "round {round}");
    }
}

#[test]
fn sigterm_is_a_clean_shutdown_and_nothing_is_lost() {
    let mut cluster = Cluster::start_with(options(2));
    cluster.run(&["topic", "create", "t", "-p", "4"]).done();
    let sent = numbers(1..=5000);
    cluster.feed(&["produce", "t", "-z", "lz4"], sent.as_bytes()).done();
    let status = cluster.broker.stop().expect("it stops").expect("it ran");
    assert_eq!(status.code(), Some(0));
    let marker = cluster.broker.data_dir().join(".kafka_cleanshutdown");
    assert!(marker.exists(), "no sign of a clean shutdown");
    cluster.broker.start().expect("it starts again");
    assert!(!marker.exists(), "the sign outlived the start");
    assert_eq!(sorted(&cluster.run(&["consume", "t"]).done()), sent);
}

/// Its files go on taking records without a name; nobody finds those again.
#[test]
fn a_folder_that_goes_while_it_is_served_is_told_at_the_stop_and_missed_at_the_start() {
    let mut cluster = Cluster::start_with(options(2));
    cluster.run(&["topic", "create", "t", "-p", "2"]).done();
    cluster.feed(&["produce", "t", "--partition", "0"], numbers(1..=100).as_bytes()).done();
    let folder = cluster.broker.data_dir().join("t-0");
    let kept = cluster.broker.data_dir().join("kept");
    std::fs::rename(&folder, &kept).expect("it is moved away");
    let status = cluster.broker.stop().expect("it stops").expect("it ran");
    assert_eq!(status.code(), Some(4));
    for _ in 0..2 {
        cluster.broker.start().expect("it starts again");
        let refused = cluster.feed(&["produce", "t", "--partition", "0", "--timeout", "2"], b"x\n");
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(!folder.exists(), "an empty one was made");
        cluster.feed(&["produce", "t", "--partition", "1"], b"other\n").done();
        cluster.broker.kill();
    }
    std::fs::rename(&kept, &folder).expect("it is put back");
    cluster.broker.start().expect("it starts again");
    assert_eq!(cluster.run(&["consume", "t:0"]).done(), numbers(1..=100));
}

#[test]
fn a_stop_does_not_wait_for_idle_clients() {
    let mut cluster = Cluster::start_with(options(1));
    cluster.run(&["topic", "create", "t", "-p", "1"]).done();
    let mut reader = Command::new(binary())
        .args(["consume", "t", "--follow", "--timeout", "1"])
        .args(["--bootstrap", &cluster.broker.bootstrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let silent = std::net::TcpStream::connect(cluster.broker.bootstrap()).expect("connected");
    let status = cluster.broker.stop().expect("it stops in time").expect("it ran");
    assert_eq!(status.code(), Some(0));
    drop(silent);
    // The reader gives up by itself once its patience is over.
    let deadline = Instant::now() + PATIENCE;
    while reader.try_wait().expect("a state").is_none() {
        assert!(Instant::now() < deadline, "the reader hangs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_ride_out_a_crash_and_a_restart() {
    let mut cluster = Cluster::start_with(options(2));
    let bootstrap = cluster.broker.bootstrap();
    cluster.run(&["topic", "create", "t", "-p", "4"]).done();
    let count = 4000;
    let reader = Command::new(binary())
        .args(["consume", "t", "--follow", "--from", "earliest", "--bootstrap", &bootstrap])
        .args(["--count", &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut writer = Command::new(binary())
        .args(["produce", "t", "--bootstrap", &bootstrap])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = writer.stdin.take().expect("a pipe");
    for n in 1..=count {
        writeln!(input, "{n}").expect("written");
        if n % 1000 == 0 {
            input.flush().expect("flushed");
            // In the middle of whatever both are doing.
            cluster.broker.kill();
            cluster.broker.start().expect("it starts again");
        }
    }
    drop(input);
    assert!(writer.wait().expect("it ends").success());
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success());
    // Idempotent batches: sent again where the answer was lost, and yet there once.
    let read = String::from_utf8(output.stdout).expect("text");
    assert_eq!(sorted(&read), numbers(1..=count));
    assert_eq!(sorted(&cluster.run(&["consume", "t"]).done()), numbers(1..=count));
}

/// The thread that waits for the shards is none of them: that it waits long is no stall.
#[test]
fn an_end_tells_of_no_stall_of_the_main_thread() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", "1"];
    let (mut child, _) = start_by_hand(&arguments);
    child.signal(Signal::TERM);
    let log = BufReader::new(child.0.stderr.take().expect("a pipe"));
    let lines: Vec<String> = log.lines().map_while(Result::ok).collect();
    assert_eq!(child.exit_code(), Some(0));
    assert!(lines.iter().any(|line| line.contains("shutting down")), "{lines:?}");
    let stall = lines.iter().find(|line| line.contains("stood still") && line.contains(" main "));
    assert_eq!(stall, None);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", "1"];
    let (mut child, _) = start_by_hand(&arguments);
    // So many logs to close that a clean end takes far longer than a signal.
    corelane(&["topic", "create", "t", "-p", "1000", "--bootstrap", &listen], b"").done();
    let keyed: String = (0..8000).map(|n| format!("{n}:{n}\n")).collect();
    let produce = ["produce", "t", "-k", ":", "--bootstrap", &listen];
    corelane(&produce, keyed.as_bytes()).done();
    let log = BufReader::new(child.0.stderr.take().expect("a pipe"));
    child.signal(Signal::TERM);
    let stopping = log.lines().map_while(Result::ok).any(|line| line.contains("shutting down"));
    assert!(stopping, "it does not say that it stops");
    child.signal(Signal::INT);
    assert_eq!(child.exit_code(), Some(130));
    // Nothing is lost by it.
    let (mut child, _) = start_by_hand(&arguments);
    let values = corelane(&["consume", "t", "--bootstrap", &listen], b"").done();
    assert_eq!(values.lines().count(), 8000);
    child.signal(Signal::TERM);
    assert_eq!(child.exit_code(), Some(0));
}

#[test]
fn another_number_of_shards_finds_every_record() {
    let folder = temporary_folder("process-").expect("a folder");
    let data = folder.path().join("data");
    let base = 31_000 + u16::try_from(std::process::id() % 900).expect("small");
    let listen = format!("127.0.0.1:{base}");
    let sent = numbers(1..=2000);
    for (round, shards) in ["4", "1", "3"].into_iter().enumerate() {
        let arguments = ["--data-dir", text(&data), "--listen", &listen, "--shards", shards];
        let (mut child, _) = start_by_hand(&arguments);
        let run = |line: &[&str], stdin: &[u8]| {
            corelane(&[line, &["--bootstrap", &listen]].concat(), stdin).done()
        };
        if round == 0 {
            run(&["topic", "create", "t", "-p", "8"], b"");
            run(&["produce", "t"], sent.as_bytes());
        }
        assert_eq!(sorted(&run(&["consume", "t"], b"")), sent, "{shards} shards");
        let shown = run(&["topic", "describe", "t"], b"");
        let leader = |line: &str| line.split_whitespace().nth(2)?.parse::<u16>().ok();
        let mut leaders: Vec<u16> = shown.lines().skip(1).filter_map(leader).collect();
        assert_eq!(leaders.len(), 8, "{shown}");
        let count: u16 = shards.parse().expect("a number");
        leaders.sort_unstable();
        leaders.dedup();
        assert_eq!(leaders, (0..count).collect::<Vec<_>>(), "every shard has its share: {shown}");
        child.signal(Signal::TERM);
        assert_eq!(child.exit_code(), Some(0));
    }
}
