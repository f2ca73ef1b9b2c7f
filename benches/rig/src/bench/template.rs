//! Batches made beforehand, for closed loops whose records have no keys: the client shall cost
//! little beside the broker.
//!
//! Where producers are idempotent the header gets its producer and sequence, and with them a new
//! checksum, each time a batch is sent.

use std::sync::Arc;

use wire::records::header::{CRC_START, HEADER_BYTES};
use wire::records::{BatchBuilder, BatchHeader};

use super::content::{Pool, Writer};
use super::producer::Sealed;
use super::workload::{Kind, Workload};
use crate::error::{Error, Result};

/// Different ones, so that neighbours in the log differ.
const COUNT: usize = 16;

#[derive(Debug)]
pub struct Template {
    pub bytes: Vec<u8>,
    pub records: u32,
    value_bytes: u64,
}

impl Template {
    /// `None` where records have to be made one by one.
    pub fn all(
        workload: &Workload,
        pool: &Arc<Pool>,
        now_ms: i64,
    ) -> Result<Option<Arc<Vec<Self>>>> {
        let made = workload.kind != Kind::Consume
            && (!workload.rate.is_max() || workload.keys > 0 || workload.transactional());
        if made {
            return Ok(None);
        }
        let mut writer = Writer::new(pool, workload, 0);
        let each = |_| Self::make(workload, &mut writer, now_ms);
        Ok(Some(Arc::new((0..COUNT).map(each).collect::<Result<_>>()?)))
    }

    fn make(workload: &Workload, writer: &mut Writer, now_ms: i64) -> Result<Self> {
        /// Lengths, offset and timestamp around a value; an upper bound.
        const OVERHEAD_BYTES: usize = 24;
        let mut builder = BatchBuilder::new().codec(workload.codec, workload.codec_level);
        let (mut value, mut records, mut value_bytes) = (Vec::new(), 0, 0);
        loop {
            writer.value(&mut value, None);
            let size = builder.uncompressed_bytes() + value.len() + OVERHEAD_BYTES;
            if records > 0 && size > workload.batch_bytes {
                break;
            }
            builder.append(now_ms, None, Some(&value));
            records += 1;
            value_bytes += value.len() as u64;
        }
        let bytes = builder.build().map_err(|error| Error::Batch(error.to_string()))?;
        Ok(Template { bytes, records, value_bytes })
    }

    /// A batch to send: of this producer, epoch and sequence, if it has those.
    pub fn sealed(&self, identity: Option<(i64, i16, i32)>) -> Result<Sealed> {
        let mut bytes = self.bytes.clone();
        if let Some((id, epoch, sequence)) = identity {
            let failed = |error: wire::records::BatchError| Error::Batch(error.to_string());
            let mut header = BatchHeader::parse(&bytes).map_err(failed)?;
            header.producer_id = id;
            header.producer_epoch = epoch;
            header.base_sequence = sequence;
            for _ in 0..2 {
                if let Some(room) = bytes.get_mut(..HEADER_BYTES) {
                    room.copy_from_slice(&header.encode());
                }
                header.crc = crc32c::crc32c(bytes.get(CRC_START..).unwrap_or_default());
            }
        }
        Ok(Sealed::of_template(bytes, self.records, self.value_bytes))
    }
}

#[cfg(test)]
mod tests {
    use wire::records::{BatchView, Codec};

    use super::*;

    #[test]
    fn a_template_is_a_sound_batch_of_any_producer() {
        for codec in Codec::ALL {
            let workload = Workload { codec, ..Workload::default() };
            let pool = Pool::make(&workload).unwrap();
            let all = Template::all(&workload, &pool, 5).unwrap().unwrap();
            for (number, template) in all.iter().enumerate() {
                let sealed = template.sealed(Some((7, 3, 40 + number as i32))).unwrap();
                let view = BatchView::parse(&sealed.bytes).unwrap();
                view.verify_crc().unwrap();
                let header = view.header();
                assert_eq!((header.producer_id, header.producer_epoch), (7, 3));
                assert_eq!(header.base_sequence, 40 + number as i32);
                assert_eq!(view.codec(), Ok(codec));
                let count =
                    view.records(1 << 20).unwrap().iter().filter(|record| record.is_ok()).count();
                assert_eq!((count, sealed.records), (15, 15));
            }
        }
    }

    #[test]
    fn keys_and_schedules_need_records_made_one_by_one() {
        let pool = Pool::make(&Workload::default()).unwrap();
        let keyed = Workload { keys: 10, ..Workload::default() };
        assert!(Template::all(&keyed, &pool, 0).unwrap().is_none());
    }
}
