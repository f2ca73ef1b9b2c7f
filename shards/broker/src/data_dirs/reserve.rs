//! The reserve: a file in each data directory that holds space for the broker's own needs.
//!
//! When a disk has nothing left, the file is cut to a last piece, and checkpoints, deletions and
//! recovery have what it held; producers are refused long before. The last piece is for changes of
//! metadata that find no space even so: without them no topic could be deleted. It is made anew
//! when there is plenty again. Shard 0 alone touches it.

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
    if marks.is_exhausted(space) && has > marks.last_reserve() {
        return cut(dir, has, marks.last_reserve()).await;
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

/// A change of metadata has found no space: lets go of a piece of the reserve. `false`: there is
/// none left.
pub(crate) async fn give_up_some(dir: &Path) -> bool {
    let path = dir.join(FILE_NAME);
    let given_up = async {
        let has = fs::metadata(&path).await?.size;
        let last = Marks::of(fs::space(dir).await?.total).last_reserve();
        cut(dir, has, if has > last { last } else { 0 }).await
    };
    match given_up.await {
        Ok(()) => true,
        Err(error) => {
            debug!("{}: nothing of a reserve could be let go: {error}", dir.display());
            false
        }
    }
}

async fn cut(dir: &Path, has: u64, to: u64) -> io::Result<()> {
    let path = dir.join(FILE_NAME);
    if to == 0 {
        fs::remove_file(&path).await?;
        fs::sync_dir(dir).await?;
    } else {
        let options = OpenOptions { write: true, ..Default::default() };
        let file = File::open(&path, options).await?;
        file.set_len(to).await?;
        // Only then may the file system give the blocks to somebody else.
        file.sync_all().await?;
        file.close().await?;
    }
    warn!("{} has no space left: {} bytes of its reserve are let go", dir.display(), has - to);
    Ok(())
}

async fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let options = OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let file = File::open(path, options).await?;
    file.allocate(0, bytes, Allocate::Extend).await?;
    file.sync_all().await?;
    file.close().await
}
