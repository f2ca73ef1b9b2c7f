//! `corelane consume`: records of a topic to stdout.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::args::ConsumeArgs;
use super::position::Position;
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
    let mut cluster = cluster(&args.cluster);
    let isolation = if args.uncommitted { Isolation::Uncommitted } else { Isolation::Committed };
    let reading = plan(&mut cluster, &args, isolation).await?;
    let topic = reading.topic.clone();
    let mut consumer = Consumer::new(reading);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(fetched) = consumer.next(&mut cluster).await? else { break };
        let mut output = Output { format: &format, topic: &topic, bytes: Vec::new() };
        let mut from = fetched.from;
        // A compressed batch can be far larger than what is worth keeping in memory.
        loop {
            let part = Fetched { from, ..fetched.clone() };
            let (whole, next) = output.records(&part, &mut left)?;
            print(Bytes::from(std::mem::take(&mut output.bytes))).await?;
            if whole || left == 0 {
                break;
            }
            from = next;
        }
    }
    Ok(())
}

struct Output<'a> {
    format: &'a RecordFormat,
    topic: &'a str,
    bytes: Vec<u8>,
}

impl Output<'_> {
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
    let topic = args.source.topic.clone();
    let metadata = cluster.wait_for_topic(&topic, false).await?;
    let mut partitions = args.source.partitions.clone();
    if partitions.is_empty() {
        partitions = metadata.partitions.iter().map(|partition| partition.index).collect();
    }
    if let Some(missing) = partitions.iter().find(|&&index| metadata.partition(index).is_none()) {
        let what = format!("{topic} has no partition {missing}");
        let remedy = format!("it has {} of them, from 0", metadata.partitions.len());
        return Err(Error::refused(what, remedy));
    }
    let default = if args.follow { Position::Latest } else { Position::Earliest };
    let from = args.from.unwrap_or(default);
    let mut at = async |time| {
        cluster
            .retrying(async |cluster| {
                offsets_at(cluster, &topic, &partitions, time, isolation).await
            })
            .await
    };
    let known = |offsets: BTreeMap<i32, Option<i64>>| -> BTreeMap<i32, i64> {
        offsets.into_iter().map(|(partition, offset)| (partition, offset.unwrap_or(0))).collect()
    };
    let starts = known(at(EARLIEST).await?);
    let ends = known(at(LATEST).await?);
    let at_time = match from {
        Position::Time(ms) => Some(at(ms).await?),
        Position::Ago(ms) => Some(at((reactor::wall_clock_ms() - ms).max(0)).await?),
        _ => None,
    };
    let mut positions = BTreeMap::new();
    for (&partition, &end) in &ends {
        let start = starts.get(&partition).copied().unwrap_or(0);
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
    let ends = if args.follow { BTreeMap::new() } else { ends };
    Ok(Reading { topic, positions, ends, isolation })
}
