//! The list of checks before a start: each with a verdict, a one-line finding, a one-line remedy.
//!
//! Owns the judgement (what is fine, what is worth a warning, what cannot work); the facts come
//! from the sibling files. Never: writes anything, prints, or decides to stop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::directory::{DirectIo, Directory, inspect_directory};
use crate::{
    Cpus, IoUringSwitch, Limit, Memory, PortState, Resource, format_size, io_uring_switch, limit,
    port_state,
};

/// Fewer open files than this and some thousand partitions with their clients run out.
const COMFORTABLE_FILES: u64 = 16_384;
/// What to ask for when asking anyway.
const GENEROUS_FILES: u64 = 65_536;
/// Below this not even one shard with a handful of clients works.
const LEAST_FILES: u64 = 1_024;
/// What one shard may register with its ring.
const LOCKED_BYTES_PER_SHARD: u64 = 1 << 20;
/// DESIGN: works in 256 MiB.
const LEAST_MEMORY_BYTES: u64 = 256 << 20;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Ok,
    /// The broker starts, with less than it could have.
    Warn,
    /// The broker cannot start.
    Fail,
}

/// One line of the preflight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub status: Status,
    pub finding: String,
    /// Present unless the status is Ok.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Check { name, status: Status::Ok, finding: finding.into(), remedy: None }
    }

    fn warn(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (finding, remedy) = (finding.into(), Some(remedy.into()));
        Check { name, status: Status::Warn, finding, remedy }
    }

    fn fail(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Check { status: Status::Fail, ..Check::warn(name, finding, remedy) }
    }
}

/// What the broker is about to ask of the machine.
#[derive(Debug)]
pub struct Preflight<'a> {
    pub data_dirs: &'a [PathBuf],
    pub addresses: &'a [SocketAddr],
    pub shards: usize,
    pub memory_bytes: u64,
    pub cpus: &'a Cpus,
    pub memory: Memory,
    /// What the reactor's own probe of a ring said.
    pub ring: Result<(), io::Error>,
}

/// Runs every check; the limits are taken as they are, so raise them first.
pub fn preflight(request: &Preflight<'_>) -> Vec<Check> {
    let mut checks = vec![
        ring(&request.ring, io_uring_switch()),
        cpus(request.shards, request.cpus),
        memory(request.memory_bytes, request.memory),
        open_files(limit(Resource::OpenFiles)),
        locked_memory(limit(Resource::LockedMemory), request.shards),
    ];
    checks.extend(directories(request.data_dirs));
    checks.extend(request.addresses.iter().map(|&address| port(address, port_state(address))));
    checks
}

/// The checks of every data directory. As long as one can be used, the broker starts without those
/// that cannot.
fn directories(paths: &[PathBuf]) -> Vec<Check> {
    let each: Vec<Vec<Check>> = paths
        .iter()
        .map(|path| match inspect_directory(path) {
            Ok(found) => directory(&found),
            Err(error) => vec![Check::fail(
                "data directory",
                format!("{}: {}", path.display(), plain(&error)),
                "name another directory with --data-dir, or mend this one",
            )],
        })
        .collect();
    let fails = |checks: &Vec<Check>| checks.iter().any(|check| check.status == Status::Fail);
    let some_work = each.iter().any(|checks| !fails(checks));
    let mut checks: Vec<Check> = each.into_iter().flatten().collect();
    for check in checks.iter_mut().filter(|c| some_work && c.status == Status::Fail) {
        check.status = Status::Warn;
        check.finding.push_str("; its partitions will be offline");
    }
    checks
}

fn ring(probe: &Result<(), io::Error>, switch: IoUringSwitch) -> Check {
    const NAME: &str = "io_uring";
    let Err(error) = probe else { return Check::ok(NAME, "available") };
    let finding = format!("not usable: {}", plain(error));
    let remedy = match switch {
        IoUringSwitch::Off => "run `sysctl -w kernel.io_uring_disabled=0`",
        IoUringSwitch::Restricted => {
            "run `sysctl -w kernel.io_uring_disabled=0`, or put the user in the group that \
             `sysctl kernel.io_uring_group` names"
        }
        IoUringSwitch::Open if error.raw_os_error() == Some(libc::ENOSYS) => {
            "use a Linux kernel of 6.1 or newer with io_uring built in"
        }
        IoUringSwitch::Open if error.kind() == io::ErrorKind::PermissionDenied => {
            "the container's seccomp profile blocks it: allow io_uring_setup, io_uring_enter and \
             io_uring_register (Docker: `--security-opt seccomp=unconfined`)"
        }
        IoUringSwitch::Open if error.kind() == io::ErrorKind::OutOfMemory => {
            "raise the locked-memory limit (`ulimit -l unlimited`, systemd `LimitMEMLOCK=infinity`)"
        }
        IoUringSwitch::Open => "use a Linux kernel of 6.1 or newer, outside a sandbox",
    };
    Check::fail(NAME, finding, remedy)
}

pub(crate) fn cpus(shards: usize, cpus: &Cpus) -> Check {
    const NAME: &str = "cpus";
    let usable = cpus.parallelism();
    let quota = cpus.quota.map_or(String::new(), |quota| format!(" (quota {quota:.1})"));
    if shards > usable {
        return Check::warn(
            NAME,
            format!("{shards} shards share {usable} usable CPUs{quota}"),
            "fine for a test; for speed start at most one shard for each CPU (`--shards`)",
        );
    }
    Check::ok(NAME, format!("{usable} usable{quota}, {shards} shards"))
}

fn memory(wanted: u64, memory: Memory) -> Check {
    const NAME: &str = "memory";
    let usable = memory.usable();
    let finding = format!("{} of {} for the broker", format_size(wanted), format_size(usable));
    if wanted > usable {
        return Check::fail(NAME, finding, "ask for less with --memory");
    }
    if wanted < LEAST_MEMORY_BYTES {
        let least = format_size(LEAST_MEMORY_BYTES);
        return Check::warn(NAME, finding, format!("give it at least {least} with --memory"));
    }
    Check::ok(NAME, finding)
}

pub(crate) fn open_files(limit: Limit) -> Check {
    const NAME: &str = "open files";
    let finding = match limit.soft {
        Some(soft) => format!("limit {soft}"),
        None => "unlimited".to_owned(),
    };
    let remedy = format!(
        "raise the hard limit to {GENEROUS_FILES} or more (`ulimit -Hn`, systemd `LimitNOFILE=`)"
    );
    if !limit.allows(LEAST_FILES) {
        Check::fail(NAME, finding, remedy)
    } else if !limit.allows(COMFORTABLE_FILES) {
        Check::warn(NAME, finding, remedy)
    } else {
        Check::ok(NAME, finding)
    }
}

/// Only a warning: a ring works without registered buffers, and what it needs itself is not counted.
pub(crate) fn locked_memory(limit: Limit, shards: usize) -> Check {
    const NAME: &str = "locked memory";
    let wanted = LOCKED_BYTES_PER_SHARD.saturating_mul(shards as u64);
    let finding = match limit.soft {
        Some(soft) => format!("limit {}", format_size(soft)),
        None => "unlimited".to_owned(),
    };
    if limit.allows(wanted) {
        return Check::ok(NAME, finding);
    }
    let remedy = format!(
        "raise it to {} (`ulimit -l`, systemd `LimitMEMLOCK=`) should a ring fail to start",
        format_size(wanted)
    );
    Check::warn(NAME, finding, remedy)
}

fn directory(found: &Directory) -> Vec<Check> {
    const NAME: &str = "data directory";
    let path = found.path.display();
    if let Some(error) = &found.unwritable {
        let judged = found.judged.display();
        let finding = format!("{path}: cannot write in {judged}: {}", plain(error));
        let remedy = "give the user of this process write access, or name another --data-dir";
        return vec![Check::fail(NAME, finding, remedy)];
    }
    let kind = &found.file_system;
    let state = if found.exists() { "" } else { " (will be created)" };
    let place = match kind.as_str() {
        "ext4" | "xfs" => Check::ok(NAME, format!("{path} on {kind}{state}")),
        "tmpfs" | "ramfs" => Check::warn(
            NAME,
            format!("{path} on {kind}{state}: in memory"),
            "every record is gone at the next boot; use a disk unless this is a test",
        ),
        _ => Check::warn(
            NAME,
            format!("{path} on {kind}{state}"),
            "XFS or ext4 on a local disk is what Corelane is built and measured for",
        ),
    };
    vec![place, direct_io(found), space(found)]
}

fn direct_io(found: &Directory) -> Check {
    const NAME: &str = "direct I/O";
    let (path, kind) = (found.path.display(), &found.file_system);
    match &found.direct_io {
        DirectIo::Works => Check::ok(NAME, format!("works on {path}")),
        DirectIo::Refused => Check::fail(
            NAME,
            format!("{kind} at {path} refuses O_DIRECT"),
            "put the data directory on XFS or ext4 on a local disk",
        ),
        DirectIo::Untried(error) => Check::warn(
            NAME,
            format!("could not be tried on {path}: {}", plain(error)),
            "free some space on that file system",
        ),
    }
}

/// Of a disk of this size: what is free when retention begins to hurry, and when producers are refused.
/// The same marks as in the broker's `data_dirs/space.rs`.
fn marks(total: u64) -> (u64, u64) {
    ((total / 10).min(1 << 30), (total / 20).min(512 << 20))
}

/// Never a failure: a full disk must not stop a broker that could delete from it.
fn space(found: &Directory) -> Check {
    const NAME: &str = "free space";
    let (free, total) = (format_size(found.free_bytes), format_size(found.total_bytes));
    let (low, full) = marks(found.total_bytes);
    let finding = format!(
        "{free} of {total} at {}; retention hurries below {}, producers are refused below {}",
        found.path.display(),
        format_size(low),
        format_size(full)
    );
    if found.free_bytes < low {
        return Check::warn(NAME, finding, "free some space, or shorten retention on big topics");
    }
    Check::ok(NAME, finding)
}

fn port(address: SocketAddr, state: PortState) -> Check {
    const NAME: &str = "port";
    match state {
        PortState::Free => Check::ok(NAME, format!("{address} is free")),
        PortState::InUse => Check::fail(
            NAME,
            format!("{address} is in use by another process"),
            format!(
                "find it with `ss -ltnp 'sport = :{}'`, or choose another --listen",
                address.port()
            ),
        ),
        PortState::Forbidden => Check::fail(
            NAME,
            format!("{address} needs a privilege this process lacks"),
            "listen on a port above 1023",
        ),
        PortState::NotOurs => Check::fail(
            NAME,
            format!("{address} is not an address of this machine"),
            "listen on 0.0.0.0 or an address that `ip addr` shows; tell clients with --advertise",
        ),
        PortState::Unknown(error) => Check::fail(
            NAME,
            format!("{address} cannot be listened on: {}", plain(&error)),
            "choose another --listen",
        ),
    }
}

/// "permission denied" without the number the standard library appends.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn the_ring_remedy_fits_the_cause() {
        assert_eq!(ring(&Ok(()), IoUringSwitch::Off).status, Status::Ok);
        let table = [
            (libc::EPERM, IoUringSwitch::Off, "io_uring_disabled=0"),
            (libc::EPERM, IoUringSwitch::Restricted, "io_uring_group"),
            (libc::EPERM, IoUringSwitch::Open, "seccomp"),
            (libc::ENOSYS, IoUringSwitch::Open, "kernel of 6.1"),
            (libc::ENOMEM, IoUringSwitch::Open, "ulimit -l"),
        ];
        for (code, switch, word) in table {
            let check = ring(&Err(os(code)), switch);
            assert_eq!(check.status, Status::Fail);
            assert!(check.remedy.clone().unwrap().contains(word), "{check:?}");
        }
    }

    #[test]
    fn limits_are_judged() {
        let limit = |soft| Limit { soft, hard: soft };
        assert_eq!(open_files(limit(None)).status, Status::Ok);
        assert_eq!(open_files(limit(Some(4_096))).status, Status::Warn);
        assert_eq!(open_files(limit(Some(256))).status, Status::Fail);
        assert_eq!(locked_memory(limit(Some(8 << 20)), 8).status, Status::Ok);
        assert_eq!(locked_memory(limit(Some(8 << 20)), 9).status, Status::Warn);
    }

    #[test]
    fn memory_and_cpus_are_judged() {
        let machine = Memory { total: 8 << 30, limit: Some(1 << 30) };
        assert_eq!(memory(512 << 20, machine).status, Status::Ok);
        assert_eq!(memory(2 << 30, machine).status, Status::Fail);
        assert_eq!(memory(64 << 20, machine).status, Status::Warn);
        let two = Cpus { ids: vec![0, 1], quota: None };
        assert_eq!(cpus(2, &two).status, Status::Ok);
        assert_eq!(cpus(4, &two).status, Status::Warn);
    }

    #[test]
    fn every_check_that_is_not_ok_has_a_remedy() {
        let root = tempfile::tempdir().unwrap();
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap();
        let dirs = [root.path().join("new"), PathBuf::from("/proc/sys")];
        let checks = preflight(&Preflight {
            data_dirs: &dirs,
            addresses: &[taken],
            shards: 1,
            memory_bytes: 1,
            cpus: &Cpus { ids: vec![0], quota: None },
            memory: Memory { total: 1 << 30, limit: None },
            ring: Err(os(libc::EPERM)),
        });
        for check in &checks {
            assert_eq!(check.status == Status::Ok, check.remedy.is_none(), "{check:?}");
            assert!(!check.finding.contains('\n') && !check.finding.contains("os error"));
        }
        let failed = |name| checks.iter().any(|c| c.name == name && c.status == Status::Fail);
        assert!(failed("port") && failed("io_uring"));
        // The other directory can be used.
        assert!(!failed("data directory"));
        let lost = |c: &&Check| c.name == "data directory" && c.status == Status::Warn;
        assert!(checks.iter().filter(lost).any(|c| c.finding.contains("/proc/sys")));
        assert!(directories(&dirs[1..]).iter().any(|c| c.status == Status::Fail));
        assert!(!root.path().join("new").exists());
    }

    #[test]
    fn a_full_disk_is_no_reason_to_refuse_a_start() {
        let full = Directory {
            path: "/d".into(),
            judged: "/d".into(),
            file_system: "xfs".into(),
            total_bytes: 1 << 40,
            free_bytes: 0,
            unwritable: None,
            direct_io: DirectIo::Untried(os(libc::ENOSPC)),
        };
        let worst = directory(&full).iter().map(|check| check.status).max();
        assert_eq!(worst, Some(Status::Warn));
    }
}
