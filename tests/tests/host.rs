//! `doctor`, `tune` and `bench disk` as processes on the machine that runs the tests: what is on it
//! decides what they find, so what is asserted holds on any.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{binary, corelane};
use corelane_tests::repository::temporary_folder;
use rustix::process::{Pid, Signal, kill_process};

/// Far more than anything here takes; a limit so that a hang ends.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

fn left_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("it is there").count()
}

#[test]
fn the_doctor_explains_and_changes_nothing() {
    let folder = temporary_folder("host-").expect("a folder");
    let data = folder.path().join("data");
    let ended = corelane(&["doctor", "--data-dir", text(&data)], b"");
    let problems = ended.stdout.lines().filter(|line| line.starts_with("problem  ")).count();
    assert_eq!(ended.code, Some(if problems > 0 { 3 } else { 0 }), "{}", ended.stderr);
    for id in ["start.io_uring", "disk.file_system", "cpu.governor", "net.somaxconn", "host.kind"] {
        assert!(ended.stdout.contains(id), "{id} is not in\n{}", ended.stdout);
    }
    assert_eq!(left_in(folder.path()), 0);
    let json = corelane(&["doctor", "--json", "--data-dir", text(&data)], b"").stdout;
    assert!(json.contains(&format!("\"problems\": {problems}")), "{json}");
    assert!(json.contains("\"id\": \"disk.file_system\""));
}

#[test]
fn a_data_directory_in_memory_is_a_problem() {
    let memory = Path::new("/dev/shm");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    if !mounts.contains(" /dev/shm tmpfs ") {
        // A machine without such a file system has nothing to be wrong about.
        return;
    }
    let data = memory.join("corelane-test-that-is-not-there");
    let ended = corelane(&["doctor", "--brief", "--data-dir", text(&data)], b"");
    assert_eq!(ended.code, Some(3), "{}", ended.stdout);
    // Where such a file system refuses direct I/O, that problem comes before.
    let is_there = ended.stdout.lines().any(|line| line.starts_with("problem  disk.device"));
    assert!(is_there, "{}", ended.stdout);
    assert!(!ended.stdout.contains("\nok  "));
    assert!(!data.exists());
}

#[test]
fn tune_shows_and_prints_without_setting() {
    // The plan itself changes with what else runs here; the kernel's files in it do not. Interrupts
    // are left out: the kernel and its daemons move them at any time.
    let shown = corelane(&["tune"], b"").done();
    assert!(shown.contains("values would be set"), "{shown}");
    let planned = shown.lines().filter_map(|line| {
        line.strip_prefix("would set  ")?.split_once(" = ").map(|(file, _)| file)
    });
    let files: Vec<&str> = planned.filter(|file| !file.starts_with("/proc/irq/")).collect();
    let values = || -> Vec<_> { files.iter().map(|file| std::fs::read(file).ok()).collect() };
    let before = values();
    corelane(&["tune"], b"").done();
    let printed = corelane(&["tune", "--print-files"], b"").done();
    assert!(printed.contains("# /etc/sysctl.d/90-corelane.conf\n"), "{printed}");
    assert!(printed.contains("LimitNOFILE="));
    assert_eq!(values(), before, "something was set: {files:?}");
    corelane(&["tune", "--only", "disks"], b"").refused(2, &["no finding is called disks"]);
}

#[test]
fn a_disk_is_measured_and_kept_as_a_profile_and_a_report() {
    let folder = temporary_folder("host-").expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let (profile, report) = (folder.path().join("p.toml"), folder.path().join("report"));
    let quick = ["--quick", "--seconds", "0.01", "--file-size", "64M"];
    let keep = ["--save", text(&profile), "--report", text(&report)];
    let shown =
        corelane(&[&["bench", "disk", text(&disk)][..], &quick, &keep].concat(), b"").done();
    for words in ["sequential write, MB/s", "random read, MB/s", "each synced", "ceiling: write "] {
        assert!(shown.contains(words), "{words} is not in\n{shown}");
    }
    let kept = std::fs::read_to_string(&profile).expect("a profile");
    assert!(kept.contains("schema = 1\n") && kept.contains("[[sequential_write]]"));
    assert!(!kept.contains(text(&disk)), "a profile names no place");
    assert!(report.join("report.json").is_file() && report.join("report.md").is_file());
    assert_eq!(left_in(&disk), 0);
    let missing = folder.path().join("missing");
    corelane(&["bench", "disk", text(&missing)], b"").refused(3, &["missing", "make it first"]);
    corelane(&["bench", "disk", text(&disk), "--emulate", "floppy"], b"")
        .refused(2, &["sata-ssd and hdd"]);
}

/// A measurement that would take minutes, and has its file open.
fn start_long(disk: &Path, more: &[&str]) -> Child {
    let mut child = Command::new(binary())
        .args(["bench", "disk", text(disk), "--seconds", "60", "--file-size", "64M"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    let files = format!("/proc/{}/fd", child.id());
    let has_file = || {
        let links = std::fs::read_dir(&files).into_iter().flatten().filter_map(Result::ok);
        let mut targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        // Open, and without a name already.
        targets.any(|target| {
            let target = target.to_string_lossy();
            target.contains(".corelane-bench-") && target.ends_with(" (deleted)")
        })
    };
    while !has_file() {
        assert!(began.elapsed() < PATIENCE && child.try_wait().is_ok_and(|ended| ended.is_none()));
        std::thread::sleep(LOOK_EVERY);
    }
    child
}

#[test]
fn ctrl_c_ends_a_measurement_with_what_there_is() {
    let folder = temporary_folder("host-").expect("a folder");
    let profile = folder.path().join("p.toml");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let child = start_long(&disk, &["--save", text(&profile)]);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::INT).expect("the signal is sent");
    let began = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(began.elapsed() < PATIENCE, "it went on");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"));
    assert!(!profile.exists(), "half a profile");
    assert_eq!(left_in(&disk), 0);
}

#[test]
fn an_error_later_on_takes_nothing_away_and_what_is_there_is_kept() {
    let folder = temporary_folder("host-").expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let (profile, report) = (folder.path().join("p.toml"), folder.path().join("report"));
    let bench =
        ["bench", "disk", text(&disk), "--quick", "--seconds", "0.01", "--file-size", "64M"];
    // There is no port behind the last one, which is seen when the disk was measured.
    let broker = ["--broker", "--shards", "2", "--port", "65535"];
    let keep = ["--save", text(&profile), "--report", text(&report)];
    let ended = corelane(&[&bench[..], &broker, &keep].concat(), b"");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("no 2 free ports"), "{}", ended.stderr);
    assert!(profile.is_file(), "the profile is lost");
    let kept = std::fs::read_to_string(report.join("report.json")).expect("a report");
    assert!(kept.contains("no 2 free ports"), "it does not say why it ends");
    let save = ["--save", text(&profile)];
    corelane(&[&bench[..], &save].concat(), b"").refused(2, &["p.toml", "--save"]);
    let to_report = ["--report", text(&report)];
    corelane(&[&bench[..], &to_report].concat(), b"").refused(2, &["holds a report already"]);
}

/// The processes that serve below a folder.
fn brokers_on(folder: &Path) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let serves = |line: &str| line.contains("\0serve\0") && line.contains(text(folder));
    lines.filter(|line| serves(&String::from_utf8_lossy(line))).count()
}

#[test]
fn a_broker_ends_with_the_measurement_that_is_killed() {
    let folder = temporary_folder("host-").expect("a folder");
    let mut child = Command::new(binary())
        .args(["bench", "disk", text(folder.path()), "--quick", "--seconds", "0.05"])
        .args(["--file-size", "64M", "--broker"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    while brokers_on(folder.path()) == 0 {
        assert!(began.elapsed() < PATIENCE && child.try_wait().is_ok_and(|ended| ended.is_none()));
        std::thread::sleep(LOOK_EVERY);
    }
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let began = Instant::now();
    while brokers_on(folder.path()) > 0 {
        assert!(began.elapsed() < PATIENCE, "the broker lives on");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn a_measurement_that_is_killed_leaves_no_file() {
    let folder = temporary_folder("host-").expect("a folder");
    let mut child = start_long(folder.path(), &[]);
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert_eq!(left_in(folder.path()), 0);
}
