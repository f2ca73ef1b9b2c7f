//! One sync of a data folder for all who wait for one.
//!
//! Owns: when the names in the folder that holds the partitions are synced, and when the whole disk
//! that holds it is. Ten thousand logs that are closed at once each need that once after their last
//! change: a sync that starts later serves all of them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::fs::{self, DiskWatch};
use reactor::sync::{Notify, oneshot};

/// What a sync covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Covers {
    /// The names in the folder itself.
    Names,
    /// All that the disk holds.
    Disk,
}

#[derive(Default)]
pub(crate) struct GroupSyncs {
    by_data_dir: RefCell<BTreeMap<(PathBuf, Covers), Rc<GroupSync>>>,
}

#[derive(Default)]
struct GroupSync {
    started: Cell<u64>,
    /// The number of the newest one that succeeded.
    done: Cell<u64>,
    runs: Cell<bool>,
    /// The number of the newest one that failed. What it covered may be lost, and the kernel tells
    /// of that only once: one that comes later proves nothing to those who waited.
    failed: Cell<u64>,
    ended: Notify,
    /// Of a disk: what it loses is told to every shard that had it open before, also where another
    /// shard's sync has failed.
    watch: OnceCell<DiskWatch>,
}

impl GroupSync {
    /// One sync, which goes on if whoever waits for it is dropped: what it is told of a loss is told once.
    async fn run(self: Rc<Self>, data_dir: PathBuf, covers: Covers) -> io::Result<()> {
        let (done, outcome) = oneshot();
        let number = self.started.get() + 1;
        self.started.set(number);
        reactor::spawn_in(reactor::current_class(), async move {
            let synced = match (covers, self.watch.get()) {
                (Covers::Names, _) => fs::sync_dir(&data_dir).await,
                (Covers::Disk, Some(watch)) => watch.sync_disk(&data_dir).await,
                (Covers::Disk, None) => fs::sync_disk(&data_dir).await,
            };
            match synced {
                Ok(()) => self.done.set(number),
                Err(_) => self.failed.set(number),
            }
            self.runs.set(false);
            self.ended.notify_all();
            // Whoever asked may be gone.
            let _ = done.send(synced);
        })
        .detach();
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("a sync was not ended")))
    }
}

impl GroupSyncs {
    /// From now on, what the disk of this folder loses makes the next sync of it fail.
    pub(crate) async fn watch(&self, data_dir: &Path) -> io::Result<()> {
        let of_disk = self.of(data_dir, Covers::Disk);
        if of_disk.watch.get().is_none() {
            let begun = DiskWatch::begin(data_dir).await?;
            // Somebody else may have begun meanwhile, and is as good.
            let _ = of_disk.watch.set(begun);
        }
        Ok(())
    }

    /// Another disk may be in the place of this folder. A sync that hangs on the old one keeps those that
    /// wait for it, nobody who comes later.
    pub(crate) fn forget(&self, data_dir: &Path) {
        let mut all = self.by_data_dir.borrow_mut();
        for covers in [Covers::Names, Covers::Disk] {
            all.remove(&(data_dir.to_owned(), covers));
        }
    }

    fn of(&self, data_dir: &Path, covers: Covers) -> Rc<GroupSync> {
        let mut all = self.by_data_dir.borrow_mut();
        Rc::clone(all.entry((data_dir.to_owned(), covers)).or_default())
    }

    /// Until a sync of the folder that began after this call has succeeded.
    pub(crate) async fn sync(&self, data_dir: &Path, covers: Covers) -> io::Result<()> {
        let of_dir = self.of(data_dir, covers);
        let needed = of_dir.started.get() + 1;
        loop {
            let failed = of_dir.failed.get();
            // Before what has succeeded: that may be a later one, which proves nothing. A disk is synced
            // when everything ends; a folder may be on a disk that came back.
            if failed >= needed || (failed > 0 && covers == Covers::Disk) {
                return Err(io::Error::other("a sync of the same folder has failed"));
            }
            if of_dir.done.get() >= needed {
                return Ok(());
            }
            if of_dir.runs.replace(true) {
                of_dir.ended.notified().await;
                continue;
            }
            Rc::clone(&of_dir).run(data_dir.to_owned(), covers).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_share_a_sync_and_none_takes_one_that_began_before_it() {
        for covers in [Covers::Names, Covers::Disk] {
            let ran = reactor::sim::World::new(1).run(move || shared(covers));
            assert!(ran.finished().is_some());
        }
    }

    /// All who waited for a sync that fails are told, not only the one that made it.
    #[test]
    fn a_sync_that_fails_fails_for_all_who_share_it() {
        for covers in [Covers::Names, Covers::Disk] {
            let mut world = reactor::sim::World::new(1);
            let made = world.run(|| async { fs::create_dir_all(Path::new("/data")).await });
            assert!(made.finished().is_some_and(|made| made.is_ok()));
            world.faults().disk.sync_eio_per_million = 1_000_000;
            let ran = world.run(move || async move {
                let syncs = Rc::new(GroupSyncs::default());
                let tasks: Vec<_> = (0..10)
                    .map(|_| {
                        let syncs = syncs.clone();
                        let later = async move { syncs.sync(Path::new("/data"), covers).await };
                        reactor::spawn(later)
                    })
                    .collect();
                let mut own = 0;
                for task in tasks {
                    let error = task.await.err().map(|error| error.raw_os_error().is_some());
                    own += usize::from(error.unwrap_or_else(|| panic!("a sync succeeded")));
                }
                own
            });
            assert!(ran.finished().is_some_and(|own| own <= 2), "they shared it");
        }
    }

    /// What one shard's sync has lost may be another's, whose own sync of the disk finds nothing wrong.
    #[test]
    fn a_sync_that_fails_on_one_shard_fails_on_the_others_of_that_disk() {
        let mut world = reactor::sim::World::new(1);
        let ran = world.run(|| async {
            let (dir, other) = (Path::new("/data"), Path::new("/other"));
            for path in [dir, other] {
                assert!(fs::create_dir_all(path).await.is_ok());
            }
            let shards = [0, 1, 2].map(|_| GroupSyncs::default());
            for (shard, path) in shards.iter().zip([dir, dir, other]) {
                assert!(shard.watch(path).await.is_ok());
            }
            reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 1_000_000);
            assert!(fs::sync_dir(dir).await.is_err());
            reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 0);
            let mut synced = Vec::new();
            for (shard, path) in shards.iter().zip([dir, dir, other]) {
                synced.push(shard.sync(path, Covers::Disk).await.is_ok());
            }
            synced
        });
        assert_eq!(ran.finished(), Some(vec![false, false, true]));
    }

    /// Who waits for a sync that fails is told, even if a later one has succeeded before it looks.
    #[test]
    fn a_later_sync_that_succeeds_hides_no_failure() {
        for covers in [Covers::Names, Covers::Disk] {
            let ran = reactor::sim::World::new(1).run(move || overtaken(covers));
            assert!(ran.finished().is_some());
        }
    }

    async fn overtaken(covers: Covers) {
        let dir = Path::new("/data");
        fs::create_dir_all(dir).await.unwrap_or_else(|e| panic!("{e}"));
        let syncs = Rc::new(GroupSyncs::default());
        let sync = || {
            let syncs = syncs.clone();
            reactor::spawn(async move { syncs.sync(dir, covers).await })
        };
        let first = sync();
        reactor::yield_now().await;
        // Two wait for the next one; the first of them is not polled again before everything is over.
        let mut waits = std::pin::pin!(syncs.sync(dir, covers));
        let looked = std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx)));
        assert!(looked.await.is_pending());
        let second = sync();
        assert!(first.await.is_ok());
        reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 1_000_000);
        assert!(second.await.is_err());
        reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 0);
        // A disk that has failed once stays failed.
        assert_eq!(sync().await.is_ok(), covers == Covers::Names);
        assert!(waits.await.is_err(), "the sync that covered it has failed");
    }

    /// The kernel tells of a loss once: also if nobody waits for the sync any more that is told.
    #[test]
    fn a_sync_that_nobody_waits_for_any_more_keeps_what_it_was_told() {
        let mut world = reactor::sim::World::new(1);
        let ran = world.run(|| async {
            let dir = Path::new("/data");
            assert!(fs::create_dir_all(dir).await.is_ok());
            let syncs = GroupSyncs::default();
            reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 1_000_000);
            {
                let mut first = std::pin::pin!(syncs.sync(dir, Covers::Disk));
                let looked =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx)));
                assert!(looked.await.is_pending());
                reactor::yield_now().await;
            }
            reactor::sleep(std::time::Duration::from_secs(1)).await;
            reactor::sim::with_faults(|faults| faults.disk.sync_eio_per_million = 0);
            syncs.sync(dir, Covers::Disk).await.is_err()
        });
        assert_eq!(ran.finished(), Some(true));
    }

    #[test]
    fn a_sync_that_hangs_keeps_nobody_from_the_disk_that_came_back() {
        for covers in [Covers::Names, Covers::Disk] {
            let ran = reactor::sim::World::new(1).run(move || came_back(covers));
            assert_eq!(ran.finished(), Some(true));
        }
    }

    async fn came_back(covers: Covers) -> bool {
        let dir = Path::new("/data");
        assert!(fs::create_dir_all(dir).await.is_ok());
        let syncs = Rc::new(GroupSyncs::default());
        let hour = std::time::Duration::from_secs(3_600);
        let slow = reactor::sim::Delay::between(hour, hour);
        reactor::sim::with_faults(|faults| faults.disk.slow.insert(dir.into(), slow));
        let hangs = syncs.clone();
        let task = reactor::spawn(async move { hangs.sync(dir, covers).await });
        reactor::sleep(std::time::Duration::from_secs(1)).await;
        reactor::sim::with_faults(|faults| faults.disk.slow.clear());
        syncs.forget(dir);
        let minute = std::time::Duration::from_secs(60);
        let synced = reactor::timeout(minute, syncs.sync(dir, covers)).await;
        task.detach();
        matches!(synced, Ok(Ok(())))
    }

    async fn shared(covers: Covers) {
        let dir = PathBuf::from("/data");
        fs::create_dir_all(&dir).await.unwrap_or_else(|e| panic!("{e}"));
        let syncs = Rc::new(GroupSyncs::default());
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (syncs, dir) = (syncs.clone(), dir.clone());
                reactor::spawn(async move { syncs.sync(&dir, covers).await })
            })
            .collect();
        for task in tasks {
            assert!(task.await.is_ok());
        }
        let started = || {
            let all = syncs.by_data_dir.borrow();
            all.get(&(dir.clone(), covers)).map(|one| one.started.get())
        };
        let before = started();
        assert!(before.is_some_and(|n| n <= 2), "{before:?} syncs for a hundred");
        assert!(syncs.sync(Path::new("/nowhere"), covers).await.is_err());
        assert!(syncs.sync(&dir, covers).await.is_ok());
        assert!(started() > before);
    }
}
