//! From fetched batches to the records a reader should see: without markers, without what a
//! transaction took back, without what stands before the asked offset. Pure.

use std::collections::BTreeSet;

use wire::records::{BatchView, ControlType, Record, batches};

use super::consumer::Fetched;

/// What the records of one batch may grow to when they are decompressed.
const MAX_DECOMPRESSED_BYTES: usize = 512 << 20;

/// Calls `visit` with each record until it says false; false if it did.
pub fn visit_records(
    fetched: &Fetched,
    mut visit: impl FnMut(&Record<'_>) -> bool,
) -> Result<bool, String> {
    let mut aborted = fetched.aborted.clone();
    aborted.sort_by_key(|&(_, first_offset)| std::cmp::Reverse(first_offset));
    let mut taken_back: BTreeSet<i64> = BTreeSet::new();
    for batch in batches(&fetched.records) {
        // A batch that is cut off at the end comes whole with the next answer.
        let Ok(batch) = batch else { break };
        let header = *batch.header();
        while let Some((producer, _)) =
            aborted.pop_if(|(_, first_offset)| *first_offset <= header.last_offset())
        {
            taken_back.insert(producer);
        }
        if header.attributes.is_control() {
            if is_abort(&batch)? {
                taken_back.remove(&header.producer_id);
            }
            continue;
        }
        let undone =
            header.attributes.is_transactional() && taken_back.contains(&header.producer_id);
        if undone || header.next_offset() <= fetched.from {
            continue;
        }
        if !visit_batch(&batch, fetched.from, &mut visit)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn visit_batch(
    batch: &BatchView<'_>,
    from: i64,
    visit: &mut impl FnMut(&Record<'_>) -> bool,
) -> Result<bool, String> {
    let damaged =
        |error: wire::records::BatchError| format!("at {}: {error}", batch.header().base_offset);
    batch.verify_crc().map_err(damaged)?;
    let mut records = batch.records(MAX_DECOMPRESSED_BYTES).map_err(damaged)?;
    while let Some(record) = records.next_record().map_err(damaged)? {
        if record.offset >= from && !visit(&record) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_abort(batch: &BatchView<'_>) -> Result<bool, String> {
    let mut records = batch.records(MAX_DECOMPRESSED_BYTES).map_err(|e| e.to_string())?;
    let marker = records.next_record().map_err(|e| e.to_string())?;
    let kind = marker.and_then(|marker| marker.key.and_then(ControlType::from_key));
    Ok(kind == Some(ControlType::Abort))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::records::BatchBuilder;
    use wire::records::control::EndTransaction;

    use super::*;

    fn batch(base: i64, producer: Option<i64>, values: &[&str]) -> Vec<u8> {
        let mut builder = BatchBuilder::new().base_offset(base);
        if let Some(id) = producer {
            builder = builder.producer(id, 0, 0).transactional(true);
        }
        for value in values {
            builder.append(1, None, Some(value.as_bytes()));
        }
        builder.build().unwrap()
    }

    fn marker(offset: i64, producer: i64, committed: bool) -> Vec<u8> {
        let end = EndTransaction { committed, coordinator_epoch: 0 };
        let mut bytes = end.batch(producer, 0, 1).unwrap();
        wire::records::stamp(&mut bytes, offset, 0);
        bytes
    }

    fn seen(from: i64, parts: &[Vec<u8>], aborted: &[(i64, i64)]) -> Vec<(i64, String)> {
        let records = Bytes::from(parts.concat());
        let aborted = aborted.to_vec();
        let fetched = Fetched { partition: 0, from, next: 0, records, aborted };
        let mut seen = Vec::new();
        visit_records(&fetched, |record| {
            let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            seen.push((record.offset, text));
            true
        })
        .unwrap();
        seen
    }

    #[test]
    fn records_before_the_asked_offset_are_left_out() {
        let parts = [batch(0, None, &["a", "b"]), batch(2, None, &["c", "d"])];
        assert_eq!(seen(3, &parts, &[]), [(3, "d".into())]);
        assert_eq!(seen(1, &parts, &[]).len(), 3);
    }

    #[test]
    fn aborted_transactions_and_markers_are_left_out() {
        let parts = [
            batch(0, Some(7), &["undone"]),
            batch(1, Some(8), &["kept"]),
            marker(2, 7, false),
            marker(3, 8, true),
            batch(4, Some(7), &["next"]),
        ];
        let kept = seen(0, &parts, &[(7, 0)]);
        assert_eq!(kept, [(1, "kept".into()), (4, "next".into())]);
        assert_eq!(seen(0, &parts, &[]).len(), 3);
    }

    #[test]
    fn a_cut_tail_is_left_for_the_next_answer_and_damage_is_told() {
        let whole = batch(0, None, &["a"]);
        let mut cut = batch(1, None, &["b"]);
        cut.truncate(cut.len() - 1);
        assert_eq!(seen(0, &[whole.clone(), cut], &[]).len(), 1);
        let mut damaged = whole;
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        let fetched = Fetched {
            partition: 0,
            from: 0,
            next: 1,
            records: damaged.into(),
            aborted: Vec::new(),
        };
        assert!(visit_records(&fetched, |_| true).is_err());
    }

    #[test]
    fn the_visitor_can_stop() {
        let parts = [batch(0, None, &["a", "b", "c"])];
        let records = Bytes::from(parts.concat());
        let fetched = Fetched { partition: 0, from: 0, next: 3, records, aborted: Vec::new() };
        let mut count = 0;
        let whole = visit_records(&fetched, |_| {
            count += 1;
            count < 2
        });
        assert_eq!((whole, count), (Ok(false), 2));
    }
}
