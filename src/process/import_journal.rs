//! The journal of an import: what it is doing to which folder, written before it does it.
//!
//! Owns the file `.import/journal.json` of a data directory, and the rule that no broker starts
//! while there is one: what an import has half put in place would be taken for strays. `cli/import`
//! writes it, and takes back or finishes what it tells of.

use std::path::{Path, PathBuf};

use reactor::fs;
use serde_json::{Value, json};

use crate::error::{Error, Result, plain};

/// In a data directory; partitions are prepared inside of it. No name of a partition.
pub const STAGING: &str = ".import";
const FILE: &str = "journal.json";

/// One partition on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub source: PathBuf,
    pub staged: PathBuf,
    pub place: PathBuf,
    /// The folder itself is moved, not a copy made.
    pub moved: bool,
    /// The source goes once the copy is in service.
    pub remove_source: bool,
}

/// An import under way. Its topics exist as soon as the metadata log has this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub topic_id: String,
    pub entries: Vec<Entry>,
}

impl Journal {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join(STAGING).join(FILE)
    }

    /// Durable when this returns. The folder is there.
    pub async fn write(&self, data_dir: &Path) -> std::io::Result<()> {
        let entries: Vec<Value> = self
            .entries
            .iter()
            .map(|entry| {
                json!({
                    "source": entry.source,
                    "staged": entry.staged,
                    "place": entry.place,
                    "moved": entry.moved,
                    "removeSource": entry.remove_source,
                })
            })
            .collect();
        let text = json!({"version": 1, "topicId": self.topic_id, "partitions": entries});
        fs::write_atomic(&Self::path(data_dir), text.to_string().into_bytes()).await
    }

    /// The journal of an import that was cut off, if there is one.
    pub async fn find(data_dirs: &[PathBuf]) -> Result<Option<(PathBuf, Journal)>> {
        for dir in data_dirs {
            let path = Self::path(dir);
            if !fs::exists(&path).await.map_err(|error| unreadable(&path, &plain(&error)))? {
                continue;
            }
            let bytes = fs::read(&path).await.map_err(|error| unreadable(&path, &plain(&error)))?;
            let parsed = Self::parse(&bytes);
            let journal = parsed.ok_or_else(|| unreadable(&path, "it is damaged"))?;
            return Ok(Some((dir.clone(), journal)));
        }
        Ok(None)
    }

    /// Removes the journal of a data directory, durably; fine if there is none.
    pub async fn remove(data_dir: &Path) -> std::io::Result<()> {
        let path = Self::path(data_dir);
        for path in [path.with_extension("json.tmp"), path] {
            match fs::remove_file(&path).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::sync_dir(&data_dir.join(STAGING)).await
    }

    fn parse(bytes: &[u8]) -> Option<Journal> {
        let json: Value = serde_json::from_slice(bytes).ok()?;
        if json.get("version")?.as_i64()? != 1 {
            return None;
        }
        let entry = |json: &Value| {
            let path = |name| Some(PathBuf::from(json.get(name)?.as_str()?));
            Some(Entry {
                source: path("source")?,
                staged: path("staged")?,
                place: path("place")?,
                moved: json.get("moved")?.as_bool()?,
                remove_source: json.get("removeSource")?.as_bool()?,
            })
        };
        let entries = json.get("partitions")?.as_array()?.iter().map(entry);
        Some(Journal {
            topic_id: json.get("topicId")?.as_str()?.to_owned(),
            entries: entries.collect::<Option<_>>()?,
        })
    }
}

/// A broker does not start between the steps of an import.
pub async fn refuse_pending(data_dirs: &[PathBuf]) -> Result<()> {
    match Journal::find(data_dirs).await? {
        None => Ok(()),
        Some((dir, _)) => Err(Error::data_dir(
            format!("an import into {} was cut off", dir.display()),
            "run `corelane import` with all --data-dir and no folder: it takes it back or ends it",
        )),
    }
}

fn unreadable(path: &Path, reason: &str) -> Error {
    Error::data_dir(format!("cannot read {}: {reason}", path.display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::sim::World;

    #[test]
    fn a_journal_reads_back_and_keeps_a_broker_from_starting() {
        let mut world = World::new(1);
        let done = world.run(|| async {
            let dirs = vec![PathBuf::from("/data")];
            fs::create_dir_all(&dirs[0].join(STAGING)).await.unwrap();
            assert!(refuse_pending(&dirs).await.is_ok());
            let journal = Journal {
                topic_id: "8V3tlLmzQ1mWjXyv6Wqz4w".into(),
                entries: vec![Entry {
                    source: "/k/t-0".into(),
                    staged: "/data/.import/t-0".into(),
                    place: "/data/t-0".into(),
                    moved: true,
                    remove_source: false,
                }],
            };
            journal.write(&dirs[0]).await.unwrap();
            let found = Journal::find(&dirs).await.unwrap();
            assert_eq!(found, Some((dirs[0].clone(), journal)));
            assert!(refuse_pending(&dirs).await.is_err());
            fs::remove_dir_all(&dirs[0].join(STAGING)).await.unwrap();
            assert!(refuse_pending(&dirs).await.is_ok());
        });
        done.finished().unwrap();
    }
}
