//! `corelane consume`: records of a topic to stdout.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::args::ConsumeArgs;
use super::position::{Position, TopicPartitions};
use super::record_format::{RecordFormat, Shown};
use super::{cluster, print};
use crate::client::Cluster;
use crate::client::consumer::{Consumer, Fetched, Reading};
use crate::client::decode::visit_records;
use crate::client::offsets::{EARLIEST, Isolation, LATEST, offsets_at};
use crate::error::{Error, Result};

/// Output is handed on when it has grown to this, so that memory stays bounded.
const OUTPUT_BYTES: usize = 4 << 20;

pub async fn run(args: ConsumeArgs) -> Result<()> {
    let format =
        RecordFormat::parse(&args.format, &args.key_separator, &args.terminator, &args.null)
            .map_err(|error| Error::config(error, ""))?;
    if let Some(group) = &args.group {
        return super::consume_group::run(&args, group, &format).await;
    }
    let mut cluster = cluster(&args.cluster);
    let isolation = if args.uncommitted { Isolation::Uncommitted } else { Isolation::Committed };
    let reading = plan(&mut cluster, &args, isolation).await?;
    let topic = reading.topic.clone();
    let mut consumer = Consumer::new(reading);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(fetched) = consumer.next(&mut cluster).await? else { break };
        Output::new(&format, &topic).print_all(&fetched, &mut left).await?;
    }
    Ok(())
}

pub(super) struct Output<'a> {
    format: &'a RecordFormat,
    topic: &'a str,
    bytes: Vec<u8>,
}

impl<'a> Output<'a> {
    pub fn new(format: &'a RecordFormat, topic: &'a str) -> Self {
        Output { format, topic, bytes: Vec::new() }
    }

    /// Prints until that was all, or enough. Returns the offset to go on at.
    pub async fn print_all(&mut self, fetched: &Fetched, left: &mut u64) -> Result<i64> {
        let mut from = fetched.from;
        // A compressed batch can be far larger than what is worth keeping in memory.
        loop {
            let part = Fetched { from, ..fetched.clone() };
            let (whole, next) = self.records(&part, left)?;
            print(Bytes::from(std::mem::take(&mut self.bytes))).await?;
            if whole {
                return Ok(fetched.next);
            }
            if *left == 0 {
                return Ok(next);
            }
            from = next;
        }
    }

    /// Formats until the output is large or enough records are shown. Says whether that was all,
    /// and where to go on.
    fn records(&mut self, fetched: &Fetched, left: &mut u64) -> Result<(bool, i64)> {
        let mut next = fetched.from;
        let visited = visit_records(fetched, |record| {
            let names: Vec<_> = record
                .headers
                .iter()
                .map(|header| (String::from_utf8_lossy(header.key), header.value))
                .collect();
            let headers: Vec<_> =
                names.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
            let shown = Shown {
                topic: self.topic,
                partition: fetched.partition,
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key,
                value: record.value,
                headers: &headers,
            };
            self.format.write(&shown, &mut self.bytes);
            next = record.offset + 1;
            *left -= 1;
            *left > 0 && self.bytes.len() < OUTPUT_BYTES
        });
        let whole = visited.map_err(|reason| {
            let what = format!("{}-{} is damaged {reason}", self.topic, fetched.partition);
            Error::refused(what, "read past it with --from")
        })?;
        Ok((whole, next))
    }
}

/// Where each partition begins and, unless `--follow`, ends.
async fn plan(cluster: &mut Cluster, args: &ConsumeArgs, isolation: Isolation) -> Result<Reading> {
    let span = Span::of(cluster, &args.source, isolation).await?;
    let default = if args.follow { Position::Latest } else { Position::Earliest };
    let from = args.from.unwrap_or(default);
    let positions = positions(cluster, &span, from, isolation).await?;
    let ends = if args.follow { BTreeMap::new() } else { span.ends };
    Ok(Reading { topic: span.topic, positions, ends, isolation })
}

/// Partitions of a topic, with the first offset and the end of each.
pub(super) struct Span {
    pub topic: String,
    starts: BTreeMap<i32, i64>,
    pub ends: BTreeMap<i32, i64>,
}

impl Span {
    pub async fn of(
        cluster: &mut Cluster,
        source: &TopicPartitions,
        isolation: Isolation,
    ) -> Result<Self> {
        let topic = source.topic.clone();
        let metadata = cluster.wait_for_topic(&topic, false).await?;
        let mut partitions = source.partitions.clone();
        if partitions.is_empty() {
            partitions = metadata.partitions.iter().map(|partition| partition.index).collect();
        }
        let is_missing = |index: &&i32| metadata.partition(**index).is_none();
        if let Some(missing) = partitions.iter().find(is_missing) {
            let what = format!("{topic} has no partition {missing}");
            let remedy = format!("it has {} of them, from 0", metadata.partitions.len());
            return Err(Error::refused(what, remedy));
        }
        let mut known = async |time| -> Result<BTreeMap<i32, i64>> {
            let offsets = at(cluster, &topic, &partitions, time, isolation).await?;
            Ok(offsets.into_iter().map(|(index, offset)| (index, offset.unwrap_or(0))).collect())
        };
        let starts = known(EARLIEST).await?;
        let ends = known(LATEST).await?;
        Ok(Span { topic, starts, ends })
    }
}

async fn at(
    cluster: &mut Cluster,
    topic: &str,
    partitions: &[i32],
    time: i64,
    isolation: Isolation,
) -> Result<BTreeMap<i32, Option<i64>>> {
    let found = cluster
        .retrying(async |cluster| offsets_at(cluster, topic, partitions, time, isolation).await)
        .await;
    Ok(found?)
}

/// What a position means in each partition.
pub(super) async fn positions(
    cluster: &mut Cluster,
    span: &Span,
    from: Position,
    isolation: Isolation,
) -> Result<BTreeMap<i32, i64>> {
    let topic = &span.topic;
    let partitions: Vec<i32> = span.ends.keys().copied().collect();
    let time = match from {
        Position::Time(ms) => Some(ms),
        Position::Ago(ms) => Some((reactor::wall_clock_ms() - ms).max(0)),
        _ => None,
    };
    let at_time = match time {
        Some(ms) => Some(at(cluster, topic, &partitions, ms, isolation).await?),
        None => None,
    };
    let mut positions = BTreeMap::new();
    for (&partition, &end) in &span.ends {
        let start = span.starts.get(&partition).copied().unwrap_or(0);
        let position = match from {
            Position::Earliest => start,
            Position::Latest => end,
            Position::Last(count) => start.max(end.saturating_sub(count)),
            Position::Offset(offset) if (start..=end).contains(&offset) => offset,
            Position::Offset(offset) => {
                let what = format!("{topic}-{partition} has no offset {offset}");
                let remedy = format!("its offsets run from {start} to {end}");
                return Err(Error::refused(what, remedy));
            }
            // No record is that young: what comes next is.
            Position::Time(_) | Position::Ago(_) => at_time
                .as_ref()
                .and_then(|offsets| offsets.get(&partition).copied().flatten())
                .unwrap_or(end),
        };
        positions.insert(partition, position);
    }
    Ok(positions)
}
