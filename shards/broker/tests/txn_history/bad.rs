//! That the checker can fail: one history by hand in which all is well, and one for each way in
//! which it would not be.

use super::check::check;
use super::history::{Anomaly, End, Entry, Event, Kind, Label, PartitionEnd, What};

/// Two instances of one transactional id. Transaction 0 is committed, 1 is aborted, both of
/// instance 0, by KIP-890; instance 1 takes over and commits transaction 2, of the old protocol,
/// with offsets.
struct Story {
    history: Vec<Event>,
    end: End,
}

fn label(txn: usize, record: u32) -> Label {
    Label { txn, record, input: (txn == 2).then_some(i64::from(record)) }
}

fn write(txn: usize, partition: usize) -> What {
    What::Write { partition, label: label(txn, partition as u32) }
}

fn data(offset: i64, epoch: i16, txn: usize, record: u32) -> Entry {
    Entry { offset, producer: (7, epoch), kind: Kind::Data(label(txn, record)) }
}

fn marker(offset: i64, epoch: i16, commit: bool) -> Entry {
    Entry { offset, producer: (7, epoch), kind: Kind::Marker { commit } }
}

const COMMIT: What = What::End { commit: true };
const ABORT: What = What::End { commit: false };

impl Story {
    fn good() -> Story {
        let mut story = Story { history: Vec::new(), end: End::default() };
        story.history.push(Event::Took { id: "a", instance: 0 });
        story.transaction(0, (0, 0), true, &[(write(0, 0), 0), (write(0, 1), 0), (COMMIT, 0)]);
        story.transaction(1, (0, 1), true, &[(write(1, 0), 2), (write(1, 1), 2), (ABORT, 0)]);
        story.history.push(Event::Took { id: "a", instance: 1 });
        let added = [(What::Add { partition: 0 }, 0), (What::Add { partition: 1 }, 0)];
        let written = [(write(2, 0), 4), (write(2, 1), 4)];
        let rest = [(What::AddGroup, 0), (What::Offsets { upto: 2 }, 0), (COMMIT, 0)];
        let steps: Vec<(What, i64)> = added.into_iter().chain(written).chain(rest).collect();
        story.transaction(2, (1, 3), false, &steps);
        for partition in 0..2 {
            for (offset, txn) in [(0, 0), (4, 2)] {
                let label = label(txn, partition as u32);
                story.history.push(Event::Saw { partition, offset, label });
            }
        }
        story.history.push(Event::Position { at: 2, known: 2 });
        story.end.position = 2;
        story.end.states = vec![("a".to_owned(), "CompleteCommit".to_owned())];
        story.end.partitions = (0..2).map(partition).collect();
        story
    }

    fn transaction(
        &mut self,
        txn: usize,
        (instance, epoch): (usize, i16),
        bumps: bool,
        steps: &[(What, i64)],
    ) {
        let producer = (7, epoch);
        self.history.push(Event::Began { txn, id: "a", instance, producer, bumps });
        for (what, answer) in steps {
            self.history.push(Event::Sent { txn, what: *what });
            self.history.push(Event::Told { txn, what: *what, answer: Ok(*answer) });
        }
    }

    /// All events of one request are gone, or only its answer.
    fn forget(&mut self, txn: usize, what: What, only_answer: bool) {
        self.history.retain(|event| match event {
            Event::Sent { txn: of, what: it } => only_answer || (*of, *it) != (txn, what),
            Event::Told { txn: of, what: it, .. } => (*of, *it) != (txn, what),
            _ => true,
        });
    }

    /// Sent at the very end, and answered or not.
    fn late(&mut self, txn: usize, what: What, answer: Option<Result<i64, i16>>) {
        self.forget(txn, what, false);
        self.history.push(Event::Sent { txn, what });
        if let Some(answer) = answer {
            self.history.push(Event::Told { txn, what, answer });
        }
    }

    fn log(&mut self, partition: usize) -> &mut Vec<Entry> {
        &mut self.end.partitions[partition].log
    }

    fn anomalies(&self) -> Vec<Anomaly> {
        let mut all: Vec<Anomaly> =
            check(&self.history, &self.end).into_iter().map(|found| found.anomaly).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn partition(index: usize) -> PartitionEnd {
    let record = index as u32;
    PartitionEnd {
        high_watermark: 6,
        last_stable_offset: 6,
        log: vec![
            data(0, 0, 0, record),
            marker(1, 1, true),
            data(2, 1, 1, record),
            marker(3, 2, false),
            data(4, 3, 2, record),
            marker(5, 3, true),
        ],
        committed: vec![(0, label(0, record)), (4, label(2, record))],
        open: Vec::new(),
        read_up_to: 6,
    }
}

/// The story with one thing changed, and what the checker says.
fn with(change: impl FnOnce(&mut Story)) -> Vec<Anomaly> {
    let mut story = Story::good();
    change(&mut story);
    story.anomalies()
}

#[track_caller]
fn finds(anomaly: Anomaly, change: impl FnOnce(&mut Story)) {
    let found = with(change);
    assert!(found.contains(&anomaly), "{found:?}");
}

#[test]
fn a_good_history_is_good() {
    assert_eq!(check(&Story::good().history, &Story::good().end), []);
    // Answers may be lost, and requests repeated.
    assert_eq!(with(|story| story.forget(0, COMMIT, true)), []);
    assert_eq!(
        with(|story| story.history.insert(4, Event::Sent { txn: 0, what: write(0, 0) })),
        []
    );
    assert_eq!(with(|story| story.late(0, write(0, 9), Some(Err(47)))), []);
    assert_eq!(with(|story| story.late(1, What::Offsets { upto: 9 }, None)), []);
    // It asked before the other took over.
    let went_on = Event::WentOn { id: "a", instance: 0, sent: 1 };
    assert_eq!(with(|story| story.history.push(went_on)), []);
}

#[test]
fn aborted_reads_are_found() {
    finds(Anomaly::AbortedRead, |story| {
        story.end.partitions[0].committed.push((2, label(1, 0)));
    });
    finds(Anomaly::AbortedRead, |story| {
        story.history.push(Event::Saw { partition: 1, offset: 2, label: label(1, 1) });
    });
    // The markers commit what its owner aborted.
    finds(Anomaly::AbortedRead, |story| {
        for partition in 0..2 {
            story.log(partition)[3] = marker(3, 2, true);
            story.end.partitions[partition].committed.insert(1, (2, label(1, partition as u32)));
        }
    });
    // Its owner said nothing at all.
    finds(Anomaly::AbortedRead, |story| story.forget(0, COMMIT, false));
}

#[test]
fn lost_writes_are_found() {
    finds(Anomaly::LostWrite, |story| {
        story.log(0).remove(2);
    });
    finds(Anomaly::LostWrite, |story| {
        story.end.partitions[1].committed.remove(0);
    });
    // A consumer that read beside was never shown it.
    finds(Anomaly::LostWrite, |story| {
        let unseen = Event::Saw { partition: 0, offset: 4, label: label(2, 0) };
        story.history.retain(|event| *event != unseen);
    });
}

#[test]
fn torn_transactions_are_found() {
    finds(Anomaly::Torn, |story| {
        story.log(1)[1] = marker(1, 1, false);
        story.end.partitions[1].committed.remove(0);
        story.history.retain(|event| !matches!(event, Event::Saw { offset: 0, .. }));
    });
}

#[test]
fn a_transaction_that_outlives_its_fencing_is_found() {
    // By its answer.
    finds(Anomaly::OutlivedFencing, |story| {
        story.late(1, What::Offsets { upto: 9 }, Some(Ok(0)));
    });
    finds(Anomaly::OutlivedFencing, |story| story.late(1, ABORT, Some(Ok(0))));
    // By its effect, without an answer.
    finds(Anomaly::OutlivedFencing, |story| story.late(1, write(1, 0), None));
    finds(Anomaly::OutlivedFencing, |story| story.late(0, COMMIT, None));
    // It takes another epoch.
    finds(Anomaly::OutlivedFencing, |story| {
        let sent = story.history.len();
        story.history.push(Event::WentOn { id: "a", instance: 0, sent });
    });
    // In the log.
    finds(Anomaly::OutlivedFencing, |story| story.log(0)[4] = data(4, 1, 2, 0));
}

#[test]
fn duplicates_after_a_retry_are_found() {
    finds(Anomaly::Duplicate, |story| story.log(0).insert(1, data(1, 0, 0, 0)));
    finds(Anomaly::Duplicate, |story| {
        let (what, txn) = (write(0, 0), 0);
        story.history.push(Event::Told { txn, what, answer: Ok(9) });
    });
}

#[test]
fn a_commit_that_was_acknowledged_and_lost_is_found() {
    finds(Anomaly::CommitLost, |story| {
        for partition in 0..2 {
            story.log(partition)[1] = marker(1, 1, false);
            story.end.partitions[partition].committed.remove(0);
        }
        story.history.retain(|event| !matches!(event, Event::Saw { offset: 0, .. }));
    });
    finds(Anomaly::CommitLost, |story| story.late(0, ABORT, Some(Ok(0))));
}

#[test]
fn a_stable_offset_that_is_stuck_is_found() {
    finds(Anomaly::StuckLso, |story| story.end.partitions[0].last_stable_offset = 4);
    finds(Anomaly::StuckLso, |story| story.end.partitions[1].open.push(7));
    finds(Anomaly::StuckLso, |story| story.end.groups_open.push(7));
    finds(Anomaly::StuckLso, |story| {
        story.log(0).pop();
    });
    finds(Anomaly::StuckLso, |story| {
        story.end.states = vec![("a".to_owned(), "PrepareCommit".to_owned())];
    });
}

#[test]
fn a_zombies_additions_are_found() {
    finds(Anomaly::ZombieAdd, |story| {
        story.late(1, What::Add { partition: 0 }, Some(Ok(0)));
    });
    finds(Anomaly::ZombieAdd, |story| story.late(1, What::AddGroup, Some(Ok(0))));
    // A marker where the transaction never asked to write.
    finds(Anomaly::ZombieAdd, |story| {
        story.end.partitions.push(PartitionEnd {
            high_watermark: 1,
            last_stable_offset: 1,
            log: vec![marker(0, 2, false)],
            ..PartitionEnd::default()
        });
    });
}

#[test]
fn offsets_apart_from_their_output_are_found() {
    finds(Anomaly::OffsetsApart, |story| story.end.position = 1);
    finds(Anomaly::OffsetsApart, |story| story.end.position = 3);
    finds(Anomaly::OffsetsApart, |story| {
        story.history.push(Event::Position { at: 0, known: 2 });
    });
    // An input that was consumed twice.
    finds(Anomaly::OffsetsApart, |story| {
        let again = Label { record: 9, ..label(2, 0) };
        story.log(0).insert(5, Entry { offset: 5, producer: (7, 3), kind: Kind::Data(again) });
    });
}
