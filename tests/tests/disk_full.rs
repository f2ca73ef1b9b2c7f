//! A broker on a small file system that fills to the last block, on real files.
//!
//! Needs the right to mount. Whoever lacks it gets it in a namespace of its own (`unshare`), in
//! which the test starts itself anew; where that is forbidden too, the test fails and says so.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ended, binary, corelane, numbers, sorted};
use corelane_tests::repository::temporary_folder;

/// Far more than anything here takes; a limit so that a hang ends.
const PATIENCE: Duration = Duration::from_secs(90);
const SIZE: &str = "64M";
/// Set for the test in its own namespace.
const INSIDE: &str = "CORELANE_TEST_NAMESPACE";
const TEST: &str = "a_disk_with_no_byte_left_serves_all_but_producers_and_they_go_on_by_themselves";

/// A small file system, unmounted in the end.
struct Mounted {
    at: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// ext4 in a file, else memory; `None` where nothing may be mounted.
    fn new() -> Option<Self> {
        let folder = temporary_folder("full-").expect("a folder");
        let (image, at) = (folder.path().join("image"), folder.path().join("disk"));
        std::fs::create_dir(&at).expect("a folder");
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let quiet = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        let (image, place) = (image.to_str()?, at.to_str()?);
        let ext4 = run("truncate", &["-s", SIZE, image])
            && run("mkfs.ext4", &["-q", "-m", "0", image])
            && run("mount", &["-o", "loop", image, place]);
        let memory =
            || run("mount", &["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs", place]);
        (ext4 || memory()).then(|| Mounted { at: at.clone(), _folder: folder })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Busy for a moment after the broker's end.
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            let status = Command::new("umount").arg(&self.at).stderr(Stdio::null()).status();
            if status.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL; errors mean that it is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs this test where it may mount: as root of a namespace.
fn in_a_namespace() {
    let itself = std::env::current_exe().expect("a path");
    let mut command = Command::new("unshare");
    command.arg("-rm").arg(itself).args(["--exact", TEST, "--nocapture"]).env(INSIDE, "1");
    let ended = command.status();
    assert!(
        ended.as_ref().is_ok_and(|status| status.success()),
        "failed in a namespace of its own ({ended:?}). This test mounts a small file system: run it \
         as root, or where `unshare -rm true` works"
    );
}

/// How often producers were refused for want of space.
fn refusals(admin: u16) -> f64 {
    const LINE: &str =
        r#"corelane_partition_errors_total{api="Produce",error="KAFKA_STORAGE_ERROR"}"#;
    let mut stream = TcpStream::connect(("127.0.0.1", admin)).expect("the admin port");
    let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.contains("# TYPE corelane_"), "{answer}");
    let value = answer.lines().find_map(|line| line.strip_prefix(LINE));
    value.map_or(0.0, |value| value.trim().parse().expect("a number"))
}

/// A producer that waits for space is refused again and again, and does not end.
fn waits_for_space(producer: &mut Child, admin: u16) {
    let deadline = Instant::now() + PATIENCE;
    let before = refusals(admin);
    while refusals(admin) < before + 2.0 {
        assert!(producer.try_wait().expect("a child").is_none(), "it should wait for space");
        assert!(Instant::now() < deadline, "nobody was refused");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn serve(data: &Path, (port, admin): (u16, u16)) -> Running {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data-dir").arg(data);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--shards", "1"]);
    command.args(["--admin-port", &admin.to_string()]);
    command.args(["--set", "log.segment.bytes=1048576"]);
    let child = command.stdout(Stdio::null()).spawn().expect("it starts");
    let mut running = Running(child);
    let deadline = Instant::now() + PATIENCE;
    while run(port, &["topic", "list"], b"").code != Some(0) {
        assert!(running.0.try_wait().expect("a child").is_none(), "the broker ended");
        assert!(Instant::now() < deadline, "the broker does not serve");
    }
    running
}

fn run(port: u16, arguments: &[&str], stdin: &[u8]) -> Ended {
    let bootstrap = format!("127.0.0.1:{port}");
    corelane(&[arguments, &["--bootstrap", &bootstrap]].concat(), stdin)
}

/// Takes every byte that is left.
fn fill(path: &Path) {
    let mut filler = std::fs::File::options().create(true).append(true).open(path).expect("a file");
    for size in [1 << 20, 4096, 1] {
        let block = vec![0u8; size];
        while filler.write_all(&block).is_ok() {}
    }
    let _ = filler.sync_all();
}

#[test]
fn a_disk_with_no_byte_left_serves_all_but_producers_and_they_go_on_by_themselves() {
    let Some(disk) = Mounted::new() else {
        assert!(std::env::var_os(INSIDE).is_none(), "nothing can be mounted in a namespace either");
        return in_a_namespace();
    };
    let data = disk.at.join("data");
    let ports = (free_port(), free_port());
    let (port, admin) = ports;
    let broker = serve(&data, ports);
    let on = |arguments: &[&str], stdin: &str| run(port, arguments, stdin.as_bytes());
    on(&["topic", "create", "kept", "-p", "1"], "").done();
    on(&["topic", "create", "gone", "-p", "1"], "").done();
    on(&["produce", "kept"], &numbers(1..=1000)).done();
    on(&["produce", "gone"], &numbers(1..=200_000)).done();

    let filler = disk.at.join("filler");
    fill(&filler);
    let deadline = Instant::now() + PATIENCE;
    // Noticed: no new topics.
    while on(&["topic", "create", "more", "--timeout", "2"], "").code == Some(0) {
        on(&["topic", "delete", "more"], "").done();
        assert!(Instant::now() < deadline, "a full disk is not noticed");
    }
    let sorted_of = |topic: &str| sorted(&on(&["consume", topic], "").done());
    assert_eq!(sorted_of("kept"), numbers(1..=1000), "reading goes on");

    // A producer that comes now waits.
    let mut producer = Command::new(binary())
        .args(["produce", "kept", "--timeout", "120", "--bootstrap", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut input = producer.stdin.take().expect("a pipe");
    input.write_all(numbers(1001..=1500).as_bytes()).expect("it reads");
    drop(input);
    waits_for_space(&mut producer, admin);

    // A crash now, and the next start finds the disk full, to the last byte and without a reserve.
    drop(broker);
    let _ = std::fs::remove_file(data.join("corelane.reserve"));
    fill(&filler);
    let _broker = serve(&data, ports);
    assert_eq!(sorted_of("kept"), numbers(1..=1000), "and after a crash");
    on(&["topic", "delete", "gone"], "").done();
    waits_for_space(&mut producer, admin);

    std::fs::remove_file(&filler).expect("it is there");
    let status = producer.wait().expect("a child");
    assert!(status.success(), "it did not go on by itself: {status}");
    assert_eq!(sorted_of("kept"), numbers(1..=1500));
}
