//! The names of the files and folders of a log.
//!
//! Owns: how a base offset becomes a file name and back, the suffixes of a file's life, and the
//! `<topic>-<partition>` folder name. Pure text: it never touches a disk.
//!
//! ```text
//! <topic>-<partition>/                        a partition
//! <topic>-<partition>.<32 hex>-delete/        a deleted partition on its way out
//!   00000000000000000000.log                  record batches, back to back
//!   00000000000000000000.index                offset -> position
//!   00000000000000000000.timeindex            timestamp -> offset
//!   00000000000000000000.snapshot             producer state before this offset
//!   00000000000000000000.log.deleted          past retention, unlinked after a delay
//!   00000000000000000000.log.cleaned          a compacted segment in the making
//!   00000000000000000000.log.swap             a compacted segment that takes its place
//!   00000000000000000000.log.aside-<ms>       lay behind damage; goes retention.ms later
//!   next-segment.prepared                     made ahead for the next roll; never holds data
//! ```

use std::path::{Path, PathBuf};

/// Digits of a base offset in a file name; `i64::MAX` has 19, Kafka pads to 20.
const OFFSET_DIGITS: usize = 20;
/// Kafka keeps folder names within 255 bytes, which bounds the topic's name at 249.
const MAX_DIR_NAME: usize = 255;

pub(crate) const DELETED_SUFFIX: &str = ".deleted";
pub(crate) const TMP_SUFFIX: &str = ".tmp";
/// A segment that compaction makes and that counts for nothing yet.
pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";
/// A made segment on its way to its place.
pub(crate) const SWAP_SUFFIX: &str = ".swap";
/// A segment that cannot be reached any longer.
const ASIDE: &str = ".log.aside-";
pub(crate) const PREPARED_FILE: &str = "next-segment.prepared";
/// Kafka's mark of a copy that will take the place of the partition's folder on another disk.
const DIR_FUTURE_SUFFIX: &str = "-future";
const DIR_DELETE_SUFFIX: &str = "-delete";

/// The kinds of files that carry a base offset in their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    Snapshot,
}

impl FileKind {
    /// The files that live and die with a segment.
    pub(crate) const OF_SEGMENT: [FileKind; 5] = [
        FileKind::Log,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TxnIndex,
        FileKind::Snapshot,
    ];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            FileKind::Log => ".log",
            FileKind::OffsetIndex => ".index",
            FileKind::TimeIndex => ".timeindex",
            FileKind::TxnIndex => ".txnindex",
            FileKind::Snapshot => ".snapshot",
        }
    }
}

/// What a file found in a partition's folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Of(FileKind, i64),
    /// Half-made or half-deleted: safe to remove when the log is opened.
    Leftover,
    /// Not one of ours to touch: checkpoints, metadata, files of an operator.
    Other,
}

pub(crate) fn file_name(kind: FileKind, base_offset: i64) -> String {
    format!("{base_offset:0width$}{}", kind.suffix(), width = OFFSET_DIGITS)
}

pub(crate) fn file_path(dir: &Path, kind: FileKind, base_offset: i64) -> PathBuf {
    dir.join(file_name(kind, base_offset))
}

pub(crate) fn deleted_path(path: &Path) -> PathBuf {
    with_suffix(path, DELETED_SUFFIX)
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The name that a segment takes when it lies behind damage: none of a log's files.
pub(crate) fn aside_path(path: &Path, now_ms: i64) -> PathBuf {
    with_suffix(path, &format!(".aside-{now_ms}"))
}

/// The offset at which a segment that was set aside begins, and the wall-clock time of that; `None`
/// for any other file.
pub(crate) fn parse_aside(name: &str) -> Option<(i64, i64)> {
    let (digits, ms) = name.split_once(ASIDE)?;
    Some((parse_offset(digits)?, ms.parse().ok()?))
}

/// The offset at which a segment begins that is on its way out and that this is a file of.
pub(crate) fn parse_deleted(name: &str) -> Option<i64> {
    match classify(name.strip_suffix(DELETED_SUFFIX)?) {
        Found::Of(_, base) => Some(base),
        Found::Leftover | Found::Other => None,
    }
}

pub(crate) fn classify(name: &str) -> Found {
    let half_made = [DELETED_SUFFIX, TMP_SUFFIX, CLEANED_SUFFIX];
    if name == PREPARED_FILE || half_made.iter().any(|suffix| name.ends_with(suffix)) {
        return Found::Leftover;
    }
    for kind in FileKind::OF_SEGMENT {
        if let Some(digits) = name.strip_suffix(kind.suffix()) {
            return match parse_offset(digits) {
                Some(offset) => Found::Of(kind, offset),
                None => Found::Other,
            };
        }
    }
    Found::Other
}

fn parse_offset(digits: &str) -> Option<i64> {
    let plain = digits.len() == OFFSET_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// The folder of a partition: `<topic>-<partition>`.
pub fn partition_dir_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// The topic and partition of a folder name; `None` for folders on their way out and for
/// anything that is no partition.
pub fn parse_partition_dir_name(name: &str) -> Option<(String, i32)> {
    let (topic, number) = name.rsplit_once('-')?;
    let canonical = number == "0" || !number.starts_with('0');
    if topic.is_empty() || !canonical || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((topic.to_owned(), number.parse().ok()?))
}

/// Whether a folder is a deleted partition whose files may be removed.
pub fn is_deleted_dir_name(name: &str) -> bool {
    name.strip_suffix(DIR_DELETE_SUFFIX)
        .and_then(|rest| rest.rsplit_once('.'))
        .is_some_and(|(_, hex)| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The folder that a copy of a partition is made in, on another disk.
pub fn future_dir_name(partition_dir_name: &str, unique: [u64; 2]) -> String {
    unique_dir_name(partition_dir_name, unique, DIR_FUTURE_SUFFIX)
}

/// The partition's folder name, if this is the folder of a copy that is being made.
pub fn parse_future_dir_name(name: &str) -> Option<&str> {
    let (partition, hex) = name.strip_suffix(DIR_FUTURE_SUFFIX)?.rsplit_once('.')?;
    let is_unique = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    (is_unique && parse_partition_dir_name(partition).is_some()).then_some(partition)
}

/// The name a partition's folder takes when its topic is deleted. A long name is cut so that the
/// result still is a legal folder name.
pub fn deleted_dir_name(name: &str, unique: [u64; 2]) -> String {
    unique_dir_name(name, unique, DIR_DELETE_SUFFIX)
}

fn unique_dir_name(name: &str, unique: [u64; 2], suffix: &str) -> String {
    let tail = format!(".{:016x}{:016x}{suffix}", unique[0], unique[1]);
    let mut keep = name.len().min(MAX_DIR_NAME - tail.len());
    while !name.is_char_boundary(keep) {
        keep -= 1;
    }
    format!("{}{tail}", &name[..keep])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_twenty_digits_and_read_back() {
        assert_eq!(file_name(FileKind::Log, 0), "00000000000000000000.log");
        assert_eq!(file_name(FileKind::TimeIndex, 4711), "00000000000000004711.timeindex");
        for kind in FileKind::OF_SEGMENT {
            assert_eq!(classify(&file_name(kind, i64::MAX)), Found::Of(kind, i64::MAX));
        }
    }

    #[test]
    fn foreign_and_half_made_files_are_told_apart() {
        let table = [
            ("leader-epoch-checkpoint", Found::Other),
            ("partition.metadata", Found::Other),
            ("0000000000000000000.log", Found::Other),
            ("00000000000000000-01.log", Found::Other),
            ("99999999999999999999.log", Found::Other),
            ("00000000000000000000.log.deleted", Found::Leftover),
            ("00000000000000000000.index.cleaned", Found::Leftover),
            ("leader-epoch-checkpoint.tmp", Found::Leftover),
            ("00000000000000000000.log.aside-1700000000000", Found::Other),
            (PREPARED_FILE, Found::Leftover),
        ];
        for (name, expected) in table {
            assert_eq!(classify(name), expected, "{name}");
        }
    }

    #[test]
    fn what_was_set_aside_says_where_it_begins_and_since_when() {
        let path = aside_path(&file_path(Path::new("/d"), FileKind::Log, 4711), 1_700_000_000_000);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        assert_eq!(parse_aside(name), Some((4711, 1_700_000_000_000)));
        for other in
            ["00000000000000000000.log", "x.log.aside-1", "00000000000000000000.log.aside-"]
        {
            assert_eq!(parse_aside(other), None, "{other}");
        }
    }

    #[test]
    fn partition_folders_read_back_and_strangers_do_not() {
        for (topic, partition) in [("a", 0), ("with-dash", 12), ("a.b_c", i32::MAX)] {
            let name = partition_dir_name(topic, partition);
            assert_eq!(parse_partition_dir_name(&name), Some((topic.to_owned(), partition)));
        }
        for name in ["a", "-0", "a-", "a-01", "a--", "a-99999999999", "a-1.0f-delete", "a-1-stray"]
        {
            assert_eq!(parse_partition_dir_name(name), None, "{name}");
        }
    }

    #[test]
    fn deleted_folders_are_recognised_and_stay_legal() {
        let name = deleted_dir_name(&partition_dir_name(&"t".repeat(249), 12345), [1, u64::MAX]);
        assert!(name.len() <= MAX_DIR_NAME, "{}", name.len());
        assert!(is_deleted_dir_name(&name));
        assert_eq!(parse_partition_dir_name(&name), None);
        assert!(!is_deleted_dir_name("a-delete"));
    }
}
