//! A broker on a small file system that fills to the last block, on real files. Needs the right to
//! mount; without it the test says so and does nothing.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ended, binary, corelane, numbers, sorted};
use corelane_tests::repository::temporary_folder;

/// Far more than anything here takes; a limit so that a hang ends.
const PATIENCE: Duration = Duration::from_secs(90);
const SIZE: &str = "64M";

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

fn serve(data: &Path, port: u16) -> Running {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data-dir").arg(data);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--shards", "1"]);
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
        eprintln!("skipped: nothing may be mounted here (root, or CAP_SYS_ADMIN, is needed)");
        return;
    };
    let data = disk.at.join("data");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let broker = serve(&data, port);
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
    std::thread::sleep(Duration::from_secs(1));
    assert!(producer.try_wait().expect("a child").is_none(), "it should wait for space");

    // A crash now, and the next start finds the disk full, to the last byte and without a reserve.
    drop(broker);
    let _ = std::fs::remove_file(data.join("corelane.reserve"));
    fill(&filler);
    let _broker = serve(&data, port);
    assert_eq!(sorted_of("kept"), numbers(1..=1000), "and after a crash");
    on(&["topic", "delete", "gone"], "").done();
    assert!(producer.try_wait().expect("a child").is_none(), "it still waits for space");

    std::fs::remove_file(&filler).expect("it is there");
    let status = producer.wait().expect("a child");
    assert!(status.success(), "it did not go on by itself: {status}");
    assert_eq!(sorted_of("kept"), numbers(1..=1500));
}
