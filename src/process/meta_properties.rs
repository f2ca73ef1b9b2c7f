//! The text of `meta.properties`, the file that says whose data directory this is.
//!
//! Owns the format, which is Kafka's (version 1): a Java properties file.
//!
//! ```text
//! #
//! cluster.id=Mk3OEYBSD34fcwNTJENDM2      the same in every directory of every broker
//! directory.id=8V3tlLmzQ1mWjXyv6Wqz4w    random, one for each directory
//! node.id=1                              the broker id; shards count from broker id * 1000
//! version=1
//! ```
//!
//! Pure: `data_dir.rs` reads and writes the file.

use std::fmt;

pub const FILE_NAME: &str = "meta.properties";
const VERSION: &str = "1";
/// A real file has some 150 bytes; a larger one is not ours.
pub const MAX_BYTES: usize = 64 * 1024;

/// One directory's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub broker_id: i32,
    /// Kafka before 3.7 wrote none; such a directory gets one at its first start here.
    pub directory_id: Option<String>,
}

/// Why a text is not a usable `meta.properties`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaPropertiesError {
    #[error("it is not text")]
    NotText,
    #[error("it is empty")]
    Empty,
    #[error("line {0} is not `key=value`")]
    Malformed(usize),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{0}` stands there twice")]
    Twice(String),
    #[error("version is `{0}`, not 1")]
    Version(String),
    #[error("`{key}` has the impossible value `{value}`")]
    Value { key: &'static str, value: String },
}

impl MetaProperties {
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaPropertiesError> {
        let text = std::str::from_utf8(bytes).map_err(|_| MetaPropertiesError::NotText)?;
        let entries = entries(text)?;
        if entries.is_empty() {
            return Err(MetaPropertiesError::Empty);
        }
        let find = |key: &'static str| {
            entries.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
        };
        let need = |key| find(key).ok_or(MetaPropertiesError::Missing(key));
        let version = need("version")?;
        if version != VERSION {
            return Err(MetaPropertiesError::Version(version.to_owned()));
        }
        let checked = |key, value: &str, good: bool| {
            if good {
                Ok(value.to_owned())
            } else {
                Err(MetaPropertiesError::Value { key, value: value.to_owned() })
            }
        };
        let cluster_id = need("cluster.id")?;
        let cluster_id = checked("cluster.id", cluster_id, is_cluster_id(cluster_id))?;
        let directory_id =
            find("directory.id").map(|id| checked("directory.id", id, is_uuid(id))).transpose()?;
        let node = need("node.id")?;
        let broker_id = node.parse().ok().filter(|&id: &i32| id >= 0);
        let broker_id = broker_id
            .ok_or(MetaPropertiesError::Value { key: "node.id", value: node.to_owned() })?;
        Ok(MetaProperties { cluster_id, broker_id, directory_id })
    }
}

impl fmt::Display for MetaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#\ncluster.id={}", self.cluster_id)?;
        if let Some(id) = &self.directory_id {
            writeln!(f, "directory.id={id}")?;
        }
        writeln!(f, "node.id={}\nversion={VERSION}", self.broker_id)
    }
}

/// Keys not known here are kept out of the way: newer Kafka may add some.
fn entries(text: &str) -> Result<Vec<(&str, &str)>, MetaPropertiesError> {
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (key, value) =
            line.split_once('=').ok_or(MetaPropertiesError::Malformed(number + 1))?;
        let (key, value) = (key.trim(), value.trim());
        if entries.iter().any(|(other, _)| *other == key) {
            return Err(MetaPropertiesError::Twice(key.to_owned()));
        }
        entries.push((key, value));
    }
    Ok(entries)
}

/// Kafka lets an operator choose any short text as cluster id.
fn is_cluster_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.chars().all(|c| c.is_ascii_graphic())
}

/// 16 bytes as URL-safe base64 without padding.
fn is_uuid(id: &str) -> bool {
    id.len() == 22 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> MetaProperties {
        MetaProperties {
            cluster_id: "Mk3OEYBSD34fcwNTJENDM2".into(),
            broker_id: 7,
            directory_id: Some("8V3tlLmzQ1mWjXyv6Wqz4w".into()),
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = good().to_string();
        assert_eq!(MetaProperties::parse(text.as_bytes()), Ok(good()));
    }

    #[test]
    fn a_file_of_apache_kafka_reads() {
        let text = "#\n#Sat Aug 22 10:00:00 UTC 2026\ncluster.id=my-cluster\n\
                    directory.id=8V3tlLmzQ1mWjXyv6Wqz4w\nnode.id=3\nversion=1\nnew.key=x\n";
        let read = MetaProperties::parse(text.as_bytes()).unwrap();
        assert_eq!((read.cluster_id.as_str(), read.broker_id), ("my-cluster", 3));
        let old = "version=1\ncluster.id=c\nnode.id=0\n";
        assert_eq!(MetaProperties::parse(old.as_bytes()).unwrap().directory_id, None);
    }

    #[test]
    fn every_truncation_and_garbage_is_refused_with_a_reason() {
        let text = good().to_string();
        // Cutting only the final newline loses nothing.
        for end in 0..text.len() - 1 {
            assert!(MetaProperties::parse(&text.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        use MetaPropertiesError as E;
        let table: [(&[u8], E); 9] = [
            (b"", E::Empty),
            (b"# nothing\n", E::Empty),
            (b"\xff\xfe", E::NotText),
            (b"\0\0\0\0", E::Malformed(1)),
            (b"version=0\nbroker.id=1\n", E::Version("0".into())),
            (b"version=1\nnode.id=1\n", E::Missing("cluster.id")),
            (b"version=1\nversion=1\n", E::Twice("version".into())),
            (
                b"version=1\ncluster.id=c\nnode.id=-1\n",
                E::Value { key: "node.id", value: "-1".into() },
            ),
            (
                b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
                E::Value { key: "directory.id", value: "short".into() },
            ),
        ];
        for (bytes, error) in table {
            assert_eq!(MetaProperties::parse(bytes), Err(error));
        }
    }
}
