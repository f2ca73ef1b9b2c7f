//! What a fetch of committed records says of aborted transactions.
//!
//! Owns: the list per partition, for the offsets that really go out. It reads the log's transaction
//! index; most partitions have none and cost nothing.

use std::rc::Rc;

use bytes::Bytes;
use wire::ErrorCode;
use wire::messages::fetch_response::AbortedTransaction;
use wire::records::BatchHeader;
use wire::records::header::HEADER_BYTES;

use crate::errors;
use crate::partition::Partition;

/// The aborted transactions of `records`, which were read at `fetch_offset`.
pub(crate) async fn aborted(
    partition: Rc<Partition>,
    fetch_offset: i64,
    records: &[Bytes],
) -> Result<Vec<AbortedTransaction>, ErrorCode> {
    if records.is_empty() || !partition.log.has_aborted_transactions(fetch_offset) {
        return Ok(Vec::new());
    }
    let Some(end) = end_of(records) else { return Ok(Vec::new()) };
    let found = partition.log.aborted_transactions(fetch_offset, end).await;
    let found = found.map_err(|error| errors::of_log(&error))?;
    let line = |txn: log::AbortedTxn| AbortedTransaction {
        producer_id: txn.producer_id,
        first_offset: txn.first_offset,
    };
    Ok(found.into_iter().map(line).collect())
}

/// The offset behind the last whole batch; batches may reach over from one part to the next.
fn end_of(parts: &[Bytes]) -> Option<i64> {
    let mut end = None;
    let mut parts = parts.iter();
    let mut rest: &[u8] = parts.next()?;
    loop {
        let mut head = [0; HEADER_BYTES];
        let mut filled = 0;
        while filled < HEADER_BYTES {
            let room = head.get_mut(filled..)?;
            let n = room.len().min(rest.len());
            room.get_mut(..n)?.copy_from_slice(rest.get(..n)?);
            rest = rest.get(n..)?;
            filled += n;
            if filled < HEADER_BYTES {
                let Some(next) = parts.next() else { return end };
                rest = next;
            }
        }
        let Ok(header) = BatchHeader::parse(&head) else { return end };
        end = Some(header.next_offset());
        let mut skip = header.size_in_bytes() - HEADER_BYTES;
        while skip > rest.len() {
            skip -= rest.len();
            let Some(next) = parts.next() else { return end };
            rest = next;
        }
        rest = rest.get(skip..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::records::BatchBuilder;

    #[test]
    fn the_end_is_found_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        for n in 0..3i64 {
            let mut batch = BatchBuilder::new().base_offset(n * 10).reach(9);
            batch.append(0, None, Some(&[7; 50]));
            bytes.extend(batch.build().unwrap());
        }
        let bytes = Bytes::from(bytes);
        for size in [1, 7, 60, 61, 62, 113, 200, bytes.len()] {
            let parts: Vec<Bytes> = bytes.chunks(size).map(|part| bytes.slice_ref(part)).collect();
            assert_eq!(end_of(&parts), Some(30), "{size}");
        }
        assert_eq!(end_of(&[]), None);
    }
}
