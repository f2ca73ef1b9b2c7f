//! The other half of a latency: when a consumer that follows the end of a log has each request.
//!
//! One thread beside each producing connection, over the same partitions of a new topic, with one
//! fetch on the way and a consumer's default limits. Requests go to a lane's partitions in turn and
//! each is one batch, so a batch's offset says which request it was, and with that when it was due.

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
        reading.fetch_each(MAX_WAIT_MS, &mut |partition, base_offset| {
            match request_of(&lane.partitions, partition, base_offset, load.batch.records) {
                Some(request) => pace.record(number, request, &mut histogram),
                None => foreign = Some((partition, base_offset)),
            }
            arrived += 1;
        })?;
        if let Some((partition, offset)) = foreign {
            return Err(Error::Unreadable(format!("offset {offset} of partition {partition}")));
        }
    }
    Ok(histogram)
}

/// Which request of the lane a batch was.
fn request_of(partitions: &[i32], partition: i32, base_offset: i64, records: u64) -> Option<u64> {
    let turn = partitions.iter().position(|&own| own == partition)? as u64;
    let offset = u64::try_from(base_offset).ok()?;
    let round = offset.checked_div(records).filter(|_| offset % records == 0)?;
    Some(round * partitions.len() as u64 + turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_say_which_request_it_was() {
        let partitions = [1, 3, 5];
        let of = |partition, offset| request_of(&partitions, partition, offset, 10);
        assert_eq!([of(1, 0), of(3, 0), of(5, 0), of(1, 10)], [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(of(5, 40), Some(14));
        assert_eq!([of(2, 0), of(1, 5), of(1, -1)], [None, None, None]);
        assert_eq!(request_of(&partitions, 1, 0, 0), None);
    }
}
