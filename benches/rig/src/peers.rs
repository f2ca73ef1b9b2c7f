//! Brokers beside Apache Kafka that are measured where somebody asks for them: their installation and
//! their processes.
//!
//! `scripts/install-peer` installs and checks them; one that cannot be had is left out with its
//! reason. A server has a folder and a port of its own and is killed when it is dropped.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use corelane_tests::{brokers, repository};

use crate::contender::Contender;
use crate::error::{Error, Result};

const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const TANSU_PRODUCE_VERSION: i16 = 11;
const LOG_TAIL_LINES: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// NATS JetStream, with its default and with every message synced
    Nats,
    /// Tansu on libSQL
    Tansu,
}

impl Peer {
    fn id(self) -> &'static str {
        match self {
            Peer::Nats => "nats",
            Peer::Tansu => "tansu",
        }
    }

    fn of(who: Contender) -> Option<Self> {
        match who {
            Contender::Nats | Contender::NatsFlush => Some(Peer::Nats),
            Contender::Tansu => Some(Peer::Tansu),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Installed {
    peer: Peer,
    program: PathBuf,
    /// As it says itself.
    version: String,
}

/// Those that are on this machine.
#[derive(Debug, Default)]
pub struct Peers(Vec<Installed>);

impl Peers {
    /// Installs what is wanted; gives a line for each that cannot be had.
    pub fn install(wanted: &[Peer]) -> (Self, Vec<String>) {
        let (mut peers, mut left_out) = (Peers::default(), Vec::new());
        for &peer in wanted {
            eprintln!("looking for {}", peer.id());
            match install(peer) {
                Ok(installed) => peers.0.push(installed),
                Err(error) => {
                    eprintln!("rig: {} is left out: {error}", peer.id());
                    left_out.push(format!("{}: {error}", peer.id()));
                }
            }
        }
        (peers, left_out)
    }

    /// Whether it can be measured; true of those that are no peers.
    pub fn have(&self, who: Contender) -> bool {
        Peer::of(who).is_none_or(|peer| self.find(peer).is_some())
    }

    pub fn version(&self, who: Contender) -> Option<&str> {
        self.find(Peer::of(who)?).map(|installed| installed.version.as_str())
    }

    /// Starts one on an empty folder and waits until it answers.
    pub fn start(&self, who: Contender) -> Result<Server> {
        let peer = Peer::of(who).and_then(|peer| self.find(peer));
        let peer = peer.ok_or_else(|| Error::Usage(format!("{} is not here", who.name())))?;
        Server::start(peer, who)
    }

    fn find(&self, peer: Peer) -> Option<&Installed> {
        self.0.iter().find(|installed| installed.peer == peer)
    }
}

fn install(peer: Peer) -> Result<Installed> {
    let script = repository::root().join("scripts/install-peer");
    let program = repository::run_quietly(Command::new(script).arg(peer.id()))?;
    let program = PathBuf::from(program.trim());
    let version = repository::run_quietly(Command::new(&program).arg("--version"))?;
    // After its name.
    let version = version.split_whitespace().last().unwrap_or_default().trim_start_matches('v');
    Ok(Installed { peer, program, version: version.to_owned() })
}

/// A peer's process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Server {
    fn start(installed: &Installed, who: Contender) -> Result<Self> {
        let folder = repository::temporary_folder("peer-")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, brokers::free_ports(1)?));
        let data = folder.path().join("data");
        std::fs::create_dir(&data).map_err(Error::io(format!("create {}", data.display())))?;
        let mut command = match installed.peer {
            Peer::Nats => nats(&installed.program, folder.path(), address, who.flushes())?,
            Peer::Tansu => tansu(&installed.program, address),
        };
        let log = log_of(folder.path());
        let out = File::create(&log).map_err(Error::io(format!("create {}", log.display())))?;
        let errors = out.try_clone().map_err(Error::io("share a log"))?;
        let what = format!("start {}", installed.program.display());
        let child = command.current_dir(&data).stdin(Stdio::null()).stdout(out).stderr(errors);
        let child = child.spawn().map_err(Error::io(what))?;
        let mut server = Server { child, folder, address };
        server.await_ready(who)?;
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tansu knows none later.
    pub fn produce_version(&self) -> i16 {
        TANSU_PRODUCE_VERSION
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(log_of(self.folder())).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LOG_TAIL_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    fn await_ready(&mut self, who: Contender) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let last = match TcpStream::connect_timeout(&self.address, LOOK_EVERY) {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            };
            let ended = self.child.try_wait().map_err(Error::io("wait for a peer"))?;
            if ended.is_some() || Instant::now() > deadline {
                let what = format!("{} does not answer", who.name());
                let last = format!("{last}; it said:\n{}", self.log_tail());
                return Err(Error::TooLate { what, within: READY_WITHIN, last });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("peer.log")
}

/// Pings less often than a run lasts: a client may leave one unanswered.
fn nats(program: &Path, folder: &Path, at: SocketAddr, synced: bool) -> Result<Command> {
    let sync = if synced { "  sync_interval: always\n" } else { "" };
    let store = folder.join("data");
    let text = format!(
        "listen: \"{at}\"\nping_interval: \"30m\"\njetstream {{\n  store_dir: \"{}\"\n{sync}}}\n",
        store.display()
    );
    let file = folder.join("nats.conf");
    std::fs::write(&file, text).map_err(Error::io(format!("write {}", file.display())))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(file);
    Ok(command)
}

/// In the folder that it is started in.
fn tansu(program: &Path, at: SocketAddr) -> Command {
    let url = format!("tcp://{at}");
    let mut command = Command::new(program);
    command.args(["broker", "--silent", "--listener-url", &url, "--advertised-listener-url", &url]);
    command.args(["--storage-engine", "sqlite://tansu.db"]);
    command
}
