//! Watching the directories: one task for each on every shard, so that one that hangs holds up
//! nobody else. A directory fails when it does not answer, is not itself any more, or cannot be
//! written after something went wrong there; it comes back when shard 0 can write it again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs, race, timeout};
use smallvec::smallvec;
use tracing::{debug, error, info, warn};
use wire::Uuid;

use super::space::{Level, Marks};
use super::{DirNews, identity, reserve};
use crate::mesh::ShardMessage;
use crate::shard::{CONTROLLER_SHARD, Shard};
use crate::{background, changes, disk};

/// How often a directory is looked at: its space, and whether it still is there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The same while it has little space: a fast disk fills what is left in no time.
const LOOK_EVERY_LOW: Duration = Duration::from_millis(250);
/// How often one that failed is tried.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// One that does not answer a look or a probe for so long has failed, if it is the disk that takes the
/// time: a shard that is busy is late itself.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// The last part of that time begins when the shard sees that the rest is over: one that stood
/// still itself takes in what was answered meanwhile. One operation takes less where the disk answers.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// For so long a producer waits for a look at the space.
const LOOK_WAIT: Duration = Duration::from_millis(500);
/// Retention of a directory that has little space.
const RETAIN_EVERY: Duration = Duration::from_secs(3);
/// A partition that fails again and again is opened again ever more rarely.
const REOPEN_MAX: Duration = Duration::from_secs(60);
/// What the probe writes and reads back.
const PROBE_BYTES: usize = 4096;

/// Starts a task for each directory; they end with the shard.
pub(crate) fn start(shard: &Rc<Shard>) {
    for number in 0..shard.dirs.len() {
        reactor::spawn(watch(shard.clone(), number)).detach();
    }
}

/// At start, before anything is written: learns the space of a directory, and lets go of the
/// reserve of one that has none.
pub(crate) async fn prepare(shard: &Rc<Shard>, number: usize) {
    let Some(path) = shard.dirs.path(number) else { return };
    let prepared = async {
        reserve::settle(path).await?;
        fs::space(path).await
    };
    match answered(path, prepared).await {
        Ok(Ok(space)) => note_space(shard, number, space),
        Ok(Err(error)) => drop(shard.dirs.fail(number, &error.to_string())),
        Err(reason) => drop(shard.dirs.fail(number, &reason)),
    }
}

/// What a directory answers, or the reason why it has failed.
async fn answered<F: Future>(dir: &Path, asked: F) -> Result<F::Output, String> {
    let mut asked = pin!(asked);
    if let Ok(answer) = timeout(ANSWER_WAIT - LAST_WAIT, asked.as_mut()).await {
        return Ok(answer);
    }
    loop {
        if let Ok(answer) = timeout(LAST_WAIT, asked.as_mut()).await {
            return Ok(answer);
        }
        if fs::oldest_operation(dir).is_some_and(|age| age >= LAST_WAIT) {
            return Err(format!("it has not answered for {} s", ANSWER_WAIT.as_secs()));
        }
    }
}

async fn watch(shard: Rc<Shard>, number: usize) {
    let mut mending = Mending::default();
    loop {
        if shard.is_stopping() {
            return;
        }
        look_after(&shard, number, &mut mending).await;
        wait(&shard, number).await;
    }
}

async fn look_after(shard: &Rc<Shard>, number: usize, mending: &mut Mending) {
    if shard.dirs.is_failed(number) {
        if shard.id() == CONTROLLER_SHARD {
            try_again(shard, number).await;
        }
        return;
    }
    let Some(path) = shard.dirs.path(number) else { return };
    let looked = answered(path, look(shard, number)).await;
    match looked.and_then(|looked| looked) {
        Ok(()) => mend(shard, number, mending),
        Err(reason) => announce_failure(shard, number, &reason),
    }
}

async fn wait(shard: &Shard, number: usize) {
    let Some(dir) = shard.dirs.dir(number) else { return };
    let period = match (shard.dirs.is_failed(number), dir.level.get()) {
        (true, _) => TRY_EVERY,
        (false, Level::Ample) => LOOK_EVERY,
        (false, Level::Low | Level::Full) => LOOK_EVERY_LOW,
    };
    let suspicion = dir.suspicion.notified();
    if !dir.suspected.get() || shard.dirs.is_failed(number) {
        race(reactor::sleep(period), suspicion).await;
    }
}

/// Space, identity and, where something failed lately, a probe.
async fn look(shard: &Rc<Shard>, number: usize) -> Result<(), String> {
    let (Some(dir), Some(path)) = (shard.dirs.dir(number), shard.dirs.path(number)) else {
        return Ok(());
    };
    let space = fs::space(path).await.map_err(|error| error.to_string())?;
    identity::check(path, shard.cluster_id(), dir.id.get()).await?;
    // A file system may answer both from memory while nothing can be written.
    if fs::oldest_operation(path).is_some_and(|age| age >= ANSWER_WAIT) {
        shard.dirs.suspect(number);
    }
    if dir.suspected.get() || dir.unreadable.get() {
        probe(path, shard.id()).await?;
        dir.suspected.set(false);
        dir.unreadable.set(false);
    }
    note_space(shard, number, space);
    if shard.id() == CONTROLLER_SHARD
        && let Err(error) = reserve::settle(path).await
    {
        debug!("{}: the reserve could not be looked after: {error}", path.display());
    }
    Ok(())
}

/// Takes in how much space there is.
pub(crate) fn note_space(shard: &Shard, number: usize, space: fs::Space) {
    let (Some(dir), Some(path)) = (shard.dirs.dir(number), shard.dirs.path(number)) else { return };
    dir.space.set(Some(space));
    let before = dir.level.get();
    let marks = Marks::of(space.total);
    // What was accepted and is not written yet, here and, about as much, on every other shard.
    let shards = shard.mesh.shards();
    let unwritten = shard.log_shared.unwritten_bytes() as u64 * shards as u64;
    let left = fs::Space { available: space.available.saturating_sub(unwritten), ..space };
    let level = marks.level(left.available, before);
    dir.room.set(marks.room(left, shards));
    dir.level.set(level);
    shard.log_shared.set_short_of_space(path, level > Level::Ample);
    if level == before {
        return;
    }
    let (path, free) = (path.display(), space.available);
    match level {
        Level::Full => warn!("{path} is almost full ({free} bytes free): producers must wait"),
        Level::Low if before < level => {
            warn!("{path} has little space ({free} bytes free): retention runs all the time");
        }
        Level::Low | Level::Ample => info!("{path} has space again ({free} bytes free)"),
    }
}

/// Bytes arrive for a directory. When they could fill what is left of it, its space is looked at
/// first: this returns when that is known, or the look takes too long to hold up anybody.
pub(crate) async fn arrives(shard: &Rc<Shard>, number: usize, bytes: usize) {
    let Some(dir) = shard.dirs.dir(number) else { return };
    let left = dir.room.get().checked_sub(bytes as u64);
    dir.room.set(left.unwrap_or(0));
    if left.is_some() {
        return;
    }
    if !dir.looking.replace(true) {
        reactor::spawn(look_at_space(shard.clone(), number)).detach();
    }
    // One that fails or hangs is found out about by the watch.
    let _ = timeout(LOOK_WAIT, dir.looked.notified()).await;
}

async fn look_at_space(shard: Rc<Shard>, number: usize) {
    let (Some(dir), Some(path)) = (shard.dirs.dir(number), shard.dirs.path(number)) else { return };
    if let Ok(Ok(space)) = timeout(ANSWER_WAIT, fs::space(path)).await {
        note_space(&shard, number, space);
    }
    dir.looking.set(false);
    dir.looked.notify_all();
}

/// Whether the directory can be written, synced and read. A full one can.
async fn probe(dir: &Path, shard: usize) -> Result<(), String> {
    let path = dir.join(format!("corelane-probe-{shard}.tmp"));
    let probed = async {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            direct: true,
            ..Default::default()
        };
        let file = File::open(&path, options).await?;
        let data = AlignedBuf::zeroed(PROBE_BYTES);
        file.write_at(smallvec![WriteBuf::Aligned(data)], 0, Durability::Synced).await?;
        let (read, _) = file.read_at(AlignedBuf::with_capacity(PROBE_BYTES), 0).await;
        read?;
        file.close().await?;
        fs::remove_file(&path).await?;
        fs::sync_dir(dir).await
    };
    match probed.await {
        Err(error) if !log::is_out_of_space(&error) => Err(error.to_string()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What the watch remembers of a directory's partitions.
#[derive(Default)]
struct Mending {
    reopened: Reopened,
    retained: Option<reactor::Instant>,
    /// A round of retention is under way.
    retaining: Rc<Cell<bool>>,
}

impl Mending {
    /// Whether it is time for retention.
    fn may_retain(&mut self) -> bool {
        let now = reactor::now();
        let due =
            !self.retaining.get() && self.retained.is_none_or(|last| now >= last + RETAIN_EVERY);
        if due {
            self.retained = Some(now);
        }
        due
    }
}

/// When a partition that failed may be opened again.
#[derive(Default)]
struct Reopened(BTreeMap<(Uuid, i32), (reactor::Instant, Duration)>);

impl Reopened {
    /// Whether it is time, and if so, the next time will be twice as far away.
    fn is_due(&mut self, key: (Uuid, i32)) -> bool {
        let now = reactor::now();
        let (next, pause) = self.0.entry(key).or_insert((now, LOOK_EVERY));
        if now < *next {
            return false;
        }
        *pause = (*pause * 2).min(REOPEN_MAX);
        *next = now + *pause;
        true
    }
}

/// The directory works: its partitions should.
fn mend(shard: &Rc<Shard>, number: usize, mending: &mut Mending) {
    let level = shard.dirs.level(number);
    if level > Level::Ample && mending.may_retain() {
        mending.retaining.set(true);
        let retaining = mending.retaining.clone();
        reactor::spawn(retain_all(shard.clone(), number, retaining)).detach();
    }
    let reopened = &mut mending.reopened;
    let here = shard.open_partitions();
    for partition in here.iter().filter(|p| p.dir_number == number) {
        let again = match partition.ran_out_of_space() {
            Some(true) => level < Level::Full,
            Some(false) => reopened.is_due((partition.topic_id, partition.index)),
            None => false,
        };
        if again {
            shard.partitions.reopen(shard, partition);
        }
    }
    for key in shard.partitions.offline() {
        let Some(assignment) = changes::assignment(shard, key.0, key.1) else { continue };
        if assignment.home == Ok(number) && reopened.is_due(key) {
            shard.partitions.open_again(shard, assignment);
        }
    }
}

/// Retention of all that is in a directory, in a task of its own: the watch has to find out that a
/// disk hangs, and must not hang with it.
async fn retain_all(shard: Rc<Shard>, number: usize, retaining: Rc<Cell<bool>>) {
    let here = shard.open_partitions();
    for partition in here.iter().filter(|p| p.dir_number == number) {
        if shard.is_stopping() || shard.dirs.is_failed(number) {
            break;
        }
        // What has begun goes on; the others must not wait for it.
        if timeout(ANSWER_WAIT, background::retain(partition)).await.is_err() {
            shard.dirs.suspect(number);
        }
    }
    retaining.set(false);
}

fn announce_failure(shard: &Rc<Shard>, number: usize, reason: &str) {
    if fail(shard, number, reason) {
        tell_others(shard, number, DirNews::Failed(reason.to_owned()));
    }
}

fn tell_others(shard: &Rc<Shard>, number: usize, news: DirNews) {
    let shard = shard.clone();
    reactor::spawn(async move {
        for other in (0..shard.mesh.shards()).filter(|other| *other != shard.id()) {
            let message = ShardMessage::DataDir { number, news: news.clone() };
            // A closed mesh means that the process ends.
            let _ = shard.mesh.send(other, message).await;
        }
    })
    .detach();
}

/// Takes the directory's partitions offline. Returns whether it was not failed before.
fn fail(shard: &Rc<Shard>, number: usize, reason: &str) -> bool {
    let news = shard.dirs.fail(number, reason);
    if news {
        let path = shard.dirs.path(number).unwrap_or(Path::new("")).display();
        let partitions = shard.partitions.take_offline(number);
        error!("data directory {path} has failed: {reason}; {partitions} partitions are offline");
    }
    news
}

/// What another shard says.
pub(crate) fn take_in(shard: &Rc<Shard>, number: usize, news: DirNews) {
    match news {
        DirNews::Failed(reason) => drop(fail(shard, number, &reason)),
        DirNews::Recovered { id, found } => recover(shard, number, id, &found),
    }
}

/// Shard 0: looks whether a failed directory works again.
async fn try_again(shard: &Rc<Shard>, number: usize) {
    let Ok(tried) = timeout(ANSWER_WAIT, revive(shard, number)).await else { return };
    match tried {
        Ok((id, found)) => {
            let found = Arc::new(found);
            let news = DirNews::Recovered { id, found: found.clone() };
            tell_others(shard, number, news);
            recover(shard, number, id, &found);
        }
        Err(reason) => {
            let path = shard.dirs.path(number).unwrap_or(Path::new("")).display();
            debug!("data directory {path} still fails: {reason}");
        }
    }
}

async fn revive(shard: &Rc<Shard>, number: usize) -> Result<(Uuid, disk::Found), String> {
    let (Some(dir), Some(path)) = (shard.dirs.dir(number), shard.dirs.path(number)) else {
        return Err("it is not configured".to_owned());
    };
    let id = identity::check(path, shard.cluster_id(), dir.id.get()).await?;
    if shard.dirs.by_id(id).is_some_and(|other| other != number) {
        return Err(format!("it is a copy of another directory ({id})"));
    }
    probe(path, shard.id()).await?;
    if dir.needs_lock() {
        let lock = fs::lock(&path.join(".lock")).await;
        dir.lock.replace(Some(lock.map_err(|error| format!("it cannot be locked: {error}"))?));
    }
    let survey = disk::survey_dir(path, number).await.map_err(|error| error.to_string())?;
    let image = shard.image().clone();
    Ok((id, survey.settled_alone(&shard.dirs, id, &image, shard.broker_id()).await))
}

fn recover(shard: &Rc<Shard>, number: usize, id: Uuid, found: &disk::Found) {
    let path = shard.dirs.path(number).unwrap_or(Path::new("")).display();
    info!("data directory {path} works again: its partitions are opened");
    shard.dirs.recover(number, id);
    if let Some(path) = shard.dirs.path(number) {
        shard.log_shared.forget_disk(path);
    }
    shard.found.borrow_mut().extend(found.iter().map(|(name, log)| (name.clone(), *log)));
    for key in shard.partitions.offline() {
        if let Some(assignment) = changes::assignment(shard, key.0, key.1)
            && assignment.home == Ok(number)
        {
            shard.partitions.open_again(shard, assignment);
        }
    }
    // Who opens one of them later looks at its own files.
    shard.found.borrow_mut().clear();
}

#[cfg(test)]
mod tests {
    use reactor::sim::{Delay, Outcome, World, stand_still};

    use super::*;

    const DIR: &str = "/disk";

    /// Where each operation of the directory takes so long.
    fn run<T: 'static>(
        each: Duration,
        ask: impl Future<Output = T> + 'static,
    ) -> Result<T, String> {
        let mut world = World::new(1);
        world.faults().disk.slow.insert(DIR.into(), Delay::exactly(each));
        let outcome = world.run(|| answered(Path::new(DIR), ask));
        let Outcome::Finished(answer) = outcome else { panic!("it does not end") };
        answer
    }

    async fn operations(count: usize) -> usize {
        for _ in 0..count {
            assert!(!fs::exists(&Path::new(DIR).join("file")).await.unwrap());
        }
        count
    }

    /// One look at it is not enough to see that it is done.
    async fn two_steps() -> usize {
        let read = operations(1).await;
        reactor::yield_now().await;
        reactor::sleep(Duration::from_millis(1)).await;
        read
    }

    const SILENT: Duration = Duration::from_secs(3600);

    #[test]
    fn a_directory_that_does_not_answer_has_failed() {
        let failed = Err("it has not answered for 15 s".to_owned());
        assert_eq!(run(SILENT, operations(1)), failed);
        assert_eq!(run(ANSWER_WAIT + Duration::from_millis(100), operations(1)), failed);
        assert_eq!(run(ANSWER_WAIT - Duration::from_millis(100), two_steps()), Ok(1));
    }

    #[test]
    fn one_that_is_slow_has_not_failed() {
        assert_eq!(run(LAST_WAIT - Duration::from_millis(100), operations(10)), Ok(10));
    }

    #[test]
    fn a_shard_that_is_busy_does_not_fail_its_directory() {
        let asked = async {
            let first = operations(1).await;
            // What it does for clients meanwhile.
            reactor::sleep(4 * ANSWER_WAIT).await;
            first + operations(1).await
        };
        assert_eq!(run(Duration::from_millis(1), asked), Ok(2));
    }

    #[test]
    fn a_shard_that_stood_still_does_not_fail_its_directory() {
        let stands_still = || {
            reactor::spawn(async {
                reactor::sleep(Duration::from_millis(100)).await;
                assert!(stand_still(4 * ANSWER_WAIT));
            })
            .detach();
        };
        // The answer comes early; the shard looks at it only when all its time is long over.
        let asked = async move {
            stands_still();
            two_steps().await
        };
        assert_eq!(run(Duration::from_millis(200), asked), Ok(1));
        // But silence after that is silence.
        let silent = async move {
            stands_still();
            two_steps().await
        };
        assert!(run(SILENT, silent).is_err());
    }
}
