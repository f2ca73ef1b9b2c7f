//! One sync of a data folder for all who wait for one.
//!
//! Owns: when the folder that holds the partitions is synced. Ten thousand new logs that are closed at
//! once each need it once after their folder was made: a sync that starts later serves all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::fs;
use reactor::sync::Notify;

#[derive(Default)]
pub(crate) struct NameSyncs {
    by_data_dir: RefCell<BTreeMap<PathBuf, Rc<NameSync>>>,
}

#[derive(Default)]
struct NameSync {
    started: Cell<u64>,
    /// The number of the newest one that succeeded.
    done: Cell<u64>,
    runs: Cell<bool>,
    ended: Notify,
}

/// A sync that is under way, also if whoever began it is dropped.
struct Run<'a>(&'a NameSync);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.runs.set(false);
        self.0.ended.notify_all();
    }
}

impl NameSyncs {
    /// Until a sync of the folder that began after this call has succeeded.
    pub(crate) async fn sync(&self, data_dir: &Path) -> io::Result<()> {
        let of_dir = {
            let mut all = self.by_data_dir.borrow_mut();
            Rc::clone(all.entry(data_dir.to_owned()).or_default())
        };
        let needed = of_dir.started.get() + 1;
        while of_dir.done.get() < needed {
            if of_dir.runs.replace(true) {
                of_dir.ended.notified().await;
                continue;
            }
            let run = Run(&of_dir);
            let number = of_dir.started.get() + 1;
            of_dir.started.set(number);
            fs::sync_dir(data_dir).await?;
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
        let ran = reactor::sim::World::new(1).run(|| async {
            let dir = PathBuf::from("/data");
            fs::create_dir_all(&dir).await.unwrap_or_else(|e| panic!("{e}"));
            let syncs = Rc::new(NameSyncs::default());
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    let (syncs, dir) = (syncs.clone(), dir.clone());
                    reactor::spawn(async move { syncs.sync(&dir).await })
                })
                .collect();
            for task in tasks {
                assert!(task.await.is_ok());
            }
            let started = syncs.by_data_dir.borrow().get(&dir).map(|one| one.started.get());
            assert!(started.is_some_and(|n| n <= 2), "{started:?} syncs for a hundred");
            assert!(syncs.sync(Path::new("/nowhere")).await.is_err());
            assert!(syncs.sync(&dir).await.is_ok());
            assert!(syncs.by_data_dir.borrow().get(&dir).map(|one| one.started.get()) > started);
        });
        assert!(ran.finished().is_some());
    }
}
