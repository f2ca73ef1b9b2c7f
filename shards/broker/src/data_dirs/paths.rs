//! Where data directories were at earlier starts, so that one that is not named any more can be
//! named.
//!
//! Owns: `corelane.directories`, beside the metadata log. Lives on shard 0. For people only:
//! nothing is decided by it.
//!
//! ```text
//! dir 5WlAQ1sNQlSu3rRk1eXOvA /disk2/corelane 0b1f3a77
//! ```
//! The last word of a line is a CRC-32C of what is before it; a line where it is wrong does not
//! count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use meta::Image;
use reactor::fs;
use tracing::debug;
use wire::Uuid;

use super::DataDirs;
use super::made::{checked, end_line};

pub const FILE: &str = "corelane.directories";

/// Learns where directories were that are not named now, and writes down where the others are.
pub(crate) async fn settle(dirs: &DataDirs, metadata_dir: &Path, image: &Image) {
    let path = metadata_dir.join(FILE);
    let bytes = fs::read(&path).await.unwrap_or_default();
    let before = decode(&bytes);
    let mut known = before.clone();
    known.retain(|id, _| !image.in_directory(*id).is_empty());
    for number in 0..dirs.len() {
        if let (Some(id), Some(path)) = (dirs.id(number), dirs.path(number)) {
            known.insert(id, path.to_path_buf());
        }
    }
    if known != before
        && let Err(error) = fs::write_atomic(&path, encode(&known)).await
    {
        debug!("{} not written: {error}", path.display());
    }
    dirs.set_known_paths(known);
}

fn encode(known: &BTreeMap<Uuid, PathBuf>) -> Vec<u8> {
    let mut text = String::new();
    for (id, path) in known {
        // A name with a line break cannot be told in a line.
        let path = path.to_string_lossy().replace('\n', " ");
        end_line(format!("dir {id} {path}"), &mut text);
    }
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> BTreeMap<Uuid, PathBuf> {
    let line = |line| {
        let (id, path) = checked(line)?.strip_prefix("dir ")?.split_once(' ')?;
        Some((id.parse().ok()?, PathBuf::from(path)))
    };
    bytes.split(|byte| *byte == b'\n').filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use wire::messages::{PartitionRecord, TopicRecord};

    use super::*;
    use crate::DataDirStart;

    #[test]
    fn a_directory_that_is_not_named_any_more_is_told_with_its_path() {
        let start = |numbers: &[u8]| {
            let dir = |n: &u8| DataDirStart {
                path: format!("/disk{n}").into(),
                id: Some(Uuid([*n; 16])),
                failure: None,
            };
            DataDirs::new(numbers.iter().map(dir).collect())
        };
        let ran = reactor::sim::World::new(1).run(move || async move {
            let beside = Path::new("/disk1");
            assert!(fs::create_dir_all(beside).await.is_ok());
            let mut image = Image::new("c");
            let topic = TopicRecord { name: "t".into(), topic_id: Uuid([9; 16]) };
            let partition = PartitionRecord {
                partition_id: 0,
                topic_id: topic.topic_id,
                directories: vec![Uuid([2; 16])].into(),
                replicas: vec![1000].into(),
                isr: vec![1000].into(),
                leader: 1000,
                ..PartitionRecord::default()
            };
            assert!(image.apply(&topic.into()).is_ok());
            assert!(image.apply(&partition.into()).is_ok());
            settle(&start(&[1, 2, 3]), beside, &image).await;
            let dirs = start(&[1]);
            settle(&dirs, beside, &image).await;
            [2, 3].map(|n| dirs.usable_with_id(Uuid([n; 16])).unwrap_err())
        });
        let [used, unused] = ran.finished().unwrap();
        assert!(used.contains("start with --data-dir /disk2"), "{used}");
        assert!(!unused.contains("/disk3"), "nothing is there any more: {unused}");
    }

    #[test]
    fn paths_read_back_whatever_is_in_them_and_damage_does_not() {
        let known = BTreeMap::from([
            (Uuid([1; 16]), PathBuf::from("/disk1")),
            (Uuid([0xfb; 16]), PathBuf::from("/mnt/a disk with spaces/ü")),
        ]);
        let bytes = encode(&known);
        assert_eq!(decode(&bytes), known);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(decode(&flipped).iter().all(|(id, path)| known.get(id) == Some(path)), "{at}");
        }
    }
}
