//! How a partition leaves the shard: deleted with its topic, or handed over to another shard of
//! this host. Whoever comes next, a topic of the same name or another core, must find nobody at the
//! files.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use log::{Log, LogError};
use reactor::{Either, race};
use tracing::warn;

use super::open::close_before;
use super::{DIR_HAS_FAILED, Key, LocalPartitions, Slot};
use crate::opening::{OPENING_MAX, Opening};
use crate::partition::Partition;
use crate::shard::Shard;

impl LocalPartitions {
    /// Takes a partition out of service; what is left of it is to be deleted.
    pub fn withdraw(&self, key: Key) -> Option<Slot> {
        self.unmade.borrow_mut().remove(&key);
        self.unopened.borrow_mut().remove(&key);
        self.replace(key, None)
    }

    /// Deletes the logs of partitions that are out of service; returns when their directories
    /// have been renamed, so that a topic of the same name can be created. One that is still being
    /// recovered is given up first, which takes a moment.
    pub async fn delete(&self, shard: &Rc<Shard>, withdrawn: Vec<Slot>) {
        let mut dirs = BTreeSet::new();
        let mut left = withdrawn.into_iter();
        loop {
            let some = left.by_ref().take(OPENING_MAX);
            let some: Vec<_> = some.map(|slot| self.delete_one(shard, slot)).collect();
            if some.is_empty() {
                break;
            }
            dirs.extend(reactor::join_all(some).await.into_iter().flatten());
        }
        for number in dirs {
            let Some(data_dir) = shard.data_dirs().get(number) else { continue };
            let synced = race(reactor::fs::sync_dir(data_dir), shard.dirs.failed(number)).await;
            if let Either::Left(Err(error)) = synced {
                warn!("{}: the names of deleted partitions: {error}", data_dir.display());
            }
        }
    }

    /// Returns the number of the data directory that has to be synced.
    async fn delete_one(&self, shard: &Rc<Shard>, slot: Slot) -> Option<usize> {
        match slot {
            Slot::Online(partition) => {
                let number = partition.dir_number;
                let deleting = async {
                    let _permit = self.permit(number).await;
                    delete_log(partition.log.clone()).await;
                };
                // Metadata must not wait for a disk that hangs; what stays there is set aside
                // later.
                match race(deleting, shard.dirs.failed(number)).await {
                    Either::Left(()) => Some(number),
                    Either::Right(()) => {
                        partition.log.fail(DIR_HAS_FAILED);
                        None
                    }
                }
            }
            Slot::Opening(opening) => {
                opening.give_up().await;
                close_before(&opening).await;
                let data_dir = shard.data_dirs().get(opening.dir_number)?;
                let dir = data_dir.join(opening.assignment.dir_name());
                let delay_ms = shard.config().topic_defaults.file_delete_delay_ms;
                let delay = Duration::from_millis(delay_ms.unsigned_abs());
                match shard.log_shared.delete_dir(&dir, delay).await {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        warn!("could not delete {}: {error}", dir.display());
                    }
                    // It may never have been made.
                    _ => {}
                }
                Some(opening.dir_number)
            }
            Slot::Offline(_) => None,
        }
    }

    /// Hands the partition over to another shard of this host: closes its log. When this returns,
    /// nobody here is at its files any more, unless their directory has failed.
    pub async fn release(&self, shard: &Shard, key: Key) {
        let slot = self.replace(key, None);
        let unmade = self.unmade.borrow_mut().remove(&key);
        match slot {
            Some(Slot::Opening(opening)) => {
                opening.give_up().await;
                if let Some(before) = opening.take_before() {
                    close_for_another(shard, before).await;
                }
                if unmade {
                    make_for_another(shard, &opening).await;
                }
            }
            Some(Slot::Online(partition)) | Some(Slot::Offline(Some(partition))) => {
                close_for_another(shard, partition).await;
            }
            Some(Slot::Offline(None)) | None => {}
        }
    }
}

/// Closes the log of a partition that another shard will open. What a close that fails leaves
/// behind is what a crash would: the next opening recovers it, and a probe tells whether its disk
/// works.
async fn close_for_another(shard: &Shard, partition: Rc<Partition>) {
    let number = partition.dir_number;
    let (topic, index) = (partition.topic.clone(), partition.index);
    match race(partition.log.clone().close(), shard.dirs.failed(number)).await {
        Either::Left(Ok(_) | Err(LogError::Closed(_))) => {}
        Either::Left(Err(error)) => {
            warn!(%topic, partition = index, "close failed, its next opening recovers it: {error}");
            match &error {
                LogError::Storage(failed) if log::is_out_of_space(&failed.cause) => {
                    shard.dirs.note_full(number);
                }
                _ => shard.dirs.suspect(number),
            }
        }
        // It is in no slot: nobody else tells it. What it has not written it never writes.
        Either::Right(()) => {
            partition.log.fail(DIR_HAS_FAILED);
            warn!(%topic, partition = index, "not closed, its directory has failed");
        }
    }
}

/// A new partition whose folder was to be made: who opens it next expects one.
async fn make_for_another(shard: &Shard, opening: &Opening) {
    let Some(data_dir) = shard.data_dirs().get(opening.dir_number) else { return };
    let dir = data_dir.join(opening.assignment.dir_name());
    let making = reactor::fs::create_dir_all(&dir);
    match race(making, shard.dirs.failed(opening.dir_number)).await {
        Either::Left(Err(error)) => {
            warn!("{} could not be made: {error}", dir.display());
            shard.dirs.suspect(opening.dir_number);
        }
        Either::Left(Ok(())) | Either::Right(()) => {}
    }
}
async fn delete_log(log: Log) {
    let dir = log.dir().to_owned();
    if let Err(error) = log.delete_unsynced().await {
        warn!("could not delete {}: {error}", dir.display());
    }
}
