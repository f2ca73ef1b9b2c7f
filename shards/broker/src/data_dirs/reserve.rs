//! The reserve: a file in each data directory that holds space for the broker's own needs.
//!
//! When a disk has nothing left, the file is removed, and checkpoints, metadata, deletions and
//! recovery have what it held; producers are refused long before. It is made anew when there is
//! plenty again. Shard 0 alone touches it.

use std::io::{self, ErrorKind};
use std::path::Path;

use reactor::{Allocate, File, OpenOptions, fs};
use tracing::{debug, info, warn};

use super::space::Marks;

pub(crate) const FILE_NAME: &str = "corelane.reserve";

/// Makes the reserve, or lets go of it, as the free space asks for.
pub(crate) async fn settle(dir: &Path) -> io::Result<()> {
    let space = fs::space(dir).await?;
    let marks = Marks::of(space.total);
    let path = dir.join(FILE_NAME);
    let has = match fs::metadata(&path).await {
        Ok(found) => found.size,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    if marks.is_exhausted(space) && has > 0 {
        fs::remove_file(&path).await?;
        warn!("{} has no space left: its reserve of {has} bytes is let go", dir.display());
        return Ok(());
    }
    if has < marks.reserve && marks.may_reserve(space) {
        match make(&path, marks.reserve).await {
            Ok(()) => info!("{}: a reserve of {} bytes is kept", dir.display(), marks.reserve),
            Err(error) => {
                debug!("{}: no reserve: {error}", dir.display());
                let _ = fs::remove_file(&path).await;
            }
        }
    }
    Ok(())
}

async fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let options = OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let file = File::open(path, options).await?;
    file.allocate(0, bytes, Allocate::Extend).await?;
    file.sync_all().await?;
    file.close().await
}
