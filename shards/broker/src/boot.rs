//! The life of a shard: start, serve, stop.
//!
//! Shard 0 surveys the disks, opens the metadata log, registers the shard nodes and tells the
//! others; each shard then opens its partitions and serves as they become ready. To stop, shard 0
//! tells the others, waits until every log is closed, and marks the directories as clean.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use meta::controller::{
    GROUP_VERSION, METADATA_VERSION, Registration, Restart, TRANSACTION_VERSION,
};
use meta::{Decision, Delta, Endpoint, Image, MetadataRecord, NodeId};
use reactor::sync::{Receiver, channel, oneshot};
use reactor::{Either, Task, TcpListener, race, spawn, timeout, yield_now};
use tracing::{info, warn};
use wire::Uuid;

use crate::controller::{CONTROLLER_QUEUE, Controller, Progress};
use crate::data_dirs::{DirState, health, paths, settle};
use crate::disk::{self, Checkpoints};
use crate::mesh::{Boot, Closed, ShardMessage};
use crate::metadata_log::MetadataLog;
use crate::partitions::CLOSE_WAIT;
use crate::pump::{self, Ends, Stopped};
use crate::shard::{CONTROLLER_SHARD, Shard};
use crate::{
    BrokerError, ShardStart, background, changes, groups, listener, metrics, transactions,
};

/// How long requests at hand may go on when the broker stops.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Kafka's default of 50 loses connections when thousands arrive at once; a queue is cheap.
const LISTEN_BACKLOG_MIN: u32 = 1024;
/// The listener that every shard has.
const LISTENER: &str = "PLAINTEXT";
/// Kafka's code of that security protocol.
const PLAIN_TEXT: i16 = 0;
/// Exit code of a process that a second signal ended, as shells have it for an interrupt.
const INTERRUPTED: i32 = 130;
/// Records that say where partitions are, committed together.
const SETTLED_RECORDS_MAX: usize = 10_000;
const STOP_POLL: Duration = Duration::from_millis(10);

/// Serves until the process is asked to end; returns after a clean shutdown.
///
/// # Errors
/// The shard could not start, or another shard of the process has ended.
pub async fn run(start: ShardStart) -> Result<(), BrokerError> {
    let address = start.listen;
    let backlog = start.config.socket_listen_backlog.max(LISTEN_BACKLOG_MIN);
    let listener = TcpListener::bind(address, backlog)
        .map_err(|source| BrokerError::Listen { address, source })?;
    if usize::from(start.shard) == CONTROLLER_SHARD {
        run_first(start, listener).await
    } else {
        run_other(start, listener).await
    }
}

async fn run_other(start: ShardStart, listener: TcpListener) -> Result<(), BrokerError> {
    let shard = Shard::new(start);
    keep_disks_apart(&shard);
    let (sender, receiver) = oneshot();
    let ends = Ends { boot: Some(sender), ..Ends::default() };
    let mut pump = spawn(pump::run(shard.clone(), ends));
    let Ok(boot) = receiver.await else { return Err(BrokerError::MeshClosed) };
    changes::take_over(&shard, &boot);
    groups::start(&shard);
    transactions::start(&shard);
    let accepting = spawn(listener::accept(shard.clone(), listener));
    changes::open_everything(&shard, &boot).await;
    background::start(&shard, None);
    let applied = ShardMessage::Applied { offset: boot.image.offset() };
    drop(boot);
    send_first(&shard, applied).await?;
    if let Either::Left(ended) = race(&mut pump, shard.stop_asked()).await {
        return ended;
    }
    let (entries, closed) = stop(&shard, accepting).await;
    send_first(&shard, ShardMessage::Stopped { entries, closed }).await
}

/// Each data directory's names wait in the queue of their own disk. Nobody waits for that: a disk may
/// hang.
fn keep_disks_apart(shard: &Shard) {
    for dir in shard.data_dirs().to_vec() {
        spawn(async move {
            if let Err(error) = reactor::fs::keep_apart(&dir).await {
                warn!("{} shares a queue with others: {error}", dir.display());
            }
        })
        .detach();
    }
}

async fn send_first(shard: &Shard, message: ShardMessage) -> Result<(), BrokerError> {
    shard.mesh.send(CONTROLLER_SHARD, message).await.map_err(|_| BrokerError::MeshClosed)
}

async fn run_first(mut start: ShardStart, listener: TcpListener) -> Result<(), BrokerError> {
    let ready = std::mem::replace(&mut start.ready, Box::new(|| {}));
    let registration = registration(&start);
    let base_port = start.listen.port();
    let shard = Shard::new(start);
    keep_disks_apart(&shard);
    metrics::start(&shard, base_port).await?;
    let (log, boot) = load(&shard, registration).await?;
    let shards = shard.mesh.shards();
    let progress = Rc::new(Progress::new(shards));
    let checkpoints = Rc::new(Checkpoints::new(shard.dirs.len()));
    let (stopped_sender, stopped) = channel(shards.max(1));
    let ends = Ends {
        boot: None,
        progress: Some(progress.clone()),
        checkpoints: Some(checkpoints.clone()),
        stopped: Some(stopped_sender),
    };
    let mut pump = spawn(pump::run(shard.clone(), ends));
    // What other shards ask of the controller waits until all of them stand where it does.
    let (queue, jobs) = channel(CONTROLLER_QUEUE);
    shard.controller.replace(Some(queue));
    tell_others(&shard, || ShardMessage::Boot(boot.clone())).await?;
    changes::take_over(&shard, &boot);
    groups::start(&shard);
    transactions::start(&shard);
    let accepting = spawn(listener::accept(shard.clone(), listener));
    changes::open_everything(&shard, &boot).await;
    let offset = boot.image.offset();
    drop(boot);
    if let Either::Left(ended) = race(&mut pump, progress.reached(offset)).await {
        return ended;
    }
    let controller = Controller { shard: shard.clone(), log, progress: progress.clone() };
    let mut controlling = spawn(controller.run(jobs));
    background::start(&shard, Some(checkpoints.clone()));
    shard.metrics.serving.set(true);
    // Listened for before `ready` is said: a signal right after it must be a clean end already.
    let asked_to_end = spawn(reactor::signal::termination());
    yield_now().await;
    ready();
    let no_metadata = shard.clone();
    let no_metadata = spawn(async move { no_metadata.dirs.metadata_dir_failed().await });
    let ended = race(race(&mut pump, &mut controlling), no_metadata);
    match race(ended, asked_to_end).await {
        // Nothing could be changed any more: half a broker never serves.
        Either::Left(Either::Right(reason)) => return Err(BrokerError::DataDirs(reason)),
        Either::Left(Either::Left(Either::Left(ended))) => return ended,
        Either::Left(Either::Left(Either::Right(ended))) => {
            return ended.and(Err(BrokerError::MeshClosed));
        }
        Either::Right(Ok(signal)) => info!("{signal:?}: shutting down"),
        Either::Right(Err(source)) => return Err(BrokerError::Signals(source)),
    }
    spawn(end_at_once()).detach();
    stop_all(&shard, accepting, (controlling, &progress), stopped, checkpoints).await
}

/// A second signal comes from an operator who will not wait. What was acknowledged is safe, as after
/// any crash; the next start has something to recover.
async fn end_at_once() {
    if reactor::signal::termination().await.is_ok() {
        warn!("a second signal: ending at once");
        std::process::exit(INTERRUPTED);
    }
}

/// What this host's shards register as.
fn registration(start: &ShardStart) -> Registration {
    let endpoint = |(host, port): &(String, u16)| Endpoint {
        listener: LISTENER.to_owned(),
        host: host.clone(),
        port: *port,
        protocol: PLAIN_TEXT,
    };
    let mut incarnation = [0; 16];
    reactor::fill_random(&mut incarnation);
    Registration {
        broker_id: start.broker_id,
        incarnation: Uuid(incarnation),
        rack: start.config.rack.clone(),
        shards: start.advertised.iter().map(|address| vec![endpoint(address)]).collect(),
        // Known once the disks were looked at.
        restart: Restart::Unclean,
    }
}

/// Reads the metadata back, registers this host's shards and surveys its disks.
async fn load(
    shard: &Rc<Shard>,
    mut registration: Registration,
) -> Result<(MetadataLog, Arc<Boot>), BrokerError> {
    let dirs = &shard.dirs;
    let surveys = disk::survey(dirs).await;
    let metadata_number = disk::metadata_dir(dirs, &surveys).await?;
    dirs.set_metadata_dir(metadata_number);
    let metadata_dir = dirs.path(metadata_number).unwrap_or(Path::new("."));
    for number in dirs.usable() {
        health::prepare(shard, number).await;
    }
    let clean = surveys.len() == dirs.len() && surveys.iter().all(|survey| survey.clean);
    let now_ms = reactor::wall_clock_ms();
    let shared = &shard.log_shared;
    let (log, mut image) =
        MetadataLog::open(shared, metadata_dir, shard.cluster_id(), now_ms).await?;
    registration.restart = if clean { Restart::Clean } else { Restart::Unclean };
    register(shard, &mut image, &log, &registration).await?;
    paths::settle(dirs, metadata_dir, &image).await;
    let settled = settle::at_start(dirs, &surveys, &image, &log, shard.broker_id()).await?;
    for records in settled.records.chunks(SETTLED_RECORDS_MAX) {
        commit(&mut image, &log, records.to_vec()).await?;
    }
    let failed = (0..dirs.len()).filter_map(|number| match dirs.state(number) {
        DirState::Failed(reason) => Some((number, reason.to_string())),
        DirState::Online | DirState::Full => None,
    });
    let failed = failed.collect();
    let deleted = log.take_deleted();
    let boot = Boot { image, deleted, found: settled.found, lost: settled.lost, failed };
    Ok((log, Arc::new(boot)))
}

async fn register(
    shard: &Rc<Shard>,
    image: &mut Image,
    log: &MetadataLog,
    registration: &Registration,
) -> Result<(), BrokerError> {
    // A level that was taken away stays away.
    let is_new = image.features().is_empty();
    let levels = match is_new {
        true => vec![GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION],
        false => vec![METADATA_VERSION],
    };
    let features = manager(shard, image, |m| m.set_features(&levels));
    commit(image, log, features.records).await?;
    let decision = manager(shard, image, |m| m.register_broker(registration));
    if let Err(failure) = decision.outcome {
        return Err(BrokerError::MetadataLog(failure.message));
    }
    commit(image, log, decision.records).await
}

fn manager<T>(
    shard: &Shard,
    image: &Image,
    decide: impl FnOnce(meta::Controller<'_>) -> Decision<T>,
) -> Decision<T> {
    let config = shard.config();
    decide(meta::Controller {
        image,
        config: &config,
        fixed: shard.static_config(),
        node: NodeId(shard.node_id()),
    })
}

/// A start goes on without space: what it changes holds, and is written when there is some.
async fn commit(
    image: &mut Image,
    log: &MetadataLog,
    records: Vec<MetadataRecord>,
) -> Result<(), BrokerError> {
    if records.is_empty() {
        return Ok(());
    }
    let base_offset = log.commit_or_keep(&records, reactor::wall_clock_ms()).await?;
    image.apply_delta(&Delta { base_offset, records: records.into() })?;
    Ok(())
}

async fn tell_others(shard: &Shard, message: impl Fn() -> ShardMessage) -> Result<(), BrokerError> {
    for other in 1..shard.mesh.shards() {
        shard.mesh.send(other, message()).await.map_err(|_| BrokerError::MeshClosed)?;
    }
    Ok(())
}

/// Stops serving: no new connections, requests at hand get a moment, then every log is closed.
async fn stop(shard: &Rc<Shard>, accepting: Task<()>) -> Stopped {
    shard.ask_to_stop();
    drop(accepting);
    let give_up = reactor::now() + STOP_GRACE;
    while shard.produces_waiting.get() > 0 && reactor::now() < give_up {
        reactor::sleep(STOP_POLL).await;
    }
    shard.connections.close_all();
    shard.partitions.close_all().await
}

async fn stop_all(
    shard: &Rc<Shard>,
    accepting: Task<()>,
    (controlling, progress): (Task<Result<MetadataLog, BrokerError>>, &Progress),
    mut stopped: Receiver<Stopped>,
    checkpoints: Rc<Checkpoints>,
) -> Result<(), BrokerError> {
    tell_others(shard, || ShardMessage::Stop).await?;
    let (entries, Closed { mut clean, mut failed }) = stop(shard, accepting).await;
    checkpoints.note(shard.id(), entries);
    for number in 1..shard.mesh.shards() {
        let Some((entries, closed)) = stopped.recv().await else { break };
        checkpoints.note(number, entries);
        clean &= closed.clean;
        failed += closed.failed;
    }
    // A change that was under way waits for them no longer; what it changed is in the log.
    progress.end();
    clean &= checkpoints.write(shard).await;
    // Closes the controller's queue, which ends it once what is in it is done.
    shard.controller.replace(None);
    // A change that is under way may wait for a disk that hangs.
    let closing = async { controlling.await?.close().await };
    match timeout(CLOSE_WAIT, closing).await {
        Ok(closed) => clean &= closed?,
        Err(_) => {
            warn!("not closed: the metadata log; its disk has not answered");
            (clean, failed) = (false, failed + 1);
        }
    }
    if clean {
        disk::mark_clean(&shard.dirs).await;
    }
    if failed > 0 {
        return Err(BrokerError::NotClosed(failed));
    }
    Ok(())
}
