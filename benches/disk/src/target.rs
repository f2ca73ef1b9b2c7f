//! The test file: it loses its name as soon as it is open, so its space is free again however this
//! process ends.
//!
//! Lives on the shard that measures. Every block is written before anything is measured: a disk
//! answers reads of what was never written without looking.

use std::path::Path;

use bytes::Bytes;
use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs, join_all};
use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::plan::{LARGEST_REQUEST, Plan};
use crate::stop::Stop;

const FILL_DEPTH: u64 = 8;

pub struct Target {
    pub file: File,
    pub bytes: u64,
    /// What is written: nothing that a device could squeeze.
    pub content: Bytes,
}

impl Target {
    /// Makes and fills the file in `dir`, which must be there.
    pub async fn make(dir: &Path, plan: &Plan, stop: &Stop) -> Result<Target> {
        let space = fs::space(dir).await.map_err(Error::io("look at", dir))?;
        let Some(bytes) = plan.file_bytes(space.available) else {
            let free = hardware::format_size(space.available);
            return Err(Error::TooFull { path: dir.to_owned(), free });
        };
        let path = dir.join(format!(".corelane-bench-{:016x}", reactor::random_u64()));
        let options = OpenOptions {
            read: true,
            write: true,
            create_new: true,
            direct: true,
            ..OpenOptions::default()
        };
        let file = File::open(&path, options).await.map_err(Error::io("create", &path))?;
        fs::remove_file(&path).await.map_err(Error::io("remove", &path))?;
        let mut buffer = AlignedBuf::zeroed(LARGEST_REQUEST as usize);
        reactor::fill_random(&mut buffer);
        let mut target = Target { file, bytes, content: buffer.freeze() };
        target.fill(plan, stop).await.map_err(Error::io("fill a file in", dir))?;
        match target.bytes {
            0 => Err(Error::Stopped),
            _ => Ok(target),
        }
    }

    /// Writes until the file is full or the time for it is over, and makes it durable.
    async fn fill(&mut self, plan: &Plan, stop: &Stop) -> std::io::Result<()> {
        let deadline = reactor::now() + plan.fill;
        let mut at = 0;
        while at < self.bytes && reactor::now() < deadline && !stop.requested() {
            let count = FILL_DEPTH.min((self.bytes - at) / LARGEST_REQUEST);
            let writes = (0..count).map(|n| self.write(at + n * LARGEST_REQUEST, LARGEST_REQUEST));
            for written in join_all(writes).await {
                written?;
            }
            at += count * LARGEST_REQUEST;
        }
        self.bytes = at;
        self.file.sync_all().await
    }

    pub async fn write(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        self.write_with(offset, bytes, Durability::Written).await
    }

    pub async fn write_with(
        &self,
        offset: u64,
        bytes: u64,
        durability: Durability,
    ) -> std::io::Result<()> {
        let content = self.content.slice(..bytes as usize);
        self.file.write_at(smallvec![WriteBuf::Bytes(content)], offset, durability).await
    }
}
