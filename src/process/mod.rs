//! The process around the shards: data directories, start, watch, stop.

pub mod data_dir;
pub mod import_journal;
pub mod meta_properties;
mod report;
pub mod serve;
mod shards;

use std::time::Duration;

/// The kernel takes a killed process's rings apart after the process is gone; until then its ports
/// and locks look taken. A restart waits so long before it believes that somebody else has them.
const AFTERLIFE: Duration = Duration::from_secs(2);
const AFTERLIFE_PAUSE: Duration = Duration::from_millis(20);
