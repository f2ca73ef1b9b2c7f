//! Moving a partition from one data directory to another while it is written and read.
//!
//! ```text
//!  a/t-0 ──passes──► b/t-0.<hex>-future      served from a; the log knows nothing of the copy
//!  a/t-0 closed ───► the copy is made whole  requests wait: for little that is left to copy
//!  metadata: t-0 is in b                     ◄── from here on the copy is the partition
//!  b/t-0.<hex>-future becomes b/t-0          served from b
//!  a/t-0 becomes a/t-0.<hex>-delete          and goes
//! ```
//! A crash before the metadata says so leaves a copy that the next start removes; after it, one that
//! the next start gives its name (`settle.rs`). There is one good copy at every moment. Before the
//! metadata says so the old folder says where it is about to go (`corelane.moved`): if that is where the
//! partition is then, the folder is what the move left behind, and a start removes it.
//!
//! What does not fit above the mark of `Full` is refused, and a copy that meets the mark is given up. So is
//! one of a log that is written faster than it may be copied. Nothing is compacted while it is copied.
//!
//! Lives on the shard that leads the partition. Moves of one shard run one after the other, in the
//! background class.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use log::{Cancel, Relocation};
use reactor::sync::{Notify, Semaphore};
use reactor::{Class, Either, fs, race, spawn_in};
use tracing::{info, warn};
use wire::{ErrorCode, Uuid};

use super::made::{checked, end_line};
use super::{DirState, settle};
use crate::control::ControlRequest;
use crate::partition::Partition;
use crate::shard::Shard;

/// With fewer bytes left to copy the log is closed.
const CLOSE_AT_BYTES: u64 = 4 << 20;
/// A log that is written about as fast as it is copied is closed after so many passes all the same...
const PASSES_MAX: usize = 64;
/// ...unless more than this is left, for which requests would have to wait.
const CLOSE_AT_MOST_BYTES: u64 = 128 << 20;
/// Times a copy is begun anew because the log was opened anew meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// In the old folder of a partition that is about to be elsewhere: `moved <directory id> <CRC-32C>`.
const MOVED: &str = "corelane.moved";

async fn note_moved(folder: &Path, to: Uuid) -> std::io::Result<()> {
    let mut line = String::new();
    end_line(format!("moved {to}"), &mut line);
    fs::write_atomic(&folder.join(MOVED), line.into_bytes()).await
}

/// Where a move has brought the partition that this folder was the home of, if one has.
pub(crate) async fn moved_to(folder: &Path) -> Option<Uuid> {
    let bytes = fs::read(&folder.join(MOVED)).await.ok()?;
    checked(bytes.strip_suffix(b"\n")?)?.strip_prefix("moved ")?.parse().ok()
}

/// The moves of one shard.
#[derive(Default)]
pub(crate) struct Moves {
    by_partition: RefCell<BTreeMap<(Uuid, i32), Rc<Move>>>,
    turn: Turn,
    /// Moves that ended since the start, and those of them that failed.
    pub finished: Cell<u64>,
    pub failed: Cell<u64>,
}

struct Turn(Semaphore);

impl Default for Turn {
    fn default() -> Self {
        Turn(Semaphore::new(1))
    }
}

/// One partition on its way.
pub(crate) struct Move {
    pub target: usize,
    /// Of the log when the move was asked for.
    size_bytes: u64,
    pub copied_bytes: Cell<u64>,
    pub next_offset: Cell<i64>,
    is_cancelled: Cell<bool>,
    changed: Notify,
}

impl Moves {
    pub fn of(&self, key: (Uuid, i32)) -> Option<Rc<Move>> {
        self.by_partition.borrow().get(&key).cloned()
    }

    pub fn count(&self) -> usize {
        self.by_partition.borrow().len()
    }

    /// Ends a move that is still copying, if there is one: the partition stays where it is.
    fn cancel(&self, key: (Uuid, i32)) {
        if let Some(moving) = self.by_partition.borrow_mut().remove(&key) {
            moving.is_cancelled.set(true);
            moving.changed.notify_all();
        }
    }

    /// Bytes that moves still bring to a directory.
    fn coming_to(&self, target: usize) -> u64 {
        let moves = self.by_partition.borrow();
        let left = |moving: &Rc<Move>| moving.size_bytes.saturating_sub(moving.copied_bytes.get());
        moves.values().filter(|moving| moving.target == target).map(left).sum()
    }

    /// Takes a move off the list, unless another has taken its place.
    fn end(&self, key: (Uuid, i32), moving: &Rc<Move>) {
        let mut moves = self.by_partition.borrow_mut();
        if moves.get(&key).is_some_and(|current| Rc::ptr_eq(current, moving)) {
            moves.remove(&key);
        }
    }
}

impl Move {
    async fn cancelled(&self) {
        while !self.is_cancelled.get() {
            self.changed.notified().await;
        }
    }
}

/// Begins to move a partition to a data directory; done already if it is there. A move elsewhere is
/// given up for it.
///
/// # Errors
/// `LOG_DIR_NOT_FOUND` (57) if no directory has this path, `KAFKA_STORAGE_ERROR` (56) if it or the
/// partition's own cannot be used, or has too little space, `REPLICA_NOT_AVAILABLE` (9) if the partition
/// is not here.
pub(crate) fn begin(
    shard: &Rc<Shard>,
    path: &str,
    partition: Option<Result<Rc<Partition>, ErrorCode>>,
) -> Result<(), ErrorCode> {
    let target = shard.dirs.by_path(path).ok_or(ErrorCode::LogDirNotFound)?;
    match shard.dirs.state(target) {
        DirState::Online => {}
        DirState::Full | DirState::Failed(_) => return Err(ErrorCode::KafkaStorageError),
    }
    let partition = partition.ok_or(ErrorCode::ReplicaNotAvailable)??;
    let key = (partition.topic_id, partition.index);
    if shard.moves.of(key).is_some_and(|moving| moving.target == target) {
        return Ok(());
    }
    if partition.dir_number == target {
        shard.moves.cancel(key);
        return Ok(());
    }
    let size_bytes = partition.log.size_bytes();
    if let Err(reason) = check_space(shard, target, size_bytes, shard.moves.coming_to(target)) {
        warn!("{}-{} is not moved to {path}: {reason}", partition.topic, partition.index);
        return Err(ErrorCode::KafkaStorageError);
    }
    shard.moves.cancel(key);
    let moving = Rc::new(Move {
        target,
        size_bytes,
        copied_bytes: Cell::new(0),
        next_offset: Cell::new(0),
        is_cancelled: Cell::new(false),
        changed: Notify::new(),
    });
    shard.moves.by_partition.borrow_mut().insert(key, moving.clone());
    spawn_in(Class::Background, run(shard.clone(), key, moving)).detach();
    Ok(())
}

/// Whether so much fits into a directory beside what other moves bring there, as far as that is known: what
/// others write there is found out about while it is copied.
fn check_space(shard: &Shard, target: usize, size_bytes: u64, coming: u64) -> Result<(), String> {
    let Some(space) = shard.dirs.space(target) else { return Ok(()) };
    let kept = shard.dirs.kept_by_moves(target);
    match space.available.saturating_sub(kept).saturating_sub(coming) >= size_bytes {
        true => Ok(()),
        false => Err(format!(
            "it has {size_bytes} bytes; of {} that are free there {kept} are left to others, and {coming} \
             are for other moves",
            space.available
        )),
    }
}

async fn run(shard: Rc<Shard>, key: (Uuid, i32), moving: Rc<Move>) {
    let turn = race(shard.moves.turn.0.acquire(1), moving.cancelled()).await;
    let Either::Left(_turn) = turn else { return };
    for _ in 0..ATTEMPTS_MAX {
        let open = shard.open_partitions();
        let here = open.into_iter().find(|p| (p.topic_id, p.index) == key);
        let Some(partition) = here else { break };
        let name = format!("{}-{}", partition.topic, partition.index);
        let to = shard.dirs.path(moving.target).map(Path::to_owned).unwrap_or_default();
        match relocate(&shard, &moving, &partition, &to).await {
            Ok(()) => {
                info!("moved {name} to {}", to.display());
                shard.moves.finished.set(shard.moves.finished.get() + 1);
                break;
            }
            Err(reason) if moving.is_cancelled.get() || shard.is_stopping() => {
                info!("the move of {name} to {} was given up: {reason}", to.display());
                break;
            }
            Err(reason) => {
                warn!("could not move {name} to {}: {reason}", to.display());
                shard.moves.failed.set(shard.moves.failed.get() + 1);
                // A log that was opened anew meanwhile is worth another attempt.
                if shard.partitions.serves(&partition) || shard.dirs.is_failed(moving.target) {
                    break;
                }
            }
        }
    }
    shard.moves.end(key, &moving);
}

async fn relocate(
    shard: &Rc<Shard>,
    moving: &Rc<Move>,
    partition: &Rc<Partition>,
    to: &Path,
) -> Result<(), String> {
    let name = log::partition_dir_name(&partition.topic, partition.index);
    check_space(shard, moving.target, partition.log.size_bytes(), 0)?;
    let unique = [reactor::random_u64(), reactor::random_u64()];
    let own_name = log::future_dir_name(&name, unique);
    if log::parse_future_dir_name(&own_name) != Some(name.as_str()) {
        return Err("the topic's name is too long for the copy's folder".to_owned());
    }
    settle::remove_copies(to, &name).await.map_err(|error| {
        format!("an earlier copy is in the way and could not be removed: {error}")
    })?;
    let future = to.join(own_name);
    let copied = copy(shard, moving, partition, future.clone()).await;
    let relocation = match copied {
        Ok(relocation) => relocation,
        Err(reason) => return give_up(&future, &reason).await,
    };
    let Some(paused) = shard.partitions.pause(partition) else {
        return give_up(&future, "the partition was taken out of service").await;
    };
    // From here on nobody writes or reads; however this ends, the partition is resumed.
    let own = to.join(&name);
    let mut decided = decide(shard, moving, partition, relocation, (&own, &paused.cancel)).await;
    let mut home = match &decided {
        Decided::Moved => take_place(shard, partition, (&future, &own)).await,
        Decided::Unknown(_) => None,
        Decided::Stays(_) => Some(partition.dir_number),
    };
    let mut out_of_place = None;
    if home.is_none() && matches!(decided, Decided::Moved) {
        // Where it is recorded is nothing now, and must not be begun anew: back to the old copy.
        let back = assign(shard, partition, partition.dir_number, &paused.cancel).await;
        if matches!(back, Decided::Moved) {
            home = Some(partition.dir_number);
            decided = Decided::Stays("the copy could not take its place".to_owned());
            out_of_place = Some(own);
        }
    }
    if home == Some(moving.target) {
        shard.moves.end((partition.topic_id, partition.index), moving);
    }
    shard.partitions.resume(shard, &paused, partition, home);
    if let Some(own) = out_of_place {
        leave_place(partition, (&future, &own)).await;
    }
    match decided {
        Decided::Stays(reason) => {
            // Left there, it would say what is not so; until the partition is elsewhere nobody asks.
            let note = partition.log.dir().join(MOVED);
            let _ = fs::remove_file(&note).await;
            give_up(&future, &reason).await
        }
        Decided::Unknown(reason) => Err(reason),
        Decided::Moved if home.is_none() => {
            Err("the copy could not take its place yet; the next start sees to it".to_owned())
        }
        Decided::Moved => Ok(()),
    }
}

/// What became of a copy.
enum Decided {
    /// The metadata says that the copy is the partition.
    Moved,
    /// The partition is where it was.
    Stays(String),
    /// The next start does what the metadata says.
    Unknown(String),
}

/// Closes the log, makes the copy whole and has it recorded. The log is closed when this returns, unless its
/// directory has failed: who opens the partition next must not meet it at its files.
async fn decide(
    shard: &Rc<Shard>,
    moving: &Rc<Move>,
    partition: &Rc<Partition>,
    relocation: Relocation,
    (own, cancel): (&Path, &Cancel),
) -> Decided {
    let from_failed = || shard.dirs.failed(partition.dir_number);
    match race(partition.log.clone().close(), from_failed()).await {
        Either::Left(Ok(_)) => {}
        Either::Left(Err(error)) => return Decided::Stays(error.to_string()),
        Either::Right(()) => {
            partition.log.fail("the data directory has failed");
            return Decided::Stays("its directory has failed".to_owned());
        }
    }
    let finishing = async {
        relocation.finish().await.map_err(|error| error.to_string())?;
        if fs::exists(own).await.map_err(|error| error.to_string())? {
            return Err(format!("{} is in the way; move it away", own.display()));
        }
        let to = shard.dirs.id(moving.target).ok_or("the directory is gone")?;
        note_moved(&partition.log.dir(), to).await.map_err(|error| error.to_string())
    };
    let failed = race(from_failed(), shard.dirs.failed(moving.target));
    // Nobody waits for a copy that takes its time.
    let unwanted = race(cancel.cancelled(), shard.stop_asked());
    match race(finishing, race(failed, unwanted)).await {
        Either::Left(Ok(())) => {}
        Either::Left(Err(reason)) => return Decided::Stays(reason),
        Either::Right(_) => {
            let reason = "a directory has failed, or the partition goes elsewhere";
            return Decided::Stays(reason.to_owned());
        }
    }
    assign(shard, partition, moving.target, cancel).await
}

/// Has it recorded that the partition is in a directory.
async fn assign(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    target: usize,
    cancel: &Cancel,
) -> Decided {
    let epoch = {
        let image = shard.image();
        let topic = image.topic_by_id(partition.topic_id);
        topic.and_then(|topic| topic.partition(partition.index)).map(|state| state.partition_epoch)
    };
    let (Some(directory), Some(partition_epoch)) = (shard.dirs.id(target), epoch) else {
        return Decided::Stays("the partition or the directory is gone".to_owned());
    };
    if cancel.is_cancelled() {
        return Decided::Stays("the partition goes elsewhere".to_owned());
    }
    let request = ControlRequest::AssignDirectory {
        topic_id: partition.topic_id,
        partition: partition.index,
        partition_epoch,
        directory,
    };
    match race(shard.control(request), cancel.cancelled()).await {
        Either::Left(reply) => match reply.directory_assigned() {
            Ok(()) => Decided::Moved,
            Err(failure) => Decided::Stays(failure.message),
        },
        // Whether the metadata still changes is not known.
        Either::Right(_) if shard.is_stopping() => Decided::Unknown("the broker stops".to_owned()),
        // It does not: the partition has changed, and the controller looks at that.
        Either::Right(_) => Decided::Stays("the partition goes elsewhere".to_owned()),
    }
}

/// Copies until little is left.
async fn copy(
    shard: &Rc<Shard>,
    moving: &Rc<Move>,
    partition: &Rc<Partition>,
    future: PathBuf,
) -> Result<Relocation, String> {
    let ended = || {
        let failed = race(shard.dirs.failed(moving.target), moving.cancelled());
        race(failed, shard.stop_asked())
    };
    let given_up = || "it was cancelled, or the directory has failed".to_owned();
    let keep_free = shard.dirs.kept_by_moves(moving.target);
    let begin = Relocation::begin(partition.log.clone(), future, keep_free);
    let mut relocation = match race(begin, ended()).await {
        Either::Left(begun) => begun.map_err(|error| error.to_string())?,
        Either::Right(_) => return Err(given_up()),
    };
    let pace = || match shard.config().replica_alter_log_dirs_io_max_bytes_per_second {
        0 | i64::MAX => None,
        limit => u64::try_from(limit).ok(),
    };
    for pass in 1.. {
        let copied = match race(relocation.pass(&pace), ended()).await {
            Either::Left(copied) => copied.map_err(|error| error.to_string())?,
            Either::Right(_) => return Err(given_up()),
        };
        moving.copied_bytes.set(relocation.copied_bytes());
        moving.next_offset.set(relocation.next_offset());
        match next_step(pass, copied) {
            Step::Close => break,
            Step::Again => {}
            Step::GiveUp => {
                return Err("it is written faster than it may be copied: see \
                     replica.alter.log.dirs.io.max.bytes.per.second"
                    .to_owned());
            }
        }
    }
    Ok(relocation)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Again,
    Close,
    GiveUp,
}

/// What follows a pass, by its number and the bytes that it had to copy: about as many were written
/// meanwhile.
fn next_step(pass: usize, copied: u64) -> Step {
    match pass < PASSES_MAX {
        _ if copied <= CLOSE_AT_BYTES => Step::Close,
        true => Step::Again,
        false if copied <= CLOSE_AT_MOST_BYTES => Step::Close,
        false => Step::GiveUp,
    }
}

/// A copy that may have taken its place, where the metadata does not say any more that it is the partition,
/// would be in the way of the next move.
async fn leave_place(partition: &Partition, (future, own): (&Path, &Path)) {
    let its_own = log::checkpoints::read_partition_metadata(own).await;
    if !matches!(its_own, Ok(Some(topic_id)) if topic_id == partition.topic_id) {
        return;
    }
    if let Err(error) = fs::rename(own, future).await {
        warn!("{} stays until the next start: {error}", own.display());
    }
}

async fn give_up(future: &Path, reason: &str) -> Result<(), String> {
    match fs::remove_dir_all(future).await {
        // It may never have been made.
        Err(error) if error.kind() != ErrorKind::NotFound => {
            warn!("{} stays until the next start: {error}", future.display());
        }
        Ok(()) | Err(_) => {}
    }
    Err(reason.to_owned())
}

/// The metadata says that the copy is the partition: it gets its name, and the old one goes. Returns
/// the directory to open it in.
async fn take_place(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    (future, own): (&Path, &Path),
) -> Option<usize> {
    let named = async {
        fs::rename(future, own).await?;
        match own.parent() {
            Some(parent) => fs::sync_dir(parent).await,
            None => Ok(()),
        }
    };
    if let Err(error) = named.await {
        warn!("{} could not take its place: {error}", future.display());
        return None;
    }
    if let Err(error) = partition.log.clone().delete().await {
        // Under its name it would be in the way of a move back.
        let again = shard.log_shared.delete_dir(&partition.log.dir(), Duration::ZERO).await;
        if again.is_err() {
            warn!("the old copy of {} stays until the next start: {error}", own.display());
        }
    }
    let is_gone = shard.image().topic_by_id(partition.topic_id).is_none();
    if is_gone && let Err(error) = fs::remove_dir_all(own).await {
        warn!("{} is of a deleted topic and stays until the next start: {error}", own.display());
    }
    shard.dirs.holding(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_closed_when_little_is_left_and_never_when_much_is() {
        let table = [
            (1, CLOSE_AT_BYTES, Step::Close),
            (1, CLOSE_AT_BYTES + 1, Step::Again),
            (PASSES_MAX - 1, u64::MAX, Step::Again),
            (PASSES_MAX, 0, Step::Close),
            (PASSES_MAX, CLOSE_AT_MOST_BYTES, Step::Close),
            (PASSES_MAX, CLOSE_AT_MOST_BYTES + 1, Step::GiveUp),
        ];
        for (pass, copied, step) in table {
            assert_eq!(next_step(pass, copied), step, "pass {pass}, {copied} bytes");
        }
    }
}
