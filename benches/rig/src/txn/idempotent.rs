//! Closed-loop produce with and without idempotence, by the same client.
//!
//! As `produce`, but that every batch is stamped before it leaves: with the producer's id, epoch
//! and next sequence, or with those of nobody. The checksum is made anew either way, so that the
//! client has the same to do and the difference is the broker's.

use std::io::IoSlice;
use std::thread;

use wire::records::header::CRC_START;

use super::init_producer_id;
use crate::cluster::{Lane, Topic};
use crate::connection::Connection;
use crate::error::Result;
use crate::payload::{Batch, Envelope};
use crate::produce::accepted;
use crate::sample::{Progress, Sample, Windows, measure};

/// Checksum, then from the producer's id up to its sequence, in a batch.
const CRC_AT: usize = 17;
const PRODUCER_AT: usize = 43;
const EPOCH_AT: usize = 51;
const SEQUENCE_AT: usize = 53;
const NOBODY: (i64, i16) = (-1, -1);
const NO_SEQUENCE: i32 = -1;

#[derive(Debug)]
pub struct Load<'a> {
    pub topic: &'a Topic,
    pub batch: &'a Batch,
    pub connections: usize,
    /// Requests on the way on each connection: at most the five that idempotence allows.
    pub in_flight: usize,
    pub idempotent: bool,
}

/// Produces for as long as the windows last. A producer a connection, as with real ones.
pub fn run_windows(load: &Load<'_>, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let progress = Progress::default();
    let lanes = load.topic.lanes(load.connections);
    thread::scope(|scope| {
        let start = |lane| {
            let progress = &progress;
            scope.spawn(move || {
                let outcome = Pump::open(load, lane).and_then(|mut pump| pump.run(load, progress));
                if outcome.is_err() {
                    progress.stop();
                }
                outcome
            })
        };
        let threads: Vec<_> = lanes.iter().map(start).collect();
        let samples = measure(&progress, broker, windows);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        samples
    })
}

/// One connection at work.
struct Pump {
    connection: Connection,
    producer: (i64, i16),
    /// One a partition, used in turn.
    targets: Vec<Target>,
    sent: i32,
    answered: i32,
}

struct Target {
    envelope: Envelope,
    /// Its own copy, which carries its sequence.
    batch: Batch,
    next_sequence: i32,
}

impl Pump {
    fn open(load: &Load<'_>, lane: &Lane) -> Result<Self> {
        let mut connection = Connection::open(lane.leader)?;
        let producer = match load.idempotent {
            true => init_producer_id(&mut connection, None)?,
            false => NOBODY,
        };
        let target = |&partition| {
            Ok(Target {
                envelope: Envelope::build(load.topic, partition, load.batch)?,
                batch: load.batch.clone(),
                next_sequence: if load.idempotent { 0 } else { NO_SEQUENCE },
            })
        };
        let targets = lane.partitions.iter().map(target).collect::<Result<_>>()?;
        Ok(Pump { connection, producer, targets, sent: 0, answered: 0 })
    }

    fn run(&mut self, load: &Load<'_>, progress: &Progress) -> Result<()> {
        let mut free = load.in_flight;
        loop {
            if !progress.stopped() {
                for _ in 0..free {
                    self.send()?;
                }
                free = 0;
            }
            if free == load.in_flight {
                return Ok(());
            }
            let mut answers = 0;
            while answers == 0 || self.connection.has_received() {
                let frame = self.connection.receive()?;
                self.answered = self.answered.wrapping_add(1);
                accepted(frame, self.answered)?;
                answers += 1;
            }
            free += answers;
            let (records, bytes) = (load.batch.records, load.batch.value_bytes);
            progress.add(records * answers as u64, bytes * answers as u64);
        }
    }

    /// The next request, to the partition whose turn it is.
    fn send(&mut self) -> Result<()> {
        self.sent = self.sent.wrapping_add(1);
        let turn = self.sent as usize % self.targets.len().max(1);
        let Some(target) = self.targets.get_mut(turn) else { return Ok(()) };
        let Target { envelope, batch, next_sequence } = target;
        stamp(&mut batch.bytes, self.producer, *next_sequence);
        if *next_sequence != NO_SEQUENCE {
            let count = i32::try_from(batch.records).unwrap_or(i32::MAX);
            // Behind the last one comes 0.
            *next_sequence = next_sequence.wrapping_add(count) & i32::MAX;
        }
        envelope.set_correlation(self.sent);
        self.connection.send_slices(&mut envelope.parts(batch).map(IoSlice::new))
    }
}

/// Writes a producer's fields into a batch, and its checksum.
pub fn stamp(batch: &mut [u8], (producer, epoch): (i64, i16), sequence: i32) {
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(room) = batch.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    };
    put(PRODUCER_AT, &producer.to_be_bytes());
    put(EPOCH_AT, &epoch.to_be_bytes());
    put(SEQUENCE_AT, &sequence.to_be_bytes());
    let crc = crc32c::crc32c(batch.get(CRC_START..).unwrap_or_default());
    if let Some(room) = batch.get_mut(CRC_AT..CRC_START) {
        room.copy_from_slice(&crc.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use wire::records::BatchView;

    use super::*;

    #[test]
    fn a_stamped_batch_is_sound_and_its_producers() {
        let mut batch = Batch::build(100, 1000).unwrap();
        let plain = batch.bytes.clone();
        stamp(&mut batch.bytes, (7, 3), 12);
        let view = BatchView::parse(&batch.bytes).unwrap();
        view.verify_crc().unwrap();
        let header = view.header();
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 3, 12));
        stamp(&mut batch.bytes, NOBODY, NO_SEQUENCE);
        assert_eq!(batch.bytes, plain);
    }
}
