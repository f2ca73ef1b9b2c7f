//! A broker process on its own folder and free ports: Corelane or Apache Kafka, by one flag.
//!
//! Owns the child process and, unless one was given, the temporary data directory. Dropping a
//! `Broker` kills its process; `stop` ends it cleanly and keeps the data, `start` runs it again.
//! What the broker prints goes to `broker.log` in its folder.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::repository::{corelane_binary, temporary_folder};
use crate::{Error, Result, kafka, probe};

const READY_WITHIN: Duration = Duration::from_secs(90);
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Below Linux's ephemeral ports (32768 and up), so that no outgoing connection takes one.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const LOG_TAIL_LINES: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Corelane,
    ApacheKafka,
}

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Self::Corelane => "Corelane",
            Self::ApacheKafka => "Apache Kafka",
        }
    }

    /// How many consecutive ports it listens on: one per shard and that of its metrics; or the
    /// broker's and the controller's.
    fn ports(self, shards: u16) -> u16 {
        match self {
            Self::Corelane => shards + 1,
            Self::ApacheKafka => 2,
        }
    }
}

#[derive(Debug, Clone)]
pub struct BrokerOptions {
    pub target: Target,
    /// Shards of Corelane. Apache Kafka has one node whatever this says.
    pub shards: u16,
    /// How many data directories it has.
    pub data_dirs: u16,
    /// Broker settings under Kafka's own names, on top of the defaults.
    pub settings: Vec<(String, String)>,
    /// Corelane's other `serve` flags, as they are. Apache Kafka ignores them.
    pub flags: Vec<String>,
    /// The Corelane binary, if not this repository's own.
    pub binary: Option<PathBuf>,
    /// Java options of the Apache Kafka broker, in place of the harness's own small heap.
    pub java: Option<Vec<String>>,
}

impl BrokerOptions {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            shards: 4,
            data_dirs: 1,
            settings: Vec::new(),
            flags: Vec::new(),
            binary: None,
            java: None,
        }
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.push((key.to_owned(), value.to_string()));
        self
    }
}

#[derive(Debug)]
pub struct Broker {
    options: BrokerOptions,
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
    /// What Corelane says on stdout once it serves.
    said_ready: Arc<AtomicBool>,
}

impl Broker {
    /// Starts a broker on an empty data directory and waits until it answers.
    pub fn start_new(options: BrokerOptions) -> Result<Self> {
        let port = free_ports(options.target.ports(options.shards))?;
        let folder = temporary_folder("broker-")?;
        let said_ready = Arc::default();
        let mut broker = Self { options, folder, port, child: None, said_ready };
        broker.start()?;
        Ok(broker)
    }

    /// Starts the broker again on its data and ports, after `stop` or `kill`.
    pub fn start(&mut self) -> Result<()> {
        self.launch()?;
        match self.options.target {
            Target::Corelane => self.wait_until(|it| it.said_ready.load(Ordering::Acquire)),
            Target::ApacheKafka => self.wait_until(|it| probe::answers(it.address())),
        }
    }

    /// Starts the process and does not wait until it answers, for whoever measures that. Gives the
    /// moment at which the process was started; formatting a new directory comes before it.
    pub fn launch(&mut self) -> Result<Instant> {
        assert!(self.child.is_none(), "start of a broker that runs");
        match self.options.target {
            Target::Corelane => self.launch_corelane(),
            Target::ApacheKafka => self.launch_kafka(),
        }
    }

    /// `HOST:PORT` for clients; of Corelane, the first shard's.
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// The directory that holds the `<topic>-<partition>` folders; the first, where there are more.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// All of its data directories.
    pub fn data_dirs(&self) -> Vec<PathBuf> {
        let further = 2..=self.options.data_dirs;
        let further = further.map(|number| self.folder.path().join(format!("data-{number}")));
        std::iter::once(self.data_dir()).chain(further).collect()
    }

    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }

    /// The process id while the broker runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether the process is still there. A dead one can be started again.
    pub fn alive(&mut self) -> bool {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => true,
            _ => {
                self.child = None;
                false
            }
        }
    }

    /// SIGTERM, and waits for the clean end.
    pub fn stop(&mut self) -> Result<Option<ExitStatus>> {
        let Some(mut child) = self.child.take() else { return Ok(None) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // An error means that the process is already gone, which the wait below sees.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOPPED_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait().map_err(Error::io("wait for the broker"))? {
                return Ok(Some(status));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        end(&mut child);
        Err(Error::NotStopped { target: self.options.target.name(), after: STOPPED_WITHIN })
    }

    /// SIGKILL: what a crash of the process looks like.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }

    /// The last lines of the broker's log, for a failure's report.
    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Keeps the data and log on disk after the broker is gone, and says where.
    pub fn keep(mut self) -> PathBuf {
        self.kill();
        let path = self.folder.path().to_path_buf();
        self.folder.disable_cleanup(true);
        path
    }

    /// Where clients first connect.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Where Corelane's metrics and health are.
    pub fn admin_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + self.options.shards))
    }

    fn launch_corelane(&mut self) -> Result<Instant> {
        let binary = match &self.options.binary {
            Some(binary) => binary.clone(),
            None => corelane_binary()?,
        };
        let mut command = Command::new(binary);
        command.arg("serve");
        for dir in self.data_dirs() {
            command.arg("--data-dir").arg(dir);
        }
        command.args(["--listen", &self.bootstrap()]);
        command.args(["--shards", &self.options.shards.to_string()]);
        // An older binary may not know the flag.
        if self.options.binary.is_none() {
            command.args(["--admin-port", &self.admin_address().port().to_string()]);
        }
        for (key, value) in &self.options.settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.args(&self.options.flags);
        let mut log = self.open_log()?;
        let errors = log.try_clone().map_err(Error::io("share broker.log"))?;
        let launched = self.spawn(command.stdout(Stdio::piped()).stderr(errors))?;
        self.said_ready = Arc::default();
        if let Some(stdout) = self.child.as_mut().and_then(|child| child.stdout.take()) {
            let said_ready = Arc::clone(&self.said_ready);
            // Ends when the broker closes its stdout.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                    // The log is for people; a full disk must not stop the reading.
                    let _ = writeln!(log, "{line}");
                    if line.trim() == "ready" {
                        said_ready.store(true, Ordering::Release);
                    }
                }
            });
        }
        Ok(launched)
    }

    fn launch_kafka(&mut self) -> Result<Instant> {
        let folder = self.folder.path();
        let mut command = kafka::prepare(folder, &self.data_dirs(), self.port, &self.options)?;
        let log = self.open_log()?;
        let errors = log.try_clone().map_err(Error::io("share broker.log"))?;
        self.spawn(command.stdout(log).stderr(errors))
    }

    fn open_log(&self) -> Result<File> {
        let path = self.log_file();
        File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(Error::io(format!("open {}", path.display())))
    }

    fn spawn(&mut self, command: &mut Command) -> Result<Instant> {
        let what = format!("start {}", Path::new(command.get_program()).display());
        let launched = Instant::now();
        self.child = Some(command.stdin(Stdio::null()).spawn().map_err(Error::io(what))?);
        Ok(launched)
    }

    fn wait_until(&mut self, ready: impl Fn(&Self) -> bool) -> Result<()> {
        let target = self.options.target.name();
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if ready(self) {
                return Ok(());
            }
            let ended = match self.child.as_mut() {
                Some(child) => child.try_wait().map_err(Error::io("wait for the broker"))?,
                None => None,
            };
            if let Some(status) = ended {
                self.child = None;
                return Err(Error::Died { target, status, tail: self.log_tail() });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.kill();
        Err(Error::NotReady { target, after: READY_WITHIN, tail: self.log_tail() })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// SIGKILL and reap. Errors mean that it is already gone.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The first of `count` consecutive ports that nobody listens on right now. Every call in this
/// process goes on where the last one ended, since a broker binds its ports only later; the first
/// start differs per process, so that suites side by side rarely try the same ones.
pub fn free_ports(count: u16) -> Result<u16> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(97)));
    let (width, span) = (u32::from(count), u32::from(PORTS.end - PORTS.start - count));
    (0..span / width)
        .filter_map(|_| u16::try_from(next.fetch_add(width, Ordering::Relaxed) % span).ok())
        .map(|offset| PORTS.start + offset)
        .find(|base| {
            let open = |offset| TcpListener::bind((Ipv4Addr::LOCALHOST, base + offset));
            // All of them are held until the last is known to be free.
            (0..count).map(open).collect::<std::io::Result<Vec<_>>>().is_ok()
        })
        .ok_or(Error::NoPorts { count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_skip_what_is_taken_and_what_was_just_given() {
        let base = free_ports(4).unwrap();
        // The run that would come next has one port taken.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 5));
        let other = free_ports(4).unwrap();
        assert!(other + 3 < base || other > base + 3, "{other} overlaps {base}");
        assert!(taken.is_err() || !(other..other + 4).contains(&(base + 5)), "{other} is taken");
    }
}
