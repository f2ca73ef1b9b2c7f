//! The shards' threads: started together, watched together, ended together.
//!
//! Owns the rule that half a broker never serves: when any shard ends otherwise than in a clean
//! shutdown, the process ends with a reason and a code. A panic ends it where it happens (the panic
//! hook in `main.rs`). Lives on the main thread, which blocks here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use broker::{BrokerError, DataDirStart, MESH_CAPACITY, ShardStart};
use log::LogError;
use reactor::ShardSpec;

use crate::config::{Resolved, Settings};
use crate::error::{Error, Result, plain, say};

/// After the first shard has ended cleanly, the others have so long to do the same. Longer than they wait
/// for disks that hang (a minute without a close, half a minute for checkpoints, a minute for the metadata
/// log): theirs is the word that says what was not closed.
const STOP_WAIT: Duration = Duration::from_secs(240);

/// Everything that is decided before the first shard runs.
pub struct Plan {
    pub broker_id: i32,
    pub cluster_id: String,
    /// Where each shard listens.
    pub addresses: Vec<SocketAddr>,
    pub resolved: Resolved,
    pub settings: Settings,
    pub data_dirs: Vec<DataDirStart>,
}

/// What a shard's thread tells this one. Bounded: each shard sends one, shard 0 two.
enum Event {
    Ready,
    Ended { shard: usize, end: End },
}

enum End {
    Returned(std::result::Result<(), Failure>),
    /// The ring could not be made; the thread's own result says why.
    NeverRan,
}

/// Why a shard ended, in words: a broker's error may hold what cannot leave its thread.
struct Failure {
    error: Error,
    /// It only noticed that another shard is gone.
    victim: bool,
}

type Thread = JoinHandle<std::io::Result<()>>;

/// Runs all shards until the broker is asked to end, or one of them fails.
pub fn run(plan: Plan) -> Result<()> {
    let (sender, events) = channel();
    let threads = start(plan, &sender)?;
    drop(sender);
    watch(&events, threads)
}

/// Submissions that a shard's ring takes at once; the ring gets smaller by itself where locked memory
/// is short.
const RING_ENTRIES: u32 = 2048;

fn start(plan: Plan, events: &Sender<Event>) -> Result<Vec<Thread>> {
    let Plan { broker_id, cluster_id, addresses, resolved, settings, data_dirs } = plan;
    let shards = addresses.len();
    let of_shard = |shard| settings.advertised.of_shard(shard).map(|e| (e.host, e.port));
    let advertised: Vec<(String, u16)> = (0..shards).map_while(of_shard).collect();
    let config = Arc::new(resolved.broker);
    let keys = Arc::new(resolved.keys);
    let meshes = reactor::mesh(shards, MESH_CAPACITY);
    let mut threads = Vec::with_capacity(shards);
    for (shard, (listen, mesh)) in addresses.into_iter().zip(meshes).enumerate() {
        let ready = events.clone();
        let number = |n: usize| u16::try_from(n).map_err(|_| Error::internal("too many shards"));
        let start = ShardStart {
            shard: number(shard)?,
            shards: number(shards)?,
            broker_id,
            cluster_id: cluster_id.clone(),
            listen,
            advertised: advertised.clone(),
            data_dirs: data_dirs.clone(),
            config: Arc::clone(&config),
            static_config: Arc::clone(&keys),
            memory_bytes: usize::try_from(settings.memory_bytes).unwrap_or(usize::MAX),
            mesh,
            // A main thread that is gone takes the process with it.
            ready: Box::new(move || drop(ready.send(Event::Ready))),
        };
        let spec = ShardSpec {
            name: format!("shard-{shard}"),
            cpu: settings.cpus.as_ref().and_then(|cpus| cpus.get(shard).copied()),
            spin: settings.spin,
            ring_entries: RING_ENTRIES,
        };
        let last_word = LastWord { events: events.clone(), shard, end: End::NeverRan };
        let main = move || async move {
            let result = broker::run(start).await;
            let result = result.map_err(|error| Failure {
                victim: matches!(error, BrokerError::MeshClosed),
                error: reason(shard, &error),
            });
            last_word.say(End::Returned(result));
        };
        let thread = settings.backend.spawn_shard(spec, main).map_err(|error| {
            let what = format!("cannot start the thread of shard {shard}: {}", plain(&error));
            Error::machine(what, "raise the limit of processes (`ulimit -u`)")
        })?;
        threads.push(thread);
    }
    Ok(threads)
}

/// Reports the end of a shard whichever way it comes: also when its main never got to run.
struct LastWord {
    events: Sender<Event>,
    shard: usize,
    end: End,
}

impl LastWord {
    fn say(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        let end = std::mem::replace(&mut self.end, End::NeverRan);
        // A main thread that is gone takes the process with it.
        let _ = self.events.send(Event::Ended { shard: self.shard, end });
    }
}

fn watch(events: &Receiver<Event>, mut threads: Vec<Thread>) -> Result<()> {
    let mut running = threads.len();
    let mut stopping = false;
    while running > 0 {
        let event = if stopping {
            events.recv_timeout(STOP_WAIT).map_err(|_| {
                let seconds = STOP_WAIT.as_secs();
                Error::internal(format!("{running} shards did not stop within {seconds} s"))
            })?
        } else {
            events.recv().map_err(|_| Error::internal("all shards are gone"))?
        };
        match event {
            Event::Ready => say("ready\n"),
            Event::Ended { end: End::Returned(Ok(())), .. } => {
                stopping = true;
                running -= 1;
            }
            Event::Ended { end: End::Returned(Err(failure)), .. } => {
                return Err(culprit(failure, events));
            }
            Event::Ended { shard, end: End::NeverRan } => {
                return Err(never_ran(shard, threads.swap_remove(shard)));
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// The first to end is often only a victim: if another has a reason of its own, that is the reason.
fn culprit(first: Failure, events: &Receiver<Event>) -> Error {
    /// The culprit's own end is on its way when its victims notice.
    const CULPRIT_WAIT: Duration = Duration::from_millis(500);
    let mut failure = first;
    while failure.victim {
        match events.recv_timeout(CULPRIT_WAIT) {
            Ok(Event::Ended { end: End::Returned(Err(other)), .. }) => failure = other,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    failure.error
}

fn reason(shard: usize, error: &BrokerError) -> Error {
    match error {
        BrokerError::Listen { address, source } => Error::machine(
            format!("shard {shard} cannot listen on {address}: {}", plain(source)),
            "choose another --listen",
        ),
        BrokerError::AdminListen { address, source } => Error::machine(
            format!("cannot listen on {address} for metrics: {}", plain(source)),
            "choose another --admin-port",
        ),
        BrokerError::DataDir { dir, source } => Error::machine(
            format!("shard {shard} cannot use {}: {}", dir.display(), plain(source)),
            "give the user of this process access to it, or name another --data-dir",
        ),
        BrokerError::DataDirs(reason) => Error::data_dir(reason, ""),
        BrokerError::FoundTwice { .. } => Error::data_dir(error.to_string(), ""),
        BrokerError::Log(damage @ LogError::Corrupt { .. }) => {
            Error::data_dir(damage.to_string(), "put its folder back from a copy")
        }
        BrokerError::NotClosed(_) => Error::data_dir(
            error.to_string(),
            "the lines above say why; the next start recovers what was acknowledged",
        ),
        other => Error::internal(format!("shard {shard} has ended: {other}")),
    }
}

fn never_ran(shard: usize, thread: Thread) -> Error {
    let reason = match thread.join() {
        Ok(Err(error)) => plain(&error),
        Ok(Ok(())) => "its main was dropped".to_owned(),
        Err(_) => "its thread panicked".to_owned(),
    };
    Error::machine(
        format!("shard {shard} could not start: {reason}"),
        "start fewer shards (--shards), or raise the locked-memory limit (`ulimit -l`)",
    )
}
