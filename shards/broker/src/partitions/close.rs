//! What a stop and the checkpoints take of all partitions: a line of each, and at the end every log
//! closed. What is still opening then is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use reactor::sync::channel;
use reactor::timeout;
use tracing::warn;

use super::open::close_before;
use super::{LocalPartitions, Slot};
use crate::mesh::{CheckpointEntry, Closed};
use crate::opening::Opening;
use crate::partition::Partition;

/// Checkpoint lines that are gathered without a break for requests.
const ENTRIES_AT_ONCE: usize = 256;
/// Partitions of a data directory that close at the same time.
const CLOSING_MAX: usize = 1024;
/// A disk on which nothing has been closed for so long hangs. What it has is recovered by the next start.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// From so many on they are synced together with all else on the disk.
const TOGETHER_FROM: usize = 256;

impl LocalPartitions {
    /// Gives up what is still opening: a stop does not wait for a recovery. Returns the lines that
    /// are known of those partitions, and whether they need no recovery at the next start. A disk that
    /// hangs is waited for once.
    async fn give_up_opening(&self) -> (Vec<CheckpointEntry>, Closed) {
        let mut opening: Vec<Rc<Opening>> = Vec::new();
        for slot in self.slots.borrow().values() {
            if let Slot::Opening(one) = slot {
                opening.push(one.clone());
            }
        }
        opening.sort_by(|a, b| {
            let (a, b) = (&a.assignment, &b.assignment);
            (&a.topic, a.index).cmp(&(&b.topic, b.index))
        });
        let (mut clean, mut failed) = (true, 0);
        let mut hanging = BTreeSet::new();
        let mut entries = Vec::new();
        for one in opening {
            let assignment = &one.assignment;
            self.replace((assignment.topic_id, assignment.index), None);
            let giving_up = async {
                one.give_up().await;
                close_before(&one).await;
            };
            let is_hanging =
                hanging.contains(&one.dir_number) || timeout(CLOSE_WAIT, giving_up).await.is_err();
            if is_hanging {
                hanging.insert(one.dir_number);
                failed += 1;
            }
            let Some(found) = assignment.found else { continue };
            clean &= found.clean;
            entries.push(CheckpointEntry {
                dir_number: one.dir_number,
                topic_id: assignment.topic_id,
                topic: assignment.topic.to_string(),
                partition: assignment.index,
                recovery_point: found.recovery_point.max(found.vouched.synced_end),
                log_start_offset: found.log_start_offset.max(found.vouched.log_start),
                high_watermark: found.recovery_point,
                written_end: found.vouched.written_end,
                cleaner_point: found.cleaner_point,
            });
        }
        if failed > 0 {
            let waited = CLOSE_WAIT.as_secs();
            warn!(
                "{failed} partitions are still being opened: their disks have not answered for {waited} s"
            );
        }
        (entries, Closed { clean, failed })
    }

    /// Closes every log, a bounded number at a time; a disk that hangs keeps its own, and nobody else.
    /// Returns the final checkpoint lines too.
    pub async fn close_all(&self) -> (Vec<CheckpointEntry>, Closed) {
        let (mut entries, Closed { mut clean, mut failed }) = self.give_up_opening().await;
        // One that could not be opened was not recovered either.
        clean &= self.counts().offline == 0;
        let deleted = timeout(CLOSE_WAIT, async {
            while self.deleting.count.get() > 0 {
                self.deleting.ended.notified().await;
            }
        });
        if deleted.await.is_err() {
            let count = self.deleting.count.get();
            warn!("{count} partitions are still being deleted, which the next start goes on with");
            clean = false;
        }
        let closing: Vec<_> = self.online();
        self.slots.borrow_mut().clear();
        self.sorted.replace(None);
        let mut by_dir: BTreeMap<usize, Vec<Rc<Partition>>> = BTreeMap::new();
        for partition in closing {
            by_dir.entry(partition.dir_number).or_default().push(partition);
        }
        let dirs: Vec<_> = by_dir.into_values().map(|all| reactor::spawn(close_dir(all))).collect();
        for dir in dirs {
            for (entry, closed) in dir.await {
                entries.push(entry);
                failed += usize::from(!closed);
            }
        }
        (entries, Closed { clean: clean && failed == 0, failed })
    }

    /// One line a partition, gathered with breaks for requests.
    pub async fn checkpoint_entries(&self) -> Vec<CheckpointEntry> {
        let online = self.online();
        let mut entries = Vec::with_capacity(online.len());
        for some in online.chunks(ENTRIES_AT_ONCE) {
            entries.extend(some.iter().map(|partition| checkpoint_entry(partition)));
            reactor::yield_now().await;
        }
        entries
    }
}

/// Closes the partitions of a data directory; says of each whether that worked. Where none has for
/// [`CLOSE_WAIT`] the disk hangs: those that are left are recovered by the next start.
async fn close_dir(partitions: Vec<Rc<Partition>>) -> Vec<(CheckpointEntry, bool)> {
    let together = partitions.len() >= TOGETHER_FROM;
    let close_one = |partition| close(partition, together);
    let mut closed = Vec::with_capacity(partitions.len());
    for some in partitions.chunks(CLOSING_MAX) {
        closed.extend(each_while_some_end(some, close_one).await);
        if closed.iter().any(Option::is_none) {
            break;
        }
    }
    with_unclosed(&partitions, closed)
}

/// Does all of them at once; `None` for those that had not ended when none did for [`CLOSE_WAIT`].
async fn each_while_some_end<I, O, F>(items: &[Rc<I>], run: impl Fn(Rc<I>) -> F) -> Vec<Option<O>>
where
    I: 'static,
    O: 'static,
    F: Future<Output = O> + 'static,
{
    let (sender, mut ended) = channel(items.len().max(1));
    let mut tasks = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        reactor::yield_if_due().await;
        let (sender, running) = (sender.clone(), run(item.clone()));
        tasks.push(reactor::spawn(async move {
            // Nobody waits for it once it was given up.
            let _ = sender.send((number, running.await)).await;
        }));
    }
    drop(sender);
    let mut outputs: Vec<Option<O>> = items.iter().map(|_| None).collect();
    while let Ok(Some((number, output))) = timeout(CLOSE_WAIT, ended.recv()).await {
        if let Some(place) = outputs.get_mut(number) {
            *place = Some(output);
        }
    }
    outputs
}

/// Says which have not been closed; of those that come after the last of `closed` nobody has tried.
fn with_unclosed(
    partitions: &[Rc<Partition>],
    closed: Vec<Option<(CheckpointEntry, bool)>>,
) -> Vec<(CheckpointEntry, bool)> {
    let mut closed = closed.into_iter();
    let mut left = Vec::new();
    let all = partitions.iter().map(|partition| {
        closed.next().flatten().unwrap_or_else(|| {
            left.push(partition);
            (checkpoint_entry(partition), false)
        })
    });
    let all = all.collect();
    if let Some(first) = left.first() {
        let dir = first.log.dir();
        warn!(
            partitions = left.len(),
            "not closed: {} has not answered for {} s; {} is the first",
            dir.parent().unwrap_or(&dir).display(),
            CLOSE_WAIT.as_secs(),
            dir.display()
        );
    }
    all
}

async fn close(partition: Rc<Partition>, together: bool) -> (CheckpointEntry, bool) {
    let log = partition.log.clone();
    let closed = match together {
        true => log.close_with_many().await,
        false => log.close().await,
    };
    if let Err(error) = &closed {
        let index = partition.index;
        warn!(topic = %partition.topic, partition = index, "close failed: {error}");
    }
    (checkpoint_entry(&partition), closed.is_ok())
}

fn checkpoint_entry(partition: &Partition) -> CheckpointEntry {
    CheckpointEntry {
        dir_number: partition.dir_number,
        topic_id: partition.topic_id,
        topic: partition.topic.to_string(),
        partition: partition.index,
        recovery_point: partition.log.recovery_point(),
        log_start_offset: partition.log.log_start_offset(),
        high_watermark: partition.high_watermark(),
        written_end: partition.log.written_end_offset(),
        cleaner_point: partition.log.cleaner_point(),
    }
}

#[cfg(test)]
mod tests {
    use reactor::sim::World;

    use super::*;

    /// Each takes most of the patience longer than the one before it, the first and the last for ever.
    #[test]
    fn one_that_hangs_does_not_take_those_along_that_end_behind_it() {
        let ran = World::new(1).run(|| async {
            let items: Vec<Rc<u32>> = (0..6).map(Rc::new).collect();
            each_while_some_end(&items, |item| async move {
                match *item {
                    0 | 5 => std::future::pending().await,
                    late => reactor::sleep(CLOSE_WAIT * 9 / 10 * late).await,
                }
                *item
            })
            .await
        });
        let outputs = ran.finished().unwrap_or_default();
        assert_eq!(outputs, [None, Some(1), Some(2), Some(3), Some(4), None]);
    }
}
