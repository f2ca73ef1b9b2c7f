//! The data directories as one shard sees them: which there are and what state each is in.
//!
//! Every shard has its own [`DataDirs`]; who finds that a directory has failed tells the others
//! (`ShardMessage::DataDir`), and shard 0 alone finds out when one works again. Nothing here waits
//! for more than one directory at a time: a disk that hangs holds up itself and nobody else.
//!
//! ```text
//!              almost no space                    a write fails, and so does the probe;
//!          ┌──────────────────────► Full          meta.properties is gone; no answer
//!       Online ◄──────────────────────┘   ──────────────────────────────────────► Failed
//!          ▲           space again                                                  │
//!          └────────────────────────────────────────────────────────────────────────┘
//!                    the probe works and it is the same directory: partitions are reopened
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `health.rs` | probing, failing, coming back |
//! | `space.rs` | watermarks, and what is done when they are passed |
//! | `reserve.rs` | the file that is let go of, in two pieces, when a disk is full |
//! | `placement.rs` | which directory a new partition gets (pure) |
//! | `settle.rs` | at start: what was found against what is recorded |
//! | `made.rs` | which partitions have had a folder there |
//! | `offsets.rs` | how far each of them has gone |
//! | `strays.rs` | at start: folders that belong to nothing |
//! | `paths.rs` | where directories were that are not named now |
//! | `identity.rs` | reading a directory's id |
//! | `metrics.rs` | what operators see |
//! | `moves.rs` | moving a partition from one directory to another |

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use meta::Image;
use reactor::fs::{DirLock, Space};
use reactor::sync::Notify;
use wire::Uuid;

use placement::Candidate;

pub(crate) mod health;
pub(crate) mod identity;
pub mod made;
pub(crate) mod metrics;
pub(crate) mod moves;
pub mod offsets;
pub mod paths;
pub(crate) mod placement;
pub(crate) mod reserve;
pub(crate) mod settle;
pub(crate) mod space;
mod strays;

/// A data directory as the process found it.
#[derive(Clone, Debug)]
pub struct DataDirStart {
    /// Absolute: clients name directories by their path.
    pub path: PathBuf,
    /// `directory.id` of its `meta.properties`; `None` if that could not be read.
    pub id: Option<Uuid>,
    /// Why it cannot be used, if it cannot.
    pub failure: Option<String>,
}

/// What a directory is good for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirState {
    Online,
    /// Everything but producing goes on.
    Full,
    /// Its partitions are offline.
    Failed(Rc<str>),
}

/// What one shard tells the others about a directory.
#[derive(Clone, Debug)]
pub enum DirNews {
    Failed(String),
    /// It works again, and this is what it holds.
    Recovered {
        id: Uuid,
        found: std::sync::Arc<crate::disk::Found>,
    },
}

pub(crate) struct DataDirs {
    dirs: Vec<DataDir>,
    paths: Vec<PathBuf>,
    /// Where the metadata log is; known on shard 0.
    metadata_dir: Cell<Option<usize>>,
    /// Where directories are or were at an earlier start; known on shard 0.
    known_paths: RefCell<BTreeMap<Uuid, PathBuf>>,
    failed: Notify,
}

pub(crate) struct DataDir {
    id: Cell<Option<Uuid>>,
    failure: RefCell<Option<Rc<str>>>,
    level: Cell<space::Level>,
    space: Cell<Option<Space>>,
    /// Bytes that producers of this shard may send before the space is looked at again.
    room: Cell<u64>,
    /// Somebody is looking at the space already.
    looking: Cell<bool>,
    /// They have.
    looked: Notify,
    /// Something failed there: it is probed as soon as possible.
    suspected: Cell<bool>,
    /// Something could not be read there: it is probed when it is looked at next.
    unreadable: Cell<bool>,
    suspicion: Notify,
    /// Times it has failed since the start.
    failures: Cell<u64>,
    /// It could not be locked when the process started.
    unlocked: bool,
    /// Of one that was locked later.
    lock: RefCell<Option<DirLock>>,
    /// What this shard has made there.
    made: Rc<made::Additions>,
}

impl DataDirs {
    pub fn new(start: Vec<DataDirStart>) -> Self {
        let paths = start.iter().map(|dir| dir.path.clone()).collect();
        let dirs = start.into_iter().map(|dir| DataDir {
            id: Cell::new(dir.id),
            failures: Cell::new(u64::from(dir.failure.is_some())),
            unlocked: dir.failure.is_some(),
            failure: RefCell::new(dir.failure.map(Rc::from)),
            level: Cell::default(),
            space: Cell::new(None),
            room: Cell::new(0),
            looking: Cell::new(false),
            looked: Notify::new(),
            suspected: Cell::new(false),
            unreadable: Cell::new(false),
            suspicion: Notify::new(),
            lock: RefCell::new(None),
            made: made::Additions::new(),
        });
        DataDirs {
            dirs: dirs.collect(),
            paths,
            metadata_dir: Cell::new(None),
            known_paths: RefCell::default(),
            failed: Notify::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub fn path(&self, number: usize) -> Option<&Path> {
        self.paths.get(number).map(PathBuf::as_path)
    }

    /// The directory with this id, whatever its state.
    pub fn by_id(&self, id: Uuid) -> Option<usize> {
        self.dirs.iter().position(|dir| dir.id.get() == Some(id))
    }

    /// The directory with this path.
    pub fn by_path(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|known| known.as_os_str() == path)
    }

    /// The directory that holds this path.
    pub fn holding(&self, path: &Path) -> Option<usize> {
        let holds = |dir: &PathBuf| path.parent() == Some(dir) || path == dir;
        self.paths.iter().position(holds)
    }

    pub fn id(&self, number: usize) -> Option<Uuid> {
        self.dirs.get(number)?.id.get()
    }

    pub fn state(&self, number: usize) -> DirState {
        let Some(dir) = self.dirs.get(number) else {
            return DirState::Failed("it is not configured".into());
        };
        match (&*dir.failure.borrow(), dir.level.get()) {
            (Some(reason), _) => DirState::Failed(reason.clone()),
            (None, space::Level::Full) => DirState::Full,
            (None, _) => DirState::Online,
        }
    }

    pub fn is_failed(&self, number: usize) -> bool {
        self.dirs.get(number).is_none_or(|dir| dir.failure.borrow().is_some())
    }

    /// Producers are refused there.
    pub fn is_full(&self, number: usize) -> bool {
        self.dirs.get(number).is_some_and(|dir| dir.level.get() == space::Level::Full)
    }

    /// There is nothing left, not even for the broker's own needs.
    pub fn is_exhausted(&self, number: usize) -> bool {
        self.space(number).is_some_and(|space| space::Marks::of(space.total).is_exhausted(space))
    }

    pub fn level(&self, number: usize) -> space::Level {
        self.dirs.get(number).map(|dir| dir.level.get()).unwrap_or_default()
    }

    /// As last looked at.
    pub fn space(&self, number: usize) -> Option<Space> {
        self.dirs.get(number)?.space.get()
    }

    /// Bytes that compaction leaves free there.
    pub fn kept_by_compaction(&self, number: usize) -> u64 {
        let level = self.level(number);
        self.marks(number).map_or(0, |marks| marks.kept_by_compaction(level))
    }

    /// Bytes that a move to it leaves free there.
    pub fn kept_by_moves(&self, number: usize) -> u64 {
        self.marks(number).map_or(0, |marks| marks.full)
    }

    fn marks(&self, number: usize) -> Option<space::Marks> {
        Some(space::Marks::of(self.space(number)?.total))
    }

    pub fn failures(&self, number: usize) -> u64 {
        self.dirs.get(number).map_or(0, |dir| dir.failures.get())
    }

    /// Directories that can be used.
    pub fn usable(&self) -> impl Iterator<Item = usize> {
        (0..self.dirs.len()).filter(|number| !self.is_failed(*number))
    }

    /// Whether a directory with this recorded id can be used, and which it is.
    ///
    /// # Errors
    /// Why not.
    pub fn usable_with_id(&self, id: Uuid) -> Result<usize, String> {
        let Some(number) = self.by_id(id) else {
            let known = self.known_paths.borrow().get(&id).map(|path| path.display().to_string());
            let named = match known {
                Some(path) => {
                    format!("{path} ({id}) is not named now: start with --data-dir {path}")
                }
                None => format!("of id {id} is not named: start with --data-dir for it"),
            };
            return Err(format!("its data directory {named} as well, or delete the topic"));
        };
        match self.state(number) {
            DirState::Online | DirState::Full => Ok(number),
            DirState::Failed(reason) => {
                let path = self.path(number).unwrap_or(Path::new("")).display();
                Err(format!("its data directory {path} has failed: {reason}"))
            }
        }
    }

    /// The directories that new partitions may go to: those that work and are not full.
    pub fn candidates(&self, image: &Image) -> Vec<Candidate> {
        let able = self.usable().filter(|number| !self.is_full(*number));
        able.filter_map(|number| {
            let id = self.id(number)?;
            let free_bytes = self.space(number).map_or(u64::MAX, |space| space.available);
            Some(Candidate { id, free_bytes, partitions: image.in_directory(id) })
        })
        .collect()
    }

    /// Returns whether this is news.
    pub fn fail(&self, number: usize, reason: &str) -> bool {
        let Some(dir) = self.dirs.get(number) else { return false };
        let news = dir.failure.borrow().is_none();
        if news {
            dir.failure.replace(Some(reason.into()));
            dir.failures.set(dir.failures.get() + 1);
            dir.made.forget();
            self.failed.notify_all();
        }
        news
    }

    pub fn recover(&self, number: usize, id: Uuid) {
        if let Some(dir) = self.dirs.get(number) {
            dir.failure.replace(None);
            dir.suspected.set(false);
            dir.unreadable.set(false);
            dir.id.set(Some(id));
        }
    }

    /// Something went wrong there; whether it was the disk, a probe will tell.
    pub fn suspect(&self, number: usize) {
        if let Some(dir) = self.dirs.get(number) {
            dir.suspected.set(true);
            dir.suspicion.notify_all();
        }
    }

    /// A read failed there. Readers try again and again: the probe does not, it waits for the next
    /// look.
    pub fn suspect_reading(&self, number: usize) {
        if let Some(dir) = self.dirs.get(number) {
            dir.unreadable.set(true);
        }
    }

    /// A write found no space: the level is `Full` before anybody looks.
    pub fn note_full(&self, number: usize) {
        if let Some(dir) = self.dirs.get(number) {
            dir.level.set(space::Level::Full);
            dir.suspicion.notify_all();
        }
    }

    /// The folder of a partition, by its topic's id and its number, is there: no later start may
    /// take it for one that never was.
    pub async fn note_made(&self, number: usize, partition: (Uuid, i32)) {
        if let (Some(dir), Some(path)) = (self.dirs.get(number), self.path(number)) {
            dir.made.note(path, partition).await;
        }
    }

    pub fn set_known_paths(&self, known: BTreeMap<Uuid, PathBuf>) {
        self.known_paths.replace(known);
    }

    pub fn set_metadata_dir(&self, number: usize) {
        self.metadata_dir.set(Some(number));
    }

    /// Resolves, on shard 0, when the directory that holds the metadata log has failed.
    pub async fn metadata_dir_failed(&self) -> String {
        loop {
            let number = self.metadata_dir.get();
            if let Some(number) = number
                && let DirState::Failed(reason) = self.state(number)
            {
                let path = self.path(number).unwrap_or(Path::new("")).display();
                return format!("{path}, which holds the metadata log, has failed: {reason}");
            }
            self.failed.notified().await;
        }
    }

    /// Resolves when the directory has failed: what is done there need not be waited for.
    pub async fn failed(&self, number: usize) {
        while !self.is_failed(number) {
            self.failed.notified().await;
        }
    }

    fn dir(&self, number: usize) -> Option<&DataDir> {
        self.dirs.get(number)
    }
}

impl DataDir {
    fn needs_lock(&self) -> bool {
        self.unlocked && self.lock.borrow().is_none()
    }
}
