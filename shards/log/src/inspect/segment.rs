//! Checking one segment: its batches, and each of its indexes against them, in one pass.

use std::io;
use std::path::{Path, PathBuf};

use wire::records::BatchHeader;

use super::replay::Replay;
use super::{BatchAt, Batches, Entries, Findings, Severity, Step, offset_entry, time_entry};
use crate::names::{FileKind, file_path};
use crate::producer_state::ProducerStates;
use crate::segment::NO_TIMESTAMP;
use crate::txn_index::{self, AbortedTxn, Check};

/// What is known of a segment besides its files.
pub(crate) struct SegmentContext<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) base: i64,
    /// Base offset of the next segment.
    pub(crate) next_base: Option<i64>,
    /// Below, everything was synced: damage there is a loss.
    pub(crate) recovery_point: i64,
    /// Aborted transactions that end at or behind it may not be in the index yet.
    pub(crate) aborted_saved_to: i64,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

pub(crate) async fn verify(
    context: &SegmentContext<'_>,
    replay: &mut Replay,
    findings: &mut Findings<'_>,
) -> io::Result<Counted> {
    let path = file_path(context.dir, FileKind::Log, context.base);
    let mut batches = match Batches::open(&path).await {
        Ok(batches) => batches,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            findings.tell(Severity::Damage, &path, None, error.to_string());
            return Ok(Counted::default());
        }
        Err(error) => return Err(error),
    };
    let mut offsets = OffsetCheck::open(context, findings).await?;
    let mut times = TimeCheck::open(context, findings).await?;
    let mut aborted = AbortedCheck::open(context, findings).await?;
    let mut counted = Counted::default();
    // A bad batch at the very end is what a crash leaves; told when it is known what follows.
    let mut bad: Option<BatchAt> = None;
    let ending = loop {
        let batch = match batches.next().await? {
            Step::Batch(batch) => batch,
            other => break other,
        };
        if let Some(bad) = bad.take() {
            let text = "the checksum of a batch is wrong".to_owned();
            findings.tell(Severity::Damage, &path, Some(bad.position.into()), text);
        }
        if !batch.valid {
            bad = Some(batch);
            // What it said of producers and transactions is not known.
            replay.holes = true;
        }
        let header = &batch.header;
        if !check_offsets(context, replay, findings, &path, &batch) {
            continue;
        }
        pass_snapshots(replay, header.base_offset, findings).await?;
        replay.check_epoch(header, &path, findings, batch.position.into());
        offsets.batch(&batch, findings).await?;
        times.batch(header, findings).await?;
        if batch.valid {
            let scanner = batches.scanner();
            let ended =
                scanner.replay_producer(header, batch.position, &mut replay.producers).await?;
            if let Some(entry) = ended.as_ref().and_then(txn_index::entry_of) {
                aborted.expect(entry, replay, findings).await?;
            }
        }
        replay.next = Some(header.next_offset());
        counted.batches += 1;
        counted.records += u64::try_from(header.record_count).unwrap_or(0);
        counted.bytes += header.size_in_bytes() as u64;
    };
    let end = batches.position();
    if let Some(bad) = bad {
        let severity = context.torn(bad.header.base_offset);
        let text = "the checksum of the last batch is wrong".to_owned();
        findings.tell(severity, &path, Some(bad.position.into()), text);
    }
    check_ending(context, replay, findings, &path, (&ending, end, batches.size()));
    let whole = matches!(ending, Step::End) || context.next_base.is_none();
    offsets.finish(whole, findings).await?;
    times.finish(context.next_base.is_some(), findings).await?;
    aborted.finish(replay, findings).await?;
    Ok(counted)
}

impl SegmentContext<'_> {
    /// How bad it is that the log ends with something broken at `offset`.
    fn torn(&self, offset: i64) -> Severity {
        match self.next_base {
            None if offset >= self.recovery_point => Severity::Repairable,
            _ => Severity::Damage,
        }
    }
}

/// Whether the offsets of a batch can be; only then it is held against anything.
fn check_offsets(
    context: &SegmentContext<'_>,
    replay: &mut Replay,
    findings: &mut Findings<'_>,
    path: &Path,
    batch: &BatchAt,
) -> bool {
    let header = &batch.header;
    let position = Some(u64::from(batch.position));
    let span = header.last_offset().saturating_sub(context.base);
    if header.base_offset < context.base || span > i64::from(i32::MAX) {
        let text = format!(
            "a batch has offsets {} to {} in the segment that starts at {}",
            header.base_offset,
            header.last_offset(),
            context.base
        );
        findings.tell(Severity::Damage, path, position, text);
        return false;
    }
    if context.next_base.is_some_and(|next| header.last_offset() >= next) {
        let text = format!(
            "a batch has offsets {} to {} though the next segment starts at {}",
            header.base_offset,
            header.last_offset(),
            context.next_base.unwrap_or_default()
        );
        findings.tell(Severity::Damage, path, position, text);
        return false;
    }
    match replay.next {
        Some(next) if header.base_offset < next => {
            let text =
                format!("a batch has offset {} where {next} is the least", header.base_offset);
            findings.tell(Severity::Damage, path, position, text);
            return false;
        }
        Some(next) if header.base_offset > next => {
            let text = format!(
                "offsets {next} to {} are missing, as compaction leaves it",
                header.base_offset - 1
            );
            findings.tell(Severity::Note, path, position, text);
            replay.holes = true;
        }
        _ => {}
    }
    true
}

/// Snapshots that the log has reached, against the producers so far.
pub(crate) async fn pass_snapshots(
    replay: &mut Replay,
    offset: i64,
    findings: &mut Findings<'_>,
) -> io::Result<()> {
    for (at, path) in replay.snapshots_up_to(offset) {
        let bytes = reactor::fs::read(&path).await?;
        if bytes.is_empty() {
            let text = "it is empty, as a crash may leave it; an older one counts";
            findings.tell(Severity::Note, &path, None, text);
            continue;
        }
        match ProducerStates::decode(&bytes) {
            Ok(snapshot) => {
                for problem in replay.compare(at, &snapshot) {
                    findings.tell(Severity::Damage, &path, None, problem);
                }
            }
            Err(damage) => {
                findings.tell(Severity::Repairable, &path, Some(0), damage.to_string());
            }
        }
    }
    Ok(())
}

fn check_ending(
    context: &SegmentContext<'_>,
    replay: &mut Replay,
    findings: &mut Findings<'_>,
    path: &Path,
    (ending, end, size): (&Step, u64, u64),
) {
    let next = replay.next.unwrap_or(context.base);
    replay.holes |= matches!(ending, Step::Damage(_));
    let (severity, text) = match ending {
        Step::Batch(_) | Step::End => match context.next_base {
            Some(base) if base > next => {
                replay.holes = true;
                let text =
                    format!("offsets {next} to {} are missing, as compaction leaves it", base - 1);
                (Severity::Note, text)
            }
            _ => return,
        },
        Step::Zeros { last_nonzero } if *last_nonzero > end => {
            let text =
                format!("zeros where a batch could be, and other bytes up to {last_nonzero}");
            (context.torn(next), text)
        }
        Step::Zeros { .. } if context.next_base.is_none_or(|base| base == next) => {
            (Severity::Note, format!("zeros to the end at {size}: space made ahead"))
        }
        Step::Zeros { .. } => {
            let text = format!(
                "zeros to the end at {size}, where offset {next} should be before the next segment"
            );
            (Severity::Damage, text)
        }
        Step::Damage(problem) => {
            (context.torn(next), format!("{problem}; {} bytes cannot be read", size - end))
        }
    };
    findings.tell(severity, path, Some(end), text);
}

/// The offset index against the batches as they pass.
struct OffsetCheck {
    path: PathBuf,
    base: i64,
    entries: Option<Entries<8>>,
    next: Option<(u64, i64, i64)>,
    last: Option<(i64, i64)>,
    /// An entry whose batch has passed and whose offset is of a later batch of the same append.
    reaching: Option<(u64, i64)>,
}

impl OffsetCheck {
    async fn open(
        context: &SegmentContext<'_>,
        findings: &mut Findings<'_>,
    ) -> io::Result<OffsetCheck> {
        let path = file_path(context.dir, FileKind::OffsetIndex, context.base);
        let entries = Entries::<8>::open(&path).await?;
        if let Some(entries) = &entries {
            tell_remainder(&path, entries.size(), entries.remainder(), findings);
        }
        let base = context.base;
        let mut check = OffsetCheck { path, base, entries, next: None, last: None, reaching: None };
        check.advance(findings).await?;
        Ok(check)
    }

    /// Reads on to the next entry that is in order.
    async fn advance(&mut self, findings: &mut Findings<'_>) -> io::Result<()> {
        self.next = None;
        let Some(entries) = &mut self.entries else { return Ok(()) };
        while let Some((at, bytes)) = entries.next().await? {
            let (offset, position) = offset_entry(bytes);
            let entry = (self.base.saturating_add(offset.into()), i64::from(position));
            let grows = self.last.is_none_or(|last| entry.0 > last.0 && entry.1 > last.1);
            if offset < 0 || position < 0 || !grows {
                let text = format!("entry (offset {}, position {position}) does not grow", entry.0);
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
                continue;
            }
            self.last = Some(entry);
            self.next = Some((at, entry.0, entry.1));
            return Ok(());
        }
        Ok(())
    }

    async fn batch(&mut self, batch: &BatchAt, findings: &mut Findings<'_>) -> io::Result<()> {
        let last_offset = batch.header.last_offset();
        if let Some((at, offset)) = self.reaching {
            if offset <= last_offset {
                self.reaching = None;
            }
            if offset < last_offset {
                let text = format!("no batch ends at the offset {offset} of an entry");
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
            }
        }
        while let Some((at, offset, position)) = self.next {
            if position > i64::from(batch.position) {
                return Ok(());
            }
            if position < i64::from(batch.position) {
                let text = format!("no batch starts at the position {position} of an entry");
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
            } else if offset < last_offset {
                let text = format!(
                    "the batch at position {position} ends at offset {last_offset}, not {offset}"
                );
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
            } else if offset > last_offset {
                self.reaching = Some((at, offset));
            }
            self.advance(findings).await?;
        }
        Ok(())
    }

    /// `whole`: the walk has seen all of the segment.
    async fn finish(mut self, whole: bool, findings: &mut Findings<'_>) -> io::Result<()> {
        if let Some((at, offset)) = self.reaching.filter(|_| whole) {
            let text = format!("no batch ends at the offset {offset} of an entry");
            findings.tell(Severity::Repairable, &self.path, Some(at), text);
        }
        while let Some((at, offset, position)) = self.next {
            let text = format!(
                "entry (offset {offset}, position {position}) lies beyond what can be read"
            );
            findings.tell(Severity::Repairable, &self.path, Some(at), text);
            self.advance(findings).await?;
        }
        Ok(())
    }
}

/// The time index against the batches as they pass.
struct TimeCheck {
    path: PathBuf,
    base: i64,
    entries: Option<Entries<12>>,
    next: Option<(u64, i64, i64)>,
    last: Option<(i64, i64)>,
    largest: i64,
}

impl TimeCheck {
    async fn open(
        context: &SegmentContext<'_>,
        findings: &mut Findings<'_>,
    ) -> io::Result<TimeCheck> {
        let path = file_path(context.dir, FileKind::TimeIndex, context.base);
        let entries = Entries::<12>::open(&path).await?;
        if let Some(entries) = &entries {
            tell_remainder(&path, entries.size(), entries.remainder(), findings);
        }
        let (base, largest) = (context.base, NO_TIMESTAMP);
        let mut check = TimeCheck { path, base, entries, next: None, last: None, largest };
        check.advance(findings).await?;
        Ok(check)
    }

    async fn advance(&mut self, findings: &mut Findings<'_>) -> io::Result<()> {
        self.next = None;
        let Some(entries) = &mut self.entries else { return Ok(()) };
        while let Some((at, bytes)) = entries.next().await? {
            let (timestamp, offset) = time_entry(bytes);
            let entry = (timestamp, self.base.saturating_add(offset.into()));
            let grows = self.last.is_none_or(|last| entry.0 > last.0 && entry.1 >= last.1);
            if offset < 0 || !grows {
                let text =
                    format!("entry (timestamp {timestamp}, offset {}) does not grow", entry.1);
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
                continue;
            }
            self.last = Some(entry);
            self.next = Some((at, timestamp, entry.1));
            return Ok(());
        }
        Ok(())
    }

    async fn batch(&mut self, header: &BatchHeader, findings: &mut Findings<'_>) -> io::Result<()> {
        self.largest = self.largest.max(header.max_timestamp);
        while let Some((at, timestamp, offset)) = self.next {
            if offset > header.last_offset() {
                return Ok(());
            }
            let text = if offset < header.base_offset {
                Some(format!("no batch has the offset {offset} of an entry"))
            } else if timestamp != header.max_timestamp {
                Some(format!(
                    "the largest timestamp at offset {offset} is {}, not {timestamp}",
                    header.max_timestamp
                ))
            } else if timestamp < self.largest {
                Some(format!("timestamp {timestamp} is not the largest so far, {}", self.largest))
            } else {
                None
            };
            if let Some(text) = text {
                findings.tell(Severity::Repairable, &self.path, Some(at), text);
            }
            self.advance(findings).await?;
        }
        Ok(())
    }

    async fn finish(mut self, sealed: bool, findings: &mut Findings<'_>) -> io::Result<()> {
        while let Some((at, timestamp, offset)) = self.next {
            let text = format!(
                "entry (timestamp {timestamp}, offset {offset}) lies beyond what can be read"
            );
            findings.tell(Severity::Repairable, &self.path, Some(at), text);
            self.advance(findings).await?;
        }
        let last = self.last.map_or(NO_TIMESTAMP, |(timestamp, _)| timestamp);
        if sealed && self.entries.is_some() && last < self.largest {
            let text = format!("the largest timestamp {} of the segment is missing", self.largest);
            findings.tell(Severity::Repairable, &self.path, None, text);
        }
        Ok(())
    }
}

/// The transaction index against the markers as they pass.
struct AbortedCheck {
    path: PathBuf,
    entries: Option<Entries<34>>,
    check: Check,
    next: Option<(u64, AbortedTxn)>,
    saved_to: i64,
}

impl AbortedCheck {
    async fn open(
        context: &SegmentContext<'_>,
        findings: &mut Findings<'_>,
    ) -> io::Result<AbortedCheck> {
        let path = file_path(context.dir, FileKind::TxnIndex, context.base);
        let entries = Entries::<34>::open(&path).await?;
        if let Some(entries) = &entries {
            tell_remainder(&path, entries.size(), entries.remainder(), findings);
        }
        let check = Check::of(context.base);
        let saved_to = context.aborted_saved_to;
        let mut aborted = AbortedCheck { path, entries, check, next: None, saved_to };
        aborted.advance(findings).await?;
        Ok(aborted)
    }

    async fn advance(&mut self, findings: &mut Findings<'_>) -> io::Result<()> {
        self.next = None;
        let Some(entries) = &mut self.entries else { return Ok(()) };
        while let Some((at, bytes)) = entries.next().await? {
            match self.check.entry(&bytes) {
                Ok(entry) => {
                    self.next = Some((at, entry));
                    return Ok(());
                }
                Err(damage) => {
                    findings.tell(Severity::Damage, &self.path, Some(at), damage.to_string());
                }
            }
        }
        Ok(())
    }

    /// The batches say that this transaction was aborted.
    async fn expect(
        &mut self,
        expected: AbortedTxn,
        replay: &Replay,
        findings: &mut Findings<'_>,
    ) -> io::Result<()> {
        while let Some((at, entry)) = self.next {
            if entry.last_offset > expected.last_offset {
                break;
            }
            if entry.last_offset < expected.last_offset {
                self.unexpected(at, &entry, replay, findings);
                self.advance(findings).await?;
                continue;
            }
            let known = replay.complete && !replay.holes;
            let stable = entry.last_stable_offset == expected.last_stable_offset || !known;
            let same = entry.producer_id == expected.producer_id
                && (entry.first_offset == expected.first_offset || !known)
                && stable;
            if !same {
                let text = format!("{} stands for {}", words(&entry), words(&expected));
                findings.tell(Severity::Damage, &self.path, Some(at), text);
            }
            return self.advance(findings).await;
        }
        let text = format!("{} is missing", words(&expected));
        let severity = match expected.last_offset >= self.saved_to {
            true => Severity::Repairable,
            false => Severity::Damage,
        };
        findings.tell(severity, &self.path, None, text);
        Ok(())
    }

    /// An entry that no marker explains: its data may be gone, by compaction or retention.
    fn unexpected(
        &self,
        at: u64,
        entry: &AbortedTxn,
        replay: &Replay,
        findings: &mut Findings<'_>,
    ) {
        let gone = replay.holes || !replay.complete || entry.first_offset < replay.first_base;
        let severity = if gone { Severity::Note } else { Severity::Damage };
        let text = format!("no marker explains {}", words(entry));
        findings.tell(severity, &self.path, Some(at), text);
    }

    async fn finish(mut self, replay: &Replay, findings: &mut Findings<'_>) -> io::Result<()> {
        while let Some((at, entry)) = self.next {
            self.unexpected(at, &entry, replay, findings);
            self.advance(findings).await?;
        }
        Ok(())
    }
}

fn words(txn: &AbortedTxn) -> String {
    format!(
        "the aborted transaction of producer {} from {} to {} (last stable offset {})",
        txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
    )
}

fn tell_remainder(path: &Path, size: u64, remainder: u64, findings: &mut Findings<'_>) {
    if remainder > 0 {
        let text = format!("its {size} bytes are not whole entries");
        findings.tell(Severity::Repairable, path, Some(size - remainder), text);
    }
}
