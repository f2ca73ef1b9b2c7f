//! Putting a new segment in the place of old ones, whole or not at all.
//!
//! Owns: the order of renames and syncs, and what becomes of them when a log is opened after a
//! crash. Whoever replaces segment files goes through here. Lives on the log's shard.
//!
//! `5`, `9` and `14` become a new `5`; `|` is a sync of the folder, after which a power cut keeps
//! everything before it:
//!
//! | step | names | a crash behind it |
//! |---|---|---|
//! | made | `5.log.cleaned` `5.index.cleaned` ..., synced | is undone |
//! | prepared | indexes become `5.index.swap` ... `\|` | is undone |
//! | **decided** | `5.log.cleaned` becomes `5.log.swap` `\|` | is finished |
//! | cleared | `9.*`, `14.*` become `.deleted`; indexes of `5` get their names `\|` | is finished |
//! | done | `5.log.swap` becomes `5.log` `\|` | nothing to do |
//!
//! The last rename takes the place of the old `5.log`. A reader with an open file goes on with the
//! old bytes; the state in memory changes at once, when all is done, and counts up
//! `State::replaced`: whoever remembers a position looks at it before the position is used.
//! Meanwhile nobody opens a file of this log by name (`Core::swapping`).
//!
//! An undone swap leaves the old segments, a finished one removes those that lie between the new
//! one's base and its last batch. An old segment behind that, of which nothing is left in the new
//! one, may stay: it holds only what the next pass drops again.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::{File, OpenOptions, fs};

use super::clean::Working;
use super::output::{self, Made};
use crate::checkpoint::{self, Checkpoint};
use crate::checkpoints::{RECOVERY_POINTS, encode_own_offset, read_if_there};
use crate::core::{Core, State};
use crate::error::LogError;
use crate::files::remove_if_there;
use crate::keeper;
use crate::names::{
    CLEANED_SUFFIX, FileKind, Found, SWAP_SUFFIX, classify, deleted_path, file_name, file_path,
    with_suffix,
};
use crate::retention;
use crate::scan::{Found as Scanned, Scanner};
use crate::segment::Segment;

/// What may stay at its old name while a swap is decided.
const BESIDE: [FileKind; 3] = [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex];

/// Replaces the sealed neighbours `old` by the segment that was made of them. Waits for other
/// upkeep. If the old ones are not all there any longer, nothing is replaced.
pub(crate) async fn replace_segments(
    core: &Rc<Core>,
    working: &Working,
    old: &[i64],
    made: Made,
) -> Result<(), LogError> {
    working.waits(true);
    let permit = core.upkeep.acquire(1).await;
    working.waits(false);
    let done = replace_held(core, old, made).await;
    drop(permit);
    done
}

async fn replace_held(core: &Rc<Core>, old: &[i64], made: Made) -> Result<(), LogError> {
    // A closed log may have been opened anew: its folder is not ours any longer.
    core.check_open()?;
    let dir = core.dir();
    let failed =
        |error| LogError::from(core.storage_error("putting a segment in its place", error));
    if !core.state.borrow().are_neighbours(old) {
        output::remove(&dir, made.base).await.map_err(failed)?;
        let start = core.state.borrow().log_start;
        return Err(LogError::Trimmed { offset: made.base, start });
    }
    // Offsets may have holes from here on; recovery accepts those below the recovery point.
    let point = core.state.borrow().recovery_point;
    let prepared = async {
        fs::write_atomic(&dir.join(RECOVERY_POINTS), encode_own_offset(&dir, point)).await?;
        unlist(core, &dir, old).await?;
        prepare(&dir, made.base).await
    };
    if let Err(error) = prepared.await {
        if let Err(error) = undo(&dir, made.base).await {
            tracing::warn!(log = %core.name, base = made.base, "half a swap stays: {error}");
        }
        return Err(failed(error));
    }
    let alone = core.swapping.acquire(1).await;
    let renamed = async {
        decide(&dir, made.base).await?;
        complete(&dir, made.base, old).await
    };
    let renamed = match renamed.await {
        Ok(renamed) => renamed,
        // Maybe decided, and not done: the next opening finishes it. To go on with the old segments
        // and replace others before that would make it finish over newer ones.
        Err(error) => {
            let error = core.storage_error("putting a segment in its place", error);
            core.poison(error.clone());
            return Err(error.into());
        }
    };
    let gone = core.state.borrow_mut().put_in_place(old, made);
    // Outside of the borrow: memory that comes back wakes those who wait for it.
    drop(gone);
    drop(alone);
    retention::unlink_later(core, renamed, false);
    Ok(())
}

impl State {
    fn are_neighbours(&self, old: &[i64]) -> bool {
        let Some(place) = old.first().and_then(|base| self.place_of(*base)) else { return false };
        let there = self.segments.range(place..).filter(|s| s.sealed).map(|s| s.base);
        there.take(old.len()).eq(old.iter().copied())
    }

    /// Takes the old segments out of the log, and everything that points into them.
    fn put_in_place(&mut self, old: &[i64], made: Made) -> Vec<Segment> {
        self.replaced += 1;
        let Some(place) = self.place_of(made.base) else { return Vec::new() };
        let mut gone: Vec<Segment> = self.segments.drain(place..place + old.len()).collect();
        let next_offset = gone.last().map_or(made.base, |s| s.next_offset);
        let mut segment = Segment::on_disk(made.base, next_offset, made.size);
        segment.newest = made.newest;
        segment.first_timestamp = made.first_timestamp;
        segment.snapshot = gone.first_mut().and_then(|s| s.snapshot.take());
        self.segments.insert(place, segment);
        self.forget_bookmarks(old);
        self.damage = None;
        gone
    }
}

/// What the checkpoint vouches for must be there when the log is opened: it lets go of segments
/// before they go. One that names a position in such a segment is removed; what it also says, the
/// recovery point and the snapshots say. The next flush writes one that lists what is there then.
async fn unlist(core: &Core, dir: &Path, old: &[i64]) -> io::Result<()> {
    let path = dir.join(checkpoint::FILE);
    let Some(bytes) = read_if_there(&path).await? else { return Ok(()) };
    match Checkpoint::decode(&bytes) {
        Ok(mut known) if !old.contains(&known.end.base) => {
            if !known.unlist(old) {
                return Ok(());
            }
            {
                let mut state = core.state.borrow_mut();
                state.checkpointed = -1;
                state.changed_since_flush = true;
            }
            fs::write_atomic(&path, known.encode()).await
        }
        Ok(_) | Err(_) => keeper::forget_checkpoint(core).await,
    }
}

fn named(dir: &Path, kind: FileKind, base: i64, suffix: &str) -> PathBuf {
    with_suffix(&file_path(dir, kind, base), suffix)
}

/// Up to the rename that decides. After a failure all of it can be undone.
async fn prepare(dir: &Path, base: i64) -> io::Result<()> {
    for kind in BESIDE {
        let from = named(dir, kind, base, CLEANED_SUFFIX);
        rename_if_there(&from, &named(dir, kind, base, SWAP_SUFFIX)).await?;
    }
    fs::sync_dir(dir).await
}

/// Takes back what is not decided. An index that has its `.swap` name counts as long as no
/// `.cleaned` file says that it does not: it goes first, durably.
async fn undo(dir: &Path, base: i64) -> io::Result<()> {
    for kind in BESIDE {
        remove_if_there(&named(dir, kind, base, SWAP_SUFFIX)).await?;
    }
    fs::sync_dir(dir).await?;
    output::remove(dir, base).await
}

async fn decide(dir: &Path, base: i64) -> io::Result<()> {
    let from = named(dir, FileKind::Log, base, CLEANED_SUFFIX);
    fs::rename(&from, &named(dir, FileKind::Log, base, SWAP_SUFFIX)).await?;
    fs::sync_dir(dir).await
}

/// From there to the end. Returns the files that are to be unlinked.
async fn complete(dir: &Path, base: i64, old: &[i64]) -> io::Result<Vec<PathBuf>> {
    let mut deleted = Vec::new();
    for gone in old.iter().copied().filter(|gone| *gone != base) {
        for kind in FileKind::OF_SEGMENT {
            let from = file_path(dir, kind, gone);
            let to = deleted_path(&from);
            if rename_if_there(&from, &to).await? {
                deleted.push(to);
            }
        }
    }
    for kind in BESIDE {
        rename_if_there(&named(dir, kind, base, SWAP_SUFFIX), &file_path(dir, kind, base)).await?;
    }
    fs::sync_dir(dir).await?;
    let from = named(dir, FileKind::Log, base, SWAP_SUFFIX);
    fs::rename(&from, &file_path(dir, FileKind::Log, base)).await?;
    fs::sync_dir(dir).await?;
    Ok(deleted)
}

async fn rename_if_there(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::rename(from, to).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Finishes or undoes what a crash interrupted in a partition's folder. To be called before
/// anything else looks at the folder. Returns how many swaps were finished.
///
/// Kafka renames in another order, so its unfinished swaps are told by the same rules as its own:
/// any `.cleaned` file beside a `.swap` means undecided.
pub(crate) async fn finish(dir: &Path) -> io::Result<usize> {
    let names: Vec<String> = fs::read_dir(dir).await?.into_iter().map(|entry| entry.name).collect();
    let of = |suffix: &str| -> Vec<(FileKind, i64)> {
        let stems = names.iter().filter_map(|name| name.strip_suffix(suffix));
        let known = stems.filter_map(|stem| match classify(stem) {
            Found::Of(kind, base) => Some((kind, base)),
            Found::Leftover | Found::Other => None,
        });
        known.collect()
    };
    let (cleaned, swapped) = (of(CLEANED_SUFFIX), of(SWAP_SUFFIX));
    let has_log = |base: i64| names.contains(&file_name(FileKind::Log, base));
    // Of several segments that Kafka makes of one, it renames the first one last.
    let undecided = |base: i64| {
        let made = |other: i64| other == base || (other < base && !has_log(base));
        cleaned.iter().any(|(_, other)| made(*other))
    };
    let mut finished = 0;
    for (kind, base) in swapped.iter().copied() {
        if undecided(base) {
            remove_if_there(&named(dir, kind, base, SWAP_SUFFIX)).await?;
        } else if kind == FileKind::Log {
            finish_one(dir, base, &names).await?;
            finished += 1;
        }
    }
    for (kind, base) in swapped {
        // Kafka gives the log its name first.
        if kind != FileKind::Log && !undecided(base) {
            let from = named(dir, kind, base, SWAP_SUFFIX);
            rename_if_there(&from, &file_path(dir, kind, base)).await?;
        }
    }
    for (kind, base) in cleaned {
        remove_if_there(&named(dir, kind, base, CLEANED_SUFFIX)).await?;
    }
    Ok(finished)
}

async fn finish_one(dir: &Path, base: i64, names: &[String]) -> io::Result<()> {
    let end = end_of(&named(dir, FileKind::Log, base, SWAP_SUFFIX), base).await?;
    let covered = names.iter().filter_map(|name| match classify(name) {
        Found::Of(FileKind::Log, other) if other > base && other < end => Some(other),
        _ => None,
    });
    let old: Vec<i64> = covered.collect();
    tracing::info!(dir = %dir.display(), base, end, old = old.len(), "finishing a swap of segments");
    for deleted in complete(dir, base, &old).await? {
        remove_if_there(&deleted).await?;
    }
    Ok(())
}

/// The offset behind the last batch of a segment that was synced before it got this name.
async fn end_of(path: &Path, base: i64) -> io::Result<i64> {
    let options = OpenOptions { read: true, write: true, direct: true, ..OpenOptions::default() };
    let file = File::open(path, options).await?;
    let size = u32::try_from(file.size().await?).map_err(io::Error::other)?;
    let mut scanner = Scanner::new(file, 0, size);
    let mut end = base;
    loop {
        match scanner.next(false).await? {
            Scanned::Batch(header, _) => end = header.next_offset(),
            Scanned::End => return Ok(end),
            Scanned::Zeros => return Err(damaged(path, "zeros")),
            Scanned::Damage(problem) => return Err(damaged(path, &problem)),
        }
    }
}

fn damaged(path: &Path, problem: &str) -> io::Error {
    let text =
        format!("{} is damaged: {problem}; put the partition back from a copy", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
