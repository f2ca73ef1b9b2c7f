//! Control batches: transaction markers, and the marks Raft logs carry.
//!
//! ```text
//! key:   i16 version 0 | i16 type
//! value: i16 version 0 | i32 coordinator epoch        (types 0 and 1)
//! ```
//!
//! One record, one offset; clients skip the batch but see the hole.

use super::BatchError;
use super::batch::BatchView;
use super::builder::BatchBuilder;
use super::header::NO_SEQUENCE;

/// Bytes a control record's key and value may take together, decompressed: they are never large.
const CONTROL_LIMIT_BYTES: usize = 64 * 1024;

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    Abort,
    Commit,
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KraftVersion,
    KraftVoters,
    /// A type of a later version; readers skip it.
    Unknown(i16),
}

impl ControlType {
    pub fn from_code(code: i16) -> Self {
        match code {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KraftVersion,
            6 => ControlType::KraftVoters,
            other => ControlType::Unknown(other),
        }
    }

    pub fn code(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KraftVersion => 5,
            ControlType::KraftVoters => 6,
            ControlType::Unknown(code) => code,
        }
    }

    /// From the key of a control record: later versions may append fields, so only the two known
    /// ones are read.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        let (version, rest) = key.split_first_chunk::<2>()?;
        if i16::from_be_bytes(*version) < 0 {
            return None;
        }
        rest.first_chunk::<2>().map(|code| Self::from_code(i16::from_be_bytes(*code)))
    }

    /// The key of a control record of this type.
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.code().to_be_bytes();
        [0, 0, high, low]
    }
}

/// The end of a transaction, as a marker batch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    pub committed: bool,
    pub coordinator_epoch: i32,
}

impl EndTransaction {
    /// The marker batch for one producer; offset and leader epoch are the leader's to stamp.
    pub fn batch(self, producer_id: i64, epoch: i16, now_ms: i64) -> Result<Vec<u8>, BatchError> {
        let kind = if self.committed { ControlType::Commit } else { ControlType::Abort };
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        let mut builder = BatchBuilder::new()
            .producer(producer_id, epoch, NO_SEQUENCE)
            .transactional(true)
            .control(true);
        builder.append(now_ms, Some(&kind.key()), Some(&[0, 0, a, b, c, d]));
        builder.build()
    }

    /// What a control batch says, if it ends a transaction; `None` for other control batches.
    pub fn read(batch: &BatchView<'_>) -> Result<Option<Self>, BatchError> {
        if !batch.header().attributes.is_control() {
            return Ok(None);
        }
        let mut records = batch.records(CONTROL_LIMIT_BYTES)?;
        let Some(record) = records.next_record()? else {
            return Ok(None);
        };
        let committed = match record.key.and_then(ControlType::from_key) {
            Some(ControlType::Commit) => true,
            Some(ControlType::Abort) => false,
            _ => return Ok(None),
        };
        let bad = BatchError::Record { index: 0, reason: "end marker has no coordinator epoch" };
        let value = record.value.ok_or_else(|| bad.clone())?;
        let epoch = value.get(2..6).and_then(|epoch| epoch.first_chunk::<4>()).ok_or(bad)?;
        Ok(Some(EndTransaction { committed, coordinator_epoch: i32::from_be_bytes(*epoch) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_markers_round_trip() {
        for committed in [true, false] {
            let marker = EndTransaction { committed, coordinator_epoch: 77 };
            let bytes = marker.batch(9000, 5, 123).unwrap();
            let view = BatchView::parse(&bytes).unwrap();
            let header = view.header();
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!((header.producer_id, header.producer_epoch), (9000, 5));
            assert_eq!((header.base_sequence, header.record_count), (-1, 1));
            assert_eq!(header.last_offset_delta, 0);
            assert_eq!(EndTransaction::read(&view), Ok(Some(marker)));
        }
    }

    #[test]
    fn other_batches_are_no_end_markers() {
        let mut data = BatchBuilder::new();
        data.append(0, Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 1]));
        let bytes = data.build().unwrap();
        assert_eq!(EndTransaction::read(&BatchView::parse(&bytes).unwrap()), Ok(None));

        let mut leader = BatchBuilder::new().control(true);
        leader.append(0, Some(&ControlType::LeaderChange.key()), Some(&[0, 0]));
        let bytes = leader.build().unwrap();
        assert_eq!(EndTransaction::read(&BatchView::parse(&bytes).unwrap()), Ok(None));
    }

    #[test]
    fn types_and_keys() {
        for code in -1..9 {
            let kind = ControlType::from_code(code);
            assert_eq!(kind.code(), code);
            assert_eq!(ControlType::from_key(&kind.key()), Some(kind));
        }
        assert_eq!(ControlType::from_key(&[0, 9, 0, 1, 55]), Some(ControlType::Commit));
        assert_eq!(ControlType::from_key(&[0, 0, 0]), None);
        assert_eq!(ControlType::from_key(&[0xff, 0, 0, 1]), None);
    }
}
