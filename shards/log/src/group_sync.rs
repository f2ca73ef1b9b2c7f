//! One sync of a data folder for all who wait for one.
//!
//! Owns: when the names in the folder that holds the partitions are synced, and when the whole disk
//! that holds it is. Ten thousand logs that are closed at once each need that once after their last
//! change: a sync that starts later serves all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::fs;
use reactor::sync::Notify;

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
}

/// A sync that is under way, also if whoever began it is dropped.
struct Run<'a>(&'a GroupSync);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.runs.set(false);
        self.0.ended.notify_all();
    }
}

impl GroupSyncs {
    /// Until a sync of the folder that began after this call has succeeded.
    pub(crate) async fn sync(&self, data_dir: &Path, covers: Covers) -> io::Result<()> {
        let of_dir = {
            let mut all = self.by_data_dir.borrow_mut();
            Rc::clone(all.entry((data_dir.to_owned(), covers)).or_default())
        };
        let needed = of_dir.started.get() + 1;
        while of_dir.done.get() < needed {
            let failed = of_dir.failed.get();
            // A disk is synced when everything ends; a folder may be on a disk that came back.
            if failed >= needed || (failed > 0 && covers == Covers::Disk) {
                return Err(io::Error::other("a sync of the same folder has failed"));
            }
            if of_dir.runs.replace(true) {
                of_dir.ended.notified().await;
                continue;
            }
            let run = Run(&of_dir);
            let number = of_dir.started.get() + 1;
            of_dir.started.set(number);
            let synced = match covers {
                Covers::Names => fs::sync_dir(data_dir).await,
                Covers::Disk => fs::sync_disk(data_dir).await,
            };
            if synced.is_err() {
                of_dir.failed.set(number);
            }
            synced?;
            of_dir.done.set(number);
            drop(run);
        }
        Ok(())
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
