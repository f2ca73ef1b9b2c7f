//! Whose directory is this: the ids in its `meta.properties`.
//!
//! The process writes and checks that file when it starts; here it is only read, to be sure that a
//! directory is still the one it was: a disk that vanished leaves an empty mount point behind.

use std::io::{self, ErrorKind};
use std::path::Path;

use reactor::fs;
use wire::Uuid;

pub(crate) const META_PROPERTIES: &str = "meta.properties";

/// The ids that a directory carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub directory_id: Option<Uuid>,
    pub cluster_id: Option<String>,
}

/// `None`: the directory has no `meta.properties`.
pub(crate) async fn read(dir: &Path) -> io::Result<Option<Identity>> {
    let bytes = match fs::read(&dir.join(META_PROPERTIES)).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let value = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    Ok(Some(Identity {
        directory_id: value("directory.id").and_then(|id| id.parse().ok()),
        cluster_id: value("cluster.id"),
    }))
}

/// Whether the directory is the one with this id.
///
/// # Errors
/// Why it is not, or cannot be told.
pub(crate) async fn check(dir: &Path, cluster_id: &str, id: Option<Uuid>) -> Result<Uuid, String> {
    let found = match read(dir).await {
        Ok(Some(found)) => found,
        Ok(None) => return Err(format!("its {META_PROPERTIES} is gone")),
        Err(error) => return Err(format!("its {META_PROPERTIES} cannot be read: {error}")),
    };
    if found.cluster_id.as_deref() != Some(cluster_id) {
        let cluster = found.cluster_id.unwrap_or_default();
        return Err(format!("its {META_PROPERTIES} is of cluster `{cluster}`"));
    }
    match (found.directory_id, id) {
        (Some(found), Some(known)) if found != known => {
            Err(format!("another directory ({found}) is in its place; start again to use it"))
        }
        (Some(found), _) => Ok(found),
        (None, _) => Err(format!("its {META_PROPERTIES} has no directory.id")),
    }
}
