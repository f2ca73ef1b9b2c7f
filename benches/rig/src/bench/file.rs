//! Workloads as text: TOML files, those that come with the program, and flags that win over both.
//!
//! One table names every knob; files, flags, `--help` and the page about workloads are held against
//! it. A key that is not in it is refused with the nearest one that is.

use std::path::Path;

use serde::Deserialize as _;
use toml::{Table, Value};

use super::workload::Workload;
use crate::error::{Error, Result};

/// One knob, by its name in files; flags have the same one.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    pub name: &'static str,
    pub value: &'static str,
    pub help: &'static str,
}

const fn knob(name: &'static str, value: &'static str, help: &'static str) -> Knob {
    Knob { name, value, help }
}

/// The last one is a table of topic settings.
pub const KNOBS: &[Knob] = &[
    knob("name", "TEXT", "What rows and files are called"),
    knob("title", "TEXT", "What the report calls it"),
    knob(
        "kind",
        "KIND",
        "produce, consume, end-to-end or mixed (end-to-end beside readers of an old log)",
    ),
    knob(
        "rate",
        "RATE",
        "Records a second over all producers; a list for a curve, a row each; max: as many as go through (closed loop)",
    ),
    knob("arrivals", "HOW", "constant or poisson"),
    knob("seed", "N", "Of everything that is drawn: arrivals, sizes, keys, values"),
    knob("topics", "N", "Topics, each with all that follows"),
    knob("partitions", "N", "Of each topic"),
    knob("replication-factor", "N", "Of each topic"),
    knob(
        "producers",
        "N",
        "Of each topic, each with a connection to every node that leads a partition",
    ),
    knob("groups", "N", "Of consumers, of each topic; every group gets every record"),
    knob("consumers", "N", "In each group"),
    knob(
        "group-protocol",
        "HOW",
        "none (the tool deals out partitions), classic or consumer (KIP-848)",
    ),
    knob("record-bytes", "BYTES", "Of a value: a number, or a range as 100-2000"),
    knob("keys", "N", "Distinct keys; 0: none"),
    knob("key-bytes", "BYTES", "Of a key"),
    knob("key-spread", "HOW", "uniform or zipf (a few keys get most records)"),
    knob("value", "WHAT", "random or text (compresses as text does)"),
    knob("payload-file", "FILE", "Values are the lines of this file instead"),
    knob("codec", "CODEC", "none, gzip, snappy, lz4 or zstd"),
    knob("codec-level", "N", "Of gzip and zstd"),
    knob("linger-ms", "MS", "How long a batch waits for more records"),
    knob("batch-bytes", "BYTES", "Of a batch, before compression"),
    knob("request-bytes", "BYTES", "Of a produce request, which takes a batch of each partition"),
    knob(
        "buffer-bytes",
        "BYTES",
        "What a producer holds at most; what is due then waits, and counts",
    ),
    knob("in-flight", "N", "Requests on the way to a node"),
    knob("acks", "ACKS", "0, 1 or all"),
    knob("idempotence", "BOOL", "true or false"),
    knob("transaction-records", "N", "Records of a transaction; 0: no transactions"),
    knob("fetch-max-bytes", "BYTES", "Of an answer to a fetch"),
    knob("fetch-partition-bytes", "BYTES", "Of a partition in it"),
    knob("fetch-min-bytes", "BYTES", "Below that the broker waits"),
    knob("fetch-max-wait-ms", "MS", "At most so long"),
    knob("check-crc", "BOOL", "Whether consumers check the checksum of every batch"),
    knob("backlog-mib", "MIB", "What is written before, for consume and mixed"),
    knob("backlog-readers", "N", "Readers of that beside mixed's other load, as fast as they go"),
    knob("warmup-seconds", "S", "Load before anything is measured"),
    knob("seconds", "S", "Measured"),
    knob("repeats", "N", "How often each row is measured: median, lowest, highest"),
    knob("threads", "N", "Of the client; 0: half of the cores"),
    knob(
        "slip-ms",
        "MS",
        "A row is void if the client itself is later than this with 1 % of records",
    ),
    knob("topic-config", "KEY=VALUE", "A setting of the topics"),
];
const TABLE_KNOB: &str = "topic-config";

pub use super::built_in::BUILT_IN;

/// A workload by the name of one that comes with the program, or by the path of a file.
pub fn find(name: &str) -> Result<Table> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return parse(name, text);
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let hint = hint(name, &names);
        return Err(Error::Usage(format!(
            "no workload and no file {name}{hint}; --list names them"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(Error::io(format!("read {name}")))?;
    let mut table = parse(name, &text)?;
    if !table.contains_key("name") {
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.display().to_string());
        table.insert("name".to_owned(), Value::String(stem));
    }
    Ok(table)
}

fn parse(name: &str, text: &str) -> Result<Table> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
        Error::Usage(format!("{name}, line {line}: {}", error.message()))
    })?;
    for key in table.keys() {
        check_key(key).map_err(|what| Error::Usage(format!("{name}: {what}")))?;
    }
    Ok(table)
}

fn check_key(key: &str) -> std::result::Result<(), String> {
    let names: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
    match names.contains(&key) {
        true => Ok(()),
        false => Err(format!("there is no `{key}`{}", hint(key, &names))),
    }
}

fn hint(word: &str, known: &[&str]) -> String {
    let distances = known.iter().map(|name| (distance(word, name), name));
    match distances.min().filter(|(far, _)| *far <= word.len().max(4) / 2) {
        Some((_, nearest)) => format!(", but `{nearest}`"),
        None => String::new(),
    }
}

/// Letters to change, put in or leave out.
fn distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        let mut left = row + 1;
        for (b, pair) in to.iter().zip(last.windows(2)) {
            let [before, above] = *pair else { break };
            left = (before + usize::from(a != b)).min(above + 1).min(left + 1);
            next.push(left);
        }
        last = next;
    }
    last.last().copied().unwrap_or(0)
}

/// A flag's text as a file would have it.
pub fn set(table: &mut Table, name: &str, text: &str) -> Result<()> {
    check_key(name).map_err(Error::Usage)?;
    if name == TABLE_KNOB {
        let wrong = || Error::Usage(format!("--{TABLE_KNOB} {text}: write KEY=VALUE"));
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let configs = table.entry(TABLE_KNOB).or_insert_with(|| Value::Table(Table::new()));
        let configs = configs.as_table_mut().ok_or_else(wrong)?;
        configs.insert(key.to_owned(), Value::String(value.to_owned()));
        return Ok(());
    }
    let number = |text: &str| -> Option<Value> {
        let wrapped: Table = format!("x = {text}").parse().ok()?;
        wrapped.get("x").filter(|x| x.is_integer() || x.is_float() || x.is_bool()).cloned()
    };
    let is_text = matches!(name, "name" | "title" | "payload-file");
    let parts: Option<Vec<Value>> = text.split(',').map(|part| number(part.trim())).collect();
    let value = match parts {
        Some(parts) if !is_text => match parts.as_slice() {
            [one] => one.clone(),
            _ => Value::Array(parts),
        },
        _ => Value::String(text.to_owned()),
    };
    table.insert(name.to_owned(), value);
    Ok(())
}

/// The workload that a table describes.
pub fn workload(mut table: Table) -> Result<Workload> {
    let name = table.get("name").and_then(Value::as_str).unwrap_or("custom").to_owned();
    // Settings are text to a broker, whatever they look like.
    if let Some(Value::Table(configs)) = table.get_mut(TABLE_KNOB) {
        for (_, value) in configs.iter_mut() {
            match value {
                Value::Integer(number) => *value = Value::String(number.to_string()),
                Value::Float(number) => *value = Value::String(number.to_string()),
                Value::Boolean(word) => *value = Value::String(word.to_string()),
                _ => {}
            }
        }
    }
    let workload = Workload::deserialize(table).map_err(|error| {
        let message = error.to_string();
        Error::Usage(format!("workload {name}: {}", message.trim().replace('\n', " ")))
    })?;
    workload.check()?;
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Acks, Kind, Rates, Sizes};

    fn read(text: &str) -> Result<Workload> {
        workload(parse("x.toml", text)?)
    }

    #[test]
    fn a_file_is_read() {
        let workload = read(
            "kind = \"end-to-end\"\nrate = [1000, 2000.5]\nacks = 1\nidempotence = false\n\
             record-bytes = \"100-2000\"\n[topic-config]\n\"flush.messages\" = 1\n",
        )
        .unwrap();
        assert_eq!(workload.kind, Kind::EndToEnd);
        assert_eq!(workload.rate, Rates(vec![1000.0, 2000.5]));
        assert_eq!(workload.acks, Acks::Leader);
        assert_eq!(workload.record_bytes, Sizes { least: 100, most: 2000 });
        assert_eq!(workload.topic_config.get("flush.messages").map(String::as_str), Some("1"));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, expected) in [
            ("rates = 5", "x.toml: there is no `rates`, but `rate`"),
            ("bath-bytes = 5", "but `batch-bytes`"),
            ("zzzzzzzzzzzz = 1", "x.toml: there is no `zzzzzzzzzzzz`"),
            ("kind = \"produce\"\nrate = = 5", "x.toml, line 2"),
            ("kind = \"sideways\"", "unknown variant `sideways`"),
            ("rate = \"fast\"", "expected records a second"),
            ("rate = -5", "expected records a second"),
            ("acks = 2", "expected 0, 1 or \"all\""),
            ("codec = \"brotli\"", "expected none, gzip, snappy, lz4 or zstd"),
            ("record-bytes = \"200-100\"", "expected bytes, as 1024"),
            ("acks = 1", "idempotence needs acks"),
            ("partitions = 0", "partitions is 0; it may be 1 to 5000"),
            ("in-flight = 6", "in-flight is 6; it may be 1 to 5"),
            ("idempotence = false\ntransaction-records = 5", "transactions need idempotence"),
            ("kind = \"end-to-end\"\nrate = 5\nrecord-bytes = 7", "no room for the moment"),
            ("kind = \"consume\"\nrate = 5", "consume has no rate"),
            ("seconds = 0.0", "seconds is 0"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let mut table = parse("x", "rate = 5\nacks = \"all\"\nseconds = 3").unwrap();
        for (name, text) in [
            ("rate", "1000,2e3"),
            ("record-bytes", "10-20"),
            ("acks", "1"),
            ("idempotence", "false"),
            ("name", "7"),
            ("topic-config", "flush.messages=1"),
            ("topic-config", "write.caching=true"),
        ] {
            set(&mut table, name, text).unwrap();
        }
        let workload = workload(table).unwrap();
        assert_eq!(workload.rate, Rates(vec![1000.0, 2000.0]));
        assert_eq!(workload.record_bytes, Sizes { least: 10, most: 20 });
        assert_eq!((workload.acks, workload.idempotence), (Acks::Leader, false));
        assert_eq!((workload.name.as_str(), workload.seconds), ("7", 3.0));
        assert_eq!(workload.topic_config.len(), 2);
    }

    #[test]
    fn the_table_of_knobs_is_the_workloads_fields() {
        let whole = Workload {
            payload_file: Some("x".into()),
            codec_level: Some(1),
            ..Workload::default()
        };
        let value = serde_json::to_value(whole).unwrap();
        let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let mut knobs: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
        fields.sort_unstable();
        knobs.sort_unstable();
        assert_eq!(fields, knobs);
    }

    #[test]
    fn what_comes_with_the_program_reads_and_is_what_is_in_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        files.sort();
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, names);
        for name in names {
            let workload = workload(find(name).unwrap()).unwrap();
            assert_eq!(workload.name, name);
            assert!(!workload.title.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_page_about_workloads_has_every_knob_and_every_workload() {
        let page = include_str!("../../../workloads/README.md");
        for knob in KNOBS {
            assert!(page.contains(&format!("| `{}` |", knob.name)), "{}", knob.name);
        }
        for (name, _) in BUILT_IN {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
