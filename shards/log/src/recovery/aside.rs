//! Keeping what is whole and safe behind the place where damage ends the log.
//!
//! Owns: which segments are set aside instead of removed, and the copy of the rest of the damaged
//! one. Nothing that was set aside is read again by a log; see `crate::aside` for its life.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use bytes::Bytes;
use reactor::{ALIGN, AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;

use super::Opening;
use super::inventory::OnDisk;
use crate::aside::Aside;
use crate::error::LogError;
use crate::names::{self, FileKind, TMP_SUFFIX, file_path};
use crate::scan::{self, Found, Scanner};
use crate::segment::Segment;

/// What is copied at once.
const WINDOW: usize = 1 << 20;

impl Opening {
    /// The segment that is to be cut ends before what was safe: copies what is whole behind the
    /// damage, from the next sound batch on, before it goes.
    pub(super) async fn keep_rest(
        &mut self,
        segments: &VecDeque<Segment>,
        on_disk: OnDisk,
        safe_end: i64,
    ) -> Result<(), LogError> {
        let Some(segment) = segments.back().filter(|s| s.next_offset < safe_end) else {
            return Ok(());
        };
        let Some(file) = segment.file.clone() else { return Ok(()) };
        let (from, end) = (segment.size, on_disk.size);
        let kept = async {
            let found = scan::find_batch(&file, from, end, segment.next_offset).await?;
            let Some(start) = found else { return Ok(None) };
            let mut first = Scanner::new(file.clone(), start, end);
            let Found::Batch(header, _) = first.next(false).await? else { return Ok(None) };
            let (base, bytes) = (header.base_offset, u64::from(end - start));
            let is_kept = |a: &Aside| {
                a.bytes == bytes && names::parse_aside(&a.name).is_some_and(|(at, _)| at == base)
            };
            // By an opening that did not come to its end.
            if self.aside.iter().any(is_kept) {
                return Ok(None);
            }
            let to = names::aside_path(&file_path(&self.dir, FileKind::Log, base), self.now_ms);
            copy(&file, start.into(), end.into(), &to).await?;
            fs::sync_dir(&self.dir).await?;
            Ok(Some((to, bytes)))
        };
        let kept = kept.await.map_err(|error| self.fail("setting the rest aside", error))?;
        if let Some((path, bytes)) = kept {
            tracing::warn!(log = %self.name, bytes, "{} is set aside", path.display());
            self.aside.extend(Aside::of_path(&path, bytes));
        }
        Ok(())
    }

    /// Whether a segment begins with a batch of its own that can be read.
    pub(super) async fn begins_sound(&self, segment: OnDisk) -> Result<bool, LogError> {
        if segment.size == 0 {
            return Ok(false);
        }
        let file = self.open_file(segment.base, false).await?;
        let found = Scanner::new(file, 0, segment.size).next(true).await;
        let found = found.map_err(|error| self.fail("reading a segment", error))?;
        Ok(matches!(found, Found::Batch(header, _) if header.base_offset >= segment.base))
    }

    /// A whole segment that was safe.
    pub(super) async fn set_aside(&mut self, segment: OnDisk) -> Result<(), LogError> {
        let from = file_path(&self.dir, FileKind::Log, segment.base);
        let to = names::aside_path(&from, self.now_ms);
        tracing::warn!(log = %self.name, "{} is set aside", to.display());
        let renamed = fs::rename(&from, &to).await;
        renamed.map_err(|error| self.fail("setting a segment aside", error))?;
        self.aside.extend(Aside::of_path(&to, segment.size.into()));
        Ok(())
    }

    /// Said at every opening, until it is gone.
    pub(super) fn tell_aside(&self) {
        let bytes: u64 = self.aside.iter().map(|aside| aside.bytes).sum();
        if let Some(first) = self.aside.first() {
            tracing::warn!(log = %self.name, files = self.aside.len(), bytes, first = first.name,
                "records that lay behind damage are set aside; they take their space until \
                 retention.ms has passed or somebody removes them");
        }
    }
}

/// Copies a range of a file that is read directly; the copy is durable but for its name.
async fn copy(file: &File, from: u64, end: u64, to: &Path) -> io::Result<()> {
    let half_made = names::with_suffix(to, TMP_SUFFIX);
    let options = OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let copy = File::open(&half_made, options).await?;
    let mut at = from / ALIGN as u64 * ALIGN as u64;
    while at < end {
        let (read, data) = file.read_at(AlignedBuf::with_capacity(WINDOW), at).await;
        let read = (read? as u64).min(end - at);
        let skip = from.saturating_sub(at);
        let Some(bytes) = data.get(skip as usize..read as usize).filter(|b| !b.is_empty()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let bytes = smallvec![WriteBuf::Bytes(Bytes::copy_from_slice(bytes))];
        copy.write_at(bytes, at + skip - from, Durability::Written).await?;
        at += read;
    }
    copy.sync_all().await?;
    copy.close().await?;
    fs::rename(&half_made, to).await
}
