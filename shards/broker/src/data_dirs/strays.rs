//! At start: folders that belong to no partition of the metadata.
//!
//! | whose | done |
//! |---|---|
//! | a topic that the metadata log says was deleted | removed: a crash came between that and its renaming |
//! | anybody else's: nothing says where it comes from | set aside as `-stray`, and never touched again |
//!
//! That a topic is not in the metadata is not enough to remove records: the metadata may be an
//! older copy, or the folder another cluster's. The log must say that this topic, by its id, was
//! deleted, and it has been read to its end by then. Deletions that its snapshots have taken the
//! place of are not known any more: what is left of those stays.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use log::checkpoints;
use log::inspect::{OWN_CHECKPOINT, describe_checkpoint};
use meta::Image;
use reactor::fs;
use tracing::{info, warn};
use wire::Uuid;

use crate::disk;
use crate::metadata_log::MetadataLog;

pub(super) struct Strays<'a> {
    log: &'a MetadataLog,
    image: &'a Image,
    /// The topics that the log deletes, once somebody has asked.
    deleted: Option<HashSet<Uuid>>,
    removed: Vec<PathBuf>,
}

impl<'a> Strays<'a> {
    pub fn new(log: &'a MetadataLog, image: &'a Image) -> Self {
        Strays { log, image, deleted: None, removed: Vec::new() }
    }

    /// A partition's folder that is nobody's.
    pub async fn put_away(&mut self, dir: &Path) {
        if self.is_deleted(dir).await {
            return self.remove(dir).await;
        }
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        match disk::set_aside(dir).await {
            Ok(aside) => warn!("{name} belongs to no topic; set aside as {}", aside.display()),
            Err(error) => warn!("{name} belongs to no topic and could not be renamed: {error}"),
        }
    }

    /// One that was set aside before: the log may tell of it, where an earlier start could not ask.
    pub async fn look_at(&mut self, aside: &Path) {
        if self.is_deleted(aside).await {
            self.remove(aside).await;
        }
    }

    /// Removes in the background what is to go.
    pub fn end(self) {
        disk::remove_later(self.removed);
    }

    async fn is_deleted(&mut self, dir: &Path) -> bool {
        let Some(id) = whose(dir).await else { return false };
        if self.image.topic_by_id(id).is_some() {
            return false;
        }
        if self.deleted.is_none() {
            let deleted = self.log.deleted_topics().await;
            let deleted = deleted.unwrap_or_else(|error| {
                warn!("it is not known which topics were deleted: {error}");
                HashSet::new()
            });
            self.deleted = Some(deleted);
        }
        self.deleted.as_ref().is_some_and(|deleted| deleted.contains(&id))
    }

    /// The name goes first, so that a crash amid the removal leaves nothing that looks whole.
    async fn remove(&mut self, dir: &Path) {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let unique = [reactor::random_u64(), reactor::random_u64()];
        let to = dir.with_file_name(log::deleted_dir_name(name, unique));
        match fs::rename(dir, &to).await {
            Ok(()) => {
                info!("{} is of a topic that was deleted; it is removed", dir.display());
                self.removed.push(to);
            }
            Err(error) => {
                warn!("{} is of a deleted topic and stays: {error}", dir.display());
            }
        }
    }
}

/// The topic that a folder says it is of. A power cut may have taken one of the two that say it.
async fn whose(dir: &Path) -> Option<Uuid> {
    if let Ok(Some(id)) = checkpoints::read_partition_metadata(dir).await {
        return Some(id);
    }
    let own = fs::read(&dir.join(OWN_CHECKPOINT)).await.ok()?;
    describe_checkpoint(&own).ok().map(|own| own.topic_id).filter(|id| !id.is_zero())
}
