//! Marks of partitions whose folder was looked for in vain, though it was there before: a later start,
//! after a crash too, must not take them for new ones. What else says so is gone by then: the
//! checkpoints of the data directory name what is open only.
//!
//! A mark is an empty file in the data directory that the metadata names for the partition,
//! `corelane-lost-<topic id>-<partition>`. It goes when the folder is back at a start, or the topic is
//! gone.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use meta::Image;
use reactor::{File, OpenOptions, fs};
use tracing::warn;
use wire::Uuid;

use crate::disk::Found;

const PREFIX: &str = "corelane-lost-";

/// Partitions by their topic's id and their number.
pub(crate) type Lost = BTreeSet<(Uuid, i32)>;

/// The partition of a mark, if this is the name of one.
pub(crate) fn parse(name: &str) -> Option<(Uuid, i32)> {
    let (id, index) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    Some((id.parse().ok()?, index.parse().ok()?))
}

fn name_of((id, index): (Uuid, i32)) -> String {
    format!("{PREFIX}{id}-{index}")
}

/// The folder of a partition is not there. What cannot be marked is warned about: it is offline all the
/// same as long as this process lives.
pub(crate) async fn mark(folder: &Path, partition: (Uuid, i32)) {
    let Some(data_dir) = folder.parent() else { return };
    let path = data_dir.join(name_of(partition));
    let marked = async {
        if fs::exists(&path).await? {
            return Ok(());
        }
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        File::open(&path, options).await?.close().await?;
        fs::sync_dir(data_dir).await
    };
    let marked: io::Result<()> = marked.await;
    if let Err(error) = marked {
        warn!("{} could not be made: {error}", path.display());
    }
}

/// Removes the marks of a data directory that mean nothing any more.
pub(super) async fn settle(data_dir: &Path, marks: &Lost, image: &Image, found: &Found) {
    for mark in marks {
        let topic = image.topic_by_id(mark.0);
        let name = topic.map(|topic| log::partition_dir_name(&topic.name, mark.1));
        if name.is_some_and(|name| !found.contains_key(&name)) {
            continue;
        }
        let path = data_dir.join(name_of(*mark));
        if let Err(error) = fs::remove_file(&path).await {
            warn!("{} could not be removed: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back() {
        for (byte, index) in [(0u8, 0), (0xff, 7), (0xfb, i32::MAX)] {
            let partition = (Uuid([byte; 16]), index);
            assert_eq!(parse(&name_of(partition)), Some(partition));
        }
        for name in ["corelane-lost-", "corelane-lost-x-0", "corelane-probe-0.tmp", "t-0"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
