//! A broker of this very program on a directory of its own. Dropping it ends the process and removes
//! the directory.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
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
        let port = free_ports(setup.port.unwrap_or(PORTS.start), setup.shards)?;
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
            // What is deleted is gone before the next load needs the room.
            .args(["--set", "log.retention.check.interval.ms=1000"])
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

/// As many ports in a row as there are shards.
fn free_ports(from: u16, shards: u16) -> Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let last = PORTS.end.saturating_sub(shards);
    let found = (from..last).step_by(usize::from(shards.max(1)));
    found
        .into_iter()
        .find(|&port| (port..port + shards).all(free))
        .ok_or_else(|| Error::Usage(format!("no {shards} free ports in a row from {from} on")))
}
