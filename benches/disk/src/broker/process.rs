//! A broker of this very program on a directory of its own. Dropping it ends the process and removes
//! the directory.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// A deleted topic's files are unlinked within this.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between a look at ports and the broker's own bind, others may take one.
const TRIES: u32 = 5;
/// Below Linux's ephemeral ports, so that no outgoing connection takes one.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How a broker is started.
#[derive(Debug, Clone)]
pub struct Setup {
    pub binary: PathBuf,
    pub shards: u16,
    /// The first one to try; `None` takes any that are free.
    pub port: Option<u16>,
    /// Bytes of log that may lie on the disk.
    pub room: u64,
}

#[derive(Debug)]
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    /// Goes after the process has ended.
    folder: Folder,
}

/// Removed when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is left to do where that fails; the name says whose it was.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    pub fn start(dir: &Path, setup: &Setup) -> Result<Process> {
        let mut tries = TRIES;
        loop {
            let port = free_ports(setup.port, setup.shards)?;
            let started = Process::start_at(port, dir, setup);
            tries -= 1;
            // Its own ports are free again by now; that they are not means that another has them.
            if started.is_ok() || tries == 0 || are_free(port, setup.shards) {
                return started;
            }
        }
    }

    fn start_at(port: u16, dir: &Path, setup: &Setup) -> Result<Process> {
        let folder = dir.join(format!("corelane-bench-{}-{port}", std::process::id()));
        std::fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
        let folder = Folder(folder);
        let log = std::fs::File::create(folder.0.join("broker.log"));
        let log = log.map_err(Error::io("create a log in", &folder.0))?;
        let mut command = Command::new(&setup.binary);
        command
            .args(["serve", "--admin-port", "0"])
            .arg("--data-dir")
            .arg(folder.0.join("data"))
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--shards", &setup.shards.to_string()])
            // Where this program is killed, nobody else would end it.
            .args(["--end-with-parent", &std::process::id().to_string()])
            // What is deleted is gone before the next load needs the room, and is not unlinked
            // while that one is measured.
            .args(["--set", "log.retention.check.interval.ms=1000"])
            .args(["--set", "log.segment.delete.delay.ms=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C ends this program, which ends the broker when it has what it wants.
            .process_group(0);
        let child = command.spawn().map_err(Error::io("start", &setup.binary))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // From here on it ends when this does.
        let mut process = Process { child, address, folder };
        process.wait_until_ready()?;
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Until nothing of a deleted topic is on the disk.
    pub fn wait_until_gone(&self, topic: &str) -> Result<()> {
        let (data, folders) = (self.data_dir(), format!("{topic}-"));
        let mut waited = Duration::ZERO;
        loop {
            let mut entries = std::fs::read_dir(&data).map_err(Error::io("look at", &data))?;
            let is_there = entries.any(|entry| {
                entry.is_ok_and(|e| e.file_name().to_string_lossy().starts_with(&folders))
            });
            if !is_there {
                return Ok(());
            }
            if waited >= GONE_WITHIN {
                return Err(Error::Broker(format!("still has files of {topic}, deleted before")));
            }
            std::thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.0.join("data")
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let Some(stdout) = self.child.stdout.take() else { return Ok(()) };
        let (said, heard) = mpsc::channel();
        // It reads on until the broker ends, or a full pipe would stop it.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
                if line == "ready" {
                    let _ = said.send(());
                }
            }
        });
        if heard.recv_timeout(READY_WITHIN).is_ok() {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.0.join("broker.log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it said nothing").to_owned();
        Err(Error::Broker(format!("did not start: {last}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let mut waited = Duration::ZERO;
        while matches!(self.child.try_wait(), Ok(None)) {
            if waited >= STOPPED_WITHIN {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }
}

/// As many ports in a row as there are shards, at or after `from`. Without it, where the last look of
/// this process ended: a broker binds its ports only later, and programs side by side start apart.
fn free_ports(from: Option<u16>, shards: u16) -> Result<u16> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let width = u32::from(shards.max(1));
    let is_free = |port: u32| u16::try_from(port).ok().filter(|&port| are_free(port, shards));
    let found = match from {
        Some(from) => {
            let last = u32::from(u16::MAX) + 1 - width;
            (u32::from(from)..=last).step_by(width as usize).find_map(is_free)
        }
        None => {
            let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(97)));
            let span = u32::from(PORTS.end - PORTS.start).saturating_sub(width).max(1);
            (0..=span / width)
                .map(|_| u32::from(PORTS.start) + next.fetch_add(width, Ordering::Relaxed) % span)
                .find_map(is_free)
        }
    };
    let from = from.unwrap_or(PORTS.start);
    found.ok_or_else(|| Error::Usage(format!("no {shards} free ports in a row from {from} on")))
}

/// All of them are held until the last is known to be free.
fn are_free(port: u16, shards: u16) -> bool {
    let bind = |shard| TcpListener::bind((Ipv4Addr::LOCALHOST, port.checked_add(shard)?)).ok();
    (0..shards).map(bind).collect::<Option<Vec<_>>>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_port_may_be_asked_for_and_none_is_given_twice() {
        for from in [40_000, 65_000] {
            assert!(free_ports(Some(from), 2).unwrap() >= from);
        }
        assert!(free_ports(Some(65_535), 2).is_err());
        let (first, second) = (free_ports(None, 3).unwrap(), free_ports(None, 3).unwrap());
        assert!(first.abs_diff(second) >= 3, "{first} and {second}");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, second + 3));
        assert!(taken.is_err() || !are_free(second + 2, 2));
    }
}
