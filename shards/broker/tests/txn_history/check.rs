//! Holds a history against what the broker has in the end. Pure: each rule is one function.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{
    Anomaly, End, Event, Found, Instance, Kind, Label, PartitionEnd, ProducerEpoch, TxnNumber, What,
};

/// Everything that is wrong, in no particular order.
pub fn check(history: &[Event], end: &End) -> Vec<Found> {
    let mut checker = Checker {
        history,
        end,
        txns: transactions(history),
        committed: BTreeMap::new(),
        present: BTreeMap::new(),
        found: Vec::new(),
    };
    checker.read_logs();
    checker.aborted_reads();
    checker.lost_writes();
    checker.outcomes();
    checker.fencing();
    checker.goings_on();
    checker.epochs();
    checker.additions();
    checker.stuck();
    checker.offsets();
    checker.found
}

/// A request within a transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// When it was sent for the first time.
    sent: usize,
    /// The offset of the last answer that was one.
    done: Option<i64>,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
struct Txn {
    id: &'static str,
    instance: Instance,
    producer: ProducerEpoch,
    bumps: bool,
    /// Since when its producer has the epoch: the last takeover of its instance.
    took: usize,
    asked: BTreeMap<What, Asked>,
}

impl Txn {
    fn end(&self, commit: bool) -> Option<Asked> {
        self.asked.get(&What::End { commit }).copied()
    }

    fn is_told(&self, commit: bool) -> bool {
        self.end(commit).is_some_and(|asked| asked.done.is_some())
    }

    /// Acknowledged records.
    fn written(&self) -> impl Iterator<Item = (usize, Label, i64)> + '_ {
        self.asked.iter().filter_map(|(what, asked)| match (what, asked.done) {
            (What::Write { partition, label }, Some(offset)) => Some((*partition, *label, offset)),
            _ => None,
        })
    }

    /// Whether the client asked for this partition to be part of it.
    fn asked_for(&self, index: usize) -> bool {
        self.asked.keys().any(|what| match what {
            What::Write { partition, .. } | What::Add { partition } => *partition == index,
            _ => false,
        })
    }
}

fn transactions(history: &[Event]) -> BTreeMap<TxnNumber, Txn> {
    let mut txns: BTreeMap<TxnNumber, Txn> = BTreeMap::new();
    let mut takeovers: BTreeMap<Instance, usize> = BTreeMap::new();
    for (at, event) in history.iter().enumerate() {
        match *event {
            Event::Took { instance, .. } | Event::WentOn { instance, .. } => {
                takeovers.insert(instance, at);
            }
            Event::Began { txn, id, instance, producer, bumps } => {
                let took = takeovers.get(&instance).copied().unwrap_or(0);
                let asked = BTreeMap::new();
                txns.insert(txn, Txn { id, instance, producer, bumps, took, asked });
            }
            Event::Sent { txn, what } => {
                if let Some(txn) = txns.get_mut(&txn) {
                    txn.asked.entry(what).or_insert(Asked { sent: at, done: None });
                }
            }
            Event::Told { txn, what, answer: Ok(offset) } => {
                if let Some(asked) = txns.get_mut(&txn).and_then(|it| it.asked.get_mut(&what)) {
                    asked.done = Some(offset);
                }
            }
            Event::Told { .. } | Event::Saw { .. } | Event::Position { .. } => {}
        }
    }
    txns
}

struct Checker<'h> {
    history: &'h [Event],
    end: &'h End,
    txns: BTreeMap<TxnNumber, Txn>,
    /// What the logs' own markers commit.
    committed: BTreeMap<Label, (usize, i64)>,
    /// All that is in the logs.
    present: BTreeMap<Label, (usize, i64)>,
    found: Vec<Found>,
}

impl Checker<'_> {
    fn note(&mut self, anomaly: Anomaly, text: String) {
        self.found.push(Found { anomaly, text });
    }

    /// Reads off the markers what is committed, and finds what is there twice.
    fn read_logs(&mut self) {
        for (partition, there) in self.end.partitions.iter().enumerate() {
            let mut open: BTreeMap<i64, Vec<(Label, i64)>> = BTreeMap::new();
            for entry in &there.log {
                match entry.kind {
                    Kind::Data(label) => {
                        let place = (partition, entry.offset);
                        if let Some(first) = self.present.insert(label, place) {
                            let text = format!("{label} is at {first:?} and at {place:?}");
                            self.note(Anomaly::Duplicate, text);
                        }
                        open.entry(entry.producer.0).or_default().push((label, entry.offset));
                    }
                    Kind::Marker { commit } => {
                        let ended = open.remove(&entry.producer.0).unwrap_or_default();
                        for (label, offset) in ended.into_iter().filter(|_| commit) {
                            self.committed.insert(label, (partition, offset));
                        }
                    }
                }
            }
            for (producer, labels) in open {
                let text = format!("partition {partition}: {producer} has {labels:?} open");
                self.note(Anomaly::StuckLso, text);
            }
        }
    }

    /// Readers see what the markers commit, and nothing else; nobody sees what its owner did not
    /// commit.
    fn aborted_reads(&mut self) {
        for (partition, there) in self.end.partitions.iter().enumerate() {
            for (offset, label) in &there.committed {
                if self.committed.get(label) != Some(&(partition, *offset)) {
                    let text =
                        format!("{label} is read at {partition}:{offset}, and not committed");
                    self.note(Anomaly::AbortedRead, text);
                }
            }
        }
        for event in self.history {
            let Event::Saw { partition, offset, label } = *event else { continue };
            if self.committed.get(&label) != Some(&(partition, offset)) {
                let text =
                    format!("{label} was read at {partition}:{offset}, and is not committed");
                self.note(Anomaly::AbortedRead, text);
            }
        }
        let uncommitted = self.committed.keys().filter(|label| {
            let txn = self.txns.get(&label.txn);
            txn.is_none_or(|txn| txn.end(true).is_none() || txn.is_told(false))
        });
        for label in uncommitted.copied().collect::<Vec<_>>() {
            self.note(Anomaly::AbortedRead, format!("{label} is committed by nobody"));
        }
    }

    /// What was acknowledged is there, at the offset that was told; what is committed can be read.
    fn lost_writes(&mut self) {
        for txn in self.txns.clone().values() {
            for (partition, label, offset) in txn.written() {
                match self.present.get(&label) {
                    Some(place) if *place == (partition, offset) => {}
                    Some(place) => {
                        let text = format!("{label} is at {place:?}, its writer was told {offset}");
                        self.note(Anomaly::Duplicate, text);
                    }
                    None => {
                        let text = format!("{label} was acknowledged at {partition}:{offset}");
                        self.note(Anomaly::LostWrite, text);
                    }
                }
            }
        }
        let saw: BTreeSet<Label> = self
            .history
            .iter()
            .filter_map(|event| match event {
                Event::Saw { label, .. } => Some(*label),
                _ => None,
            })
            .collect();
        for (label, (partition, offset)) in self.committed.clone() {
            let there: &PartitionEnd = &self.end.partitions[partition];
            if !there.committed.contains(&(offset, label)) {
                let text = format!("{label} is committed at {partition}:{offset} and not read");
                self.note(Anomaly::LostWrite, text);
            }
            if offset < there.read_up_to && !saw.contains(&label) {
                let text = format!("{label} was passed over at {partition}:{offset}");
                self.note(Anomaly::LostWrite, text);
            }
        }
    }

    /// Each transaction is there as a whole or not at all, and as its owner was told.
    fn outcomes(&mut self) {
        for (number, txn) in &self.txns.clone() {
            let written: Vec<Label> = txn.written().map(|(_, label, _)| label).collect();
            let is_there = |label: &&Label| self.committed.contains_key(*label);
            let there = written.iter().filter(is_there).count();
            if there > 0 && there < written.len() {
                let text = format!("{there} of {} of transaction {number}", written.len());
                self.note(Anomaly::Torn, text);
            }
            if txn.is_told(true) && there == 0 && !written.is_empty() {
                let text = format!("the commit of transaction {number} was acknowledged");
                self.note(Anomaly::CommitLost, text);
            }
            if txn.is_told(true) && txn.is_told(false) {
                let text = format!("transaction {number} was committed and aborted");
                self.note(Anomaly::CommitLost, text);
            }
        }
    }

    /// When somebody else took an id over for the first time since then.
    fn fenced_at(&self, id: &str, instance: Instance, since: usize) -> Option<usize> {
        let later = self.history.iter().enumerate().skip(since + 1);
        let mut others = later.filter(|(_, event)| match event {
            Event::Took { id: of, instance: other } => *of == id && *other != instance,
            Event::WentOn { id: of, instance: other, .. } => *of == id && *other != instance,
            _ => false,
        });
        others.next().map(|(at, _)| at)
    }

    /// Who was fenced does not go on.
    fn goings_on(&mut self) {
        let mut since: BTreeMap<Instance, usize> = BTreeMap::new();
        for (at, event) in self.history.iter().enumerate() {
            match *event {
                Event::Took { instance, .. } => {
                    since.insert(instance, at);
                }
                Event::WentOn { id, instance, sent } => {
                    let took = since.insert(instance, at).unwrap_or(0);
                    if self.fenced_at(id, instance, took).is_some_and(|fenced| fenced < sent) {
                        let text = format!("instance {instance} of {id} was fenced, and went on");
                        self.note(Anomaly::OutlivedFencing, text);
                    }
                }
                _ => {}
            }
        }
    }

    /// What a producer sends for the first time after it was fenced changes nothing.
    fn fencing(&mut self) {
        for (number, txn) in &self.txns.clone() {
            let fenced = self.fenced_at(txn.id, txn.instance, txn.took);
            let Some(fenced) = fenced else { continue };
            for (what, asked) in txn.asked.iter().filter(|(_, asked)| asked.sent > fenced) {
                let took_effect = match what {
                    What::Write { label, .. } => self.present.contains_key(label),
                    What::End { commit: true } => {
                        self.committed.keys().any(|label| label.txn == *number)
                    }
                    _ => false,
                };
                if !took_effect && asked.done.is_none() {
                    continue;
                }
                let anomaly = match what {
                    What::Add { .. } | What::AddGroup => Anomaly::ZombieAdd,
                    _ => Anomaly::OutlivedFencing,
                };
                let text = format!("{what:?} of transaction {number}, whose producer was fenced");
                self.note(anomaly, text);
            }
        }
    }

    /// In a log no epoch of a producer comes after a later one.
    fn epochs(&mut self) {
        for (partition, there) in self.end.partitions.iter().enumerate() {
            let mut latest: BTreeMap<i64, i16> = BTreeMap::new();
            for entry in &there.log {
                let (producer, epoch) = entry.producer;
                let before = latest.insert(producer, epoch);
                if before.is_some_and(|before| before > epoch) {
                    let text = format!("partition {partition}: {entry:?} after epoch {before:?}");
                    self.note(Anomaly::OutlivedFencing, text);
                }
            }
        }
    }

    /// Markers are only where a transaction of their producer asked to write. A marker has the
    /// epoch after that of its transaction; before KIP-890 it has the same if the owner ended it.
    fn additions(&mut self) {
        for (partition, there) in self.end.partitions.iter().enumerate() {
            for entry in &there.log {
                let Kind::Marker { .. } = entry.kind else { continue };
                let (producer, epoch) = entry.producer;
                let mut its = self.txns.values().filter(|txn| {
                    let (id, of_txn) = txn.producer;
                    id == producer && (of_txn + 1 == epoch || !txn.bumps && of_txn == epoch)
                });
                if !its.any(|txn| txn.asked_for(partition)) {
                    let text = format!("partition {partition}: nobody asked for {entry:?}");
                    self.note(Anomaly::ZombieAdd, text);
                }
            }
        }
    }

    /// Nothing is open when everybody is silent and the last timeout has passed.
    fn stuck(&mut self) {
        for (partition, there) in self.end.partitions.iter().enumerate() {
            let (stable, end) = (there.last_stable_offset, there.high_watermark);
            if stable != end || !there.open.is_empty() {
                let text =
                    format!("partition {partition}: {stable} of {end}, open: {:?}", there.open);
                self.note(Anomaly::StuckLso, text);
            }
        }
        if !self.end.groups_open.is_empty() {
            let text = format!("offsets of {:?} are open", self.end.groups_open);
            self.note(Anomaly::StuckLso, text);
        }
        for (id, state) in &self.end.states {
            if !["Empty", "CompleteCommit", "CompleteAbort"].contains(&state.as_str()) {
                self.note(Anomaly::StuckLso, format!("{id} stays {state}"));
            }
        }
    }

    /// Every input below the group's position has its output once, every other none; no position
    /// goes back.
    fn offsets(&mut self) {
        let mut outputs: BTreeMap<i64, Vec<Label>> = BTreeMap::new();
        for label in self.committed.keys() {
            if let Some(input) = label.input {
                outputs.entry(input).or_default().push(*label);
            }
        }
        for input in 0..self.end.position {
            let of_input = outputs.get(&input).map_or(0, Vec::len);
            if of_input != 1 {
                let text =
                    format!("input {input} of {} is there {of_input} times", self.end.position);
                self.note(Anomaly::OffsetsApart, text);
            }
        }
        let beyond = outputs.range(self.end.position.max(0)..).map(|(input, _)| *input);
        for input in beyond.collect::<Vec<_>>() {
            let text = format!("input {input} is there, the position is {}", self.end.position);
            self.note(Anomaly::OffsetsApart, text);
        }
        let mut last = 0;
        for event in self.history {
            let Event::Position { at, known } = *event else { continue };
            last = last.max(at);
            if at < known {
                let text = format!("the position went from {known} back to {at}");
                self.note(Anomaly::OffsetsApart, text);
            }
        }
        if self.end.position < last {
            let text = format!("the position went from {last} back to {}", self.end.position);
            self.note(Anomaly::OffsetsApart, text);
        }
    }
}
