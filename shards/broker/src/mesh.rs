//! Everything that one shard ever says to another. Control only: no record crosses a core.
//!
//! | message | from → to | bound | answered by | if the other side fails |
//! |---|---|---|---|---|
//! | `Boot` | 0 → all | once | `Applied` | the process ends |
//! | `Delta` | 0 → all | one in flight | `Applied` | the process ends |
//! | `Applied` | all → 0 | one a delta | – | – |
//! | `Cleared` | all → 0 | one a delta that deletes topics | – | the process ends |
//! | `Control` | any → 0 | one a waiting request | `ControlReply` | the request fails |
//! | `ControlReply` | 0 → any | one a `Control` | – | – |
//! | `Checkpoint` | all → 0 | one a period | – | the next period repeats it |
//! | `Sample` | 0 → all | one a scrape, 16 scrapes | `Samples` | reported as not up after 5 s |
//! | `Samples` | all → 0 | one a `Sample` | – | – |
//! | `DataDir` | any → all | one a failure or recovery | – | each shard looks for itself |
//! | `Ask` | any → any | one a waiting request or ending transaction | `Answer` | asked again |
//! | `Answer` | any → any | one an `Ask` | – | – |
//! | `Stop` | 0 → all | once | `Stopped` | the process ends |
//! | `Stopped` | all → 0 | once | – | – |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use log::Vouched;
use meta::{Delta, Image};
use wire::{ErrorCode, Uuid};

use crate::control::{ControlReply, ControlRequest};
use crate::data_dirs::DirNews;
use crate::metrics::Samples;
use crate::transactions::ShardAsk;

/// Messages between a pair of shards that may wait; then the sender waits.
pub const MESH_CAPACITY: usize = 1024;

pub enum ShardMessage {
    Boot(Arc<Boot>),
    Delta(Delta),
    Applied {
        offset: i64,
    },
    /// The folders of the topics that the delta from this offset on deletes are out of the way.
    Cleared {
        base_offset: i64,
    },
    Control {
        token: u64,
        request: Box<ControlRequest>,
    },
    ControlReply {
        token: u64,
        reply: Box<ControlReply>,
    },
    Checkpoint(Vec<CheckpointEntry>),
    Sample {
        token: u64,
    },
    Samples {
        token: u64,
        samples: Box<Samples>,
    },
    Ask {
        token: u64,
        ask: Box<ShardAsk>,
    },
    Answer {
        token: u64,
        codes: Vec<ErrorCode>,
    },
    DataDir {
        number: usize,
        news: DirNews,
    },
    Stop,
    Stopped {
        entries: Vec<CheckpointEntry>,
        closed: Closed,
    },
}

/// How the logs of a shard were closed.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// The next start has nothing to recover.
    pub clean: bool,
    /// Partitions that could not be closed.
    pub failed: usize,
}

/// What every shard needs to know before it opens its partitions.
pub struct Boot {
    pub image: Image,
    /// Topics, by name and id, that were deleted not long before the start.
    pub deleted: Vec<(String, Uuid)>,
    /// Partition directories found on disk, by name.
    pub found: BTreeMap<String, FoundLog>,
    /// Partitions that were somewhere and of which nothing was found, by directory name.
    pub lost: BTreeSet<String>,
    /// Data directories that have failed, with the reasons.
    pub failed: Vec<(usize, String)>,
}

/// A partition directory that was on disk at start.
#[derive(Clone, Copy, Debug)]
pub struct FoundLog {
    pub dir_number: usize,
    /// The data directory was closed cleanly: nothing needs to be scanned.
    pub clean: bool,
    pub recovery_point: i64,
    pub log_start_offset: i64,
    /// Where compaction stood, if it ever ran.
    pub cleaner_point: Option<i64>,
    /// The data directory has it written down that this partition was there.
    pub is_noted: bool,
    /// How far the data directory says that this partition, of this topic, has gone.
    pub vouched: Vouched,
}

impl FoundLog {
    /// Nothing is known but the partition's own files.
    pub(crate) const UNKNOWN: FoundLog = FoundLog {
        dir_number: 0,
        clean: false,
        recovery_point: 0,
        log_start_offset: 0,
        cleaner_point: None,
        is_noted: false,
        vouched: Vouched { log_start: 0, synced_end: 0, written_end: 0 },
    };
}

/// One partition's line in the checkpoint files of its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub dir_number: usize,
    pub topic_id: Uuid,
    pub topic: String,
    pub partition: i32,
    pub recovery_point: i64,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    /// Everything below is in files.
    pub written_end: i64,
    pub cleaner_point: Option<i64>,
}
