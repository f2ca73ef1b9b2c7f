//! The other half of a latency: when a consumer that follows the end of a log has each request.
//!
//! One thread beside each producing connection, over the same partitions of a new topic, with one
//! fetch on the way and a consumer's default limits. Requests go to a lane's partitions in turn and
//! each holds as many records, so offsets say which requests they were, and with that when they were
//! due.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::cluster::Lane;
use crate::consume::{self, MAX_WAIT_MS, Reading};
use crate::error::{Error, Result};
use crate::latency::{Load, Pace, Shared, new_histogram};

/// Follows until every request of the lane has arrived, or a thread of it has failed.
pub fn follow(
    load: &Load<'_>,
    lane: &Lane,
    pace: &Pace,
    number: usize,
    shared: &Shared,
) -> Result<Histogram<u64>> {
    let following = consume::Load {
        topic: load.topic,
        connections: 1,
        records_a_partition: i64::MAX,
        record_bytes: 0,
    };
    let mut reading = Reading::open(&following, lane)?;
    let mut histogram = new_histogram()?;
    let mut arrived = 0;
    while arrived < pace.count && !shared.failed() {
        let mut foreign = None;
        reading.fetch_each(MAX_WAIT_MS, &mut |partition, offsets| {
            let batch = offsets.start;
            match requests_of(&lane.partitions, partition, offsets, load.batch.records) {
                Some(requests) => {
                    for request in requests {
                        pace.record(number, request, &mut histogram);
                        arrived += 1;
                    }
                }
                None => foreign = Some((partition, batch)),
            }
        })?;
        if let Some((partition, offset)) = foreign {
            return Err(Error::Unreadable(format!("offset {offset} of partition {partition}")));
        }
    }
    Ok(histogram)
}

/// Which requests of the lane have arrived whole with these offsets.
fn requests_of(
    partitions: &[i32],
    partition: i32,
    offsets: Range<i64>,
    records: u64,
) -> Option<impl Iterator<Item = u64>> {
    let turn = partitions.iter().position(|&own| own == partition)? as u64;
    let round = |offset: i64| u64::try_from(offset).ok()?.checked_div(records);
    let (from, to) = (round(offsets.start)?, round(offsets.end)?);
    let width = partitions.len() as u64;
    Some((from..to).map(move |round| round * width + turn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_say_which_requests_they_were() {
        let partitions = [1, 3, 5];
        let of = |partition, offsets| {
            requests_of(&partitions, partition, offsets, 10).map(Iterator::collect::<Vec<_>>)
        };
        assert_eq!(of(1, 0..10), Some(vec![0]));
        assert_eq!(of(3, 0..10), Some(vec![1]));
        assert_eq!(of(5, 40..50), Some(vec![14]));
        assert_eq!([of(2, 0..10), of(1, -1..10)], [None, None]);
        assert!(requests_of(&partitions, 1, 0..10, 0).is_none());
        // A broker that makes batches of its own may give parts of some and several at once.
        assert_eq!(of(1, 0..25), Some(vec![0, 3]));
        assert_eq!(of(1, 25..30), Some(vec![6]));
        assert_eq!(of(1, 30..31), Some(vec![]));
    }
}
