//! How far the partitions of a data directory have gone: a folder that was emptied, or replaced by an
//! older copy of itself, must not be taken for all there is.
//!
//! Owns: the file that says so, `corelane.offsets`, written with Kafka's checkpoints (`disk.rs`), off the
//! request path, and read by a start. What becomes of a log that ends before is the log's matter.
//!
//! ```text
//! boot 3d195973af144b8a8ac96b828df94e47 6c1c6a0f       the start of the machine that wrote this file
//! at 5WlAQ1sNQlSu3rRk1eXOvA 0 12 4711 4800 0b1f3a77    topic id, partition, log start, synced and written end
//! ```
//! The last word of a line is a CRC-32C of what is before it; a line where it is wrong does not count.
//!
//! A line is written when what it says holds: the start and the synced end outlast a power cut, the
//! written end is worth nothing once the machine was started anew. A partition that is offline, or still
//! being opened, keeps its line; one that is not here any more, by the metadata, loses it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use log::Vouched;
use reactor::fs;
use tracing::warn;
use wire::Uuid;

use super::made::{Key, checked, end_line};
use crate::mesh::CheckpointEntry;

pub const FILE: &str = "corelane.offsets";

/// What the file of a data directory says, by topic id and partition.
pub type Offsets = BTreeMap<Key, Vouched>;

/// A file that is not there says nothing.
///
/// # Errors
/// It cannot be read.
pub async fn read(data_dir: &Path) -> io::Result<Offsets> {
    let path = data_dir.join(FILE);
    let bytes = match fs::read(&path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Offsets::new()),
        read => read?,
    };
    let mut offsets = Offsets::new();
    let refused = decode(&bytes, reactor::boot_id(), &mut offsets);
    if refused > 0 {
        warn!("{}: {refused} lines are damaged and do not count", path.display());
    }
    Ok(offsets)
}

/// Replaces the file: what the partitions that are open say, and of the others that are here what it
/// said before.
pub(crate) async fn write(
    data_dir: &Path,
    is_here: impl Fn(&Key) -> bool,
    entries: &[CheckpointEntry],
) -> io::Result<()> {
    let mut offsets = read(data_dir).await?;
    offsets.retain(|key, _| is_here(key));
    let mut told = Offsets::new();
    for entry in entries {
        let key = (entry.topic_id, entry.partition);
        let now = Vouched {
            log_start: entry.log_start_offset,
            synced_end: entry.recovery_point,
            written_end: entry.written_end.max(entry.recovery_point),
        };
        // Of two shards that both have had it, the one that goes further is newer.
        let known = told.entry(key).or_insert(now);
        if known.written_end < now.written_end {
            *known = now;
        }
        reactor::yield_if_due().await;
    }
    offsets.extend(told);
    replace(data_dir, &offsets).await
}

/// Nothing is known any more of how far these topics have gone: what comes under their ids is something
/// else. For a broker that does not run.
///
/// # Errors
/// The file cannot be read or replaced.
pub async fn forget(data_dir: &Path, topics: &[Uuid]) -> io::Result<()> {
    let mut offsets = read(data_dir).await?;
    let before = offsets.len();
    offsets.retain(|(topic, _), _| !topics.contains(topic));
    match offsets.len() < before {
        true => replace(data_dir, &offsets).await,
        false => Ok(()),
    }
}

async fn replace(data_dir: &Path, offsets: &Offsets) -> io::Result<()> {
    let mut text = String::new();
    super::made::boot_line(reactor::boot_id(), &mut text);
    for ((topic, index), at) in offsets {
        let Vouched { log_start, synced_end, written_end } = at;
        end_line(format!("at {topic} {index} {log_start} {synced_end} {written_end}"), &mut text);
        reactor::yield_if_due().await;
    }
    fs::write_atomic(&data_dir.join(FILE), text.into_bytes()).await
}

/// How many lines of a file cannot be read.
pub fn damaged_lines(bytes: &[u8]) -> usize {
    decode(bytes, None, &mut Offsets::new())
}

/// Returns how many lines cannot be read.
fn decode(bytes: &[u8], boot: Option<[u8; 16]>, into: &mut Offsets) -> usize {
    let (mut is_this_boot, mut refused) = (false, 0);
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match checked(line).map(|line| line.split(' ').collect::<Vec<_>>()).as_deref() {
            Some(["boot", "-"]) => {}
            Some(["boot", id]) => {
                let id = u128::from_str_radix(id, 16).ok().map(u128::to_be_bytes);
                is_this_boot = id.is_some() && id == boot;
            }
            Some(["at", topic, index, offsets @ ..]) => {
                let line = || Some(((topic.parse().ok()?, index.parse().ok()?), at(offsets)?));
                match line() {
                    Some((key, vouched)) => drop(into.insert(key, vouched)),
                    None => refused += 1,
                }
            }
            _ => refused += 1,
        }
    }
    if !is_this_boot {
        for vouched in into.values_mut() {
            vouched.written_end = 0;
        }
    }
    refused
}

fn at(offsets: &[&str]) -> Option<Vouched> {
    let [log_start, synced_end, written_end] = offsets else { return None };
    Some(Vouched {
        log_start: log_start.parse().ok()?,
        synced_end: synced_end.parse().ok()?,
        written_end: written_end.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dirs::made::boot_line;

    const BOOT: Option<[u8; 16]> = Some([7; 16]);

    fn text() -> String {
        let mut text = String::new();
        boot_line(BOOT, &mut text);
        end_line(format!("at {} 3 1 20 300", Uuid([1; 16])), &mut text);
        end_line(format!("at {} 0 0 0 5", Uuid([0xfb; 16])), &mut text);
        text
    }

    fn of(text: &[u8], boot: Option<[u8; 16]>) -> (Offsets, usize) {
        let mut offsets = Offsets::new();
        let refused = decode(text, boot, &mut offsets);
        (offsets, refused)
    }

    #[test]
    fn what_was_only_written_counts_while_the_machine_runs() {
        let (offsets, refused) = of(text().as_bytes(), BOOT);
        assert_eq!(refused, 0);
        let whole = Vouched { log_start: 1, synced_end: 20, written_end: 300 };
        assert_eq!(offsets.get(&(Uuid([1; 16]), 3)), Some(&whole));
        assert_eq!(offsets.len(), 2);
        for other in [Some([8; 16]), None] {
            let (offsets, _) = of(text().as_bytes(), other);
            let synced = Vouched { written_end: 0, ..whole };
            assert_eq!(offsets.get(&(Uuid([1; 16]), 3)), Some(&synced));
        }
    }

    #[test]
    fn a_flip_anywhere_invents_nothing() {
        let (sound, _) = of(text().as_bytes(), BOOT);
        for at in 0..text().len() {
            let mut flipped = text().into_bytes();
            flipped[at] ^= 0x01;
            let (offsets, refused) = of(&flipped, BOOT);
            assert!(refused > 0, "byte {at}");
            for (key, vouched) in offsets {
                let known = sound.get(&key).copied().unwrap_or_default();
                assert_eq!(vouched.synced_end, known.synced_end, "byte {at}");
                assert!([0, known.written_end].contains(&vouched.written_end), "byte {at}");
            }
        }
    }
}
