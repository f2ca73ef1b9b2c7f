//! The transactions of one producer: so many records, then the commit, then the next ones.
//!
//! By KIP-890: the leaders make partitions part of the transaction, every commit gives a new epoch.
//!
//! | state | takes records | goes on when |
//! |---|---|---|
//! | open | yes | it has as many records as it shall have, or the load ends: closing |
//! | closing | no | all of its records are acknowledged: committing |
//! | committing | no | the commit is answered: open; or to try again: committing, after a pause |

use wire::messages::{EndTxnRequest, EndTxnResponse};
use wire::{ApiKey, ErrorCode, Message, Reader};

use super::link::Link;
use super::measure::Recorder;
use crate::connection::body_of;
use crate::error::{Error, Result};

const END_VERSION: i16 = 5;
/// As long as Kafka's client waits for a transaction that is just ending.
const PAUSE_NS: u64 = 20_000_000;

#[derive(Debug)]
pub struct Txn {
    id: String,
    /// To the coordinator.
    link: usize,
    state: State,
    records: usize,
    unacked: usize,
    first_due: Option<u64>,
    partitions: Vec<usize>,
    /// Partitions whose batch has to be sent again, and when.
    again: Vec<(u64, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closing,
    Committing { correlation: Option<i32>, not_before: u64 },
}

impl Txn {
    pub fn new(id: String, link: usize) -> Self {
        Txn {
            id,
            link,
            state: State::Open,
            records: 0,
            unacked: 0,
            first_due: None,
            partitions: Vec::new(),
            again: Vec::new(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn takes(&self) -> bool {
        self.state == State::Open
    }

    pub fn is_begun(&self) -> bool {
        self.records > 0
    }

    /// When the first record of a transaction was due that is begun and not committed.
    pub fn uncommitted(&self) -> Option<u64> {
        self.first_due.filter(|_| self.is_begun())
    }

    pub fn is_full(&self, records: usize) -> bool {
        self.records >= records
    }

    pub fn add(&mut self, due: Option<u64>, partition: usize) {
        if self.records == 0 {
            self.first_due = due;
        }
        self.records += 1;
        self.unacked += 1;
        if !self.partitions.contains(&partition) {
            self.partitions.push(partition);
        }
    }

    pub fn acked(&mut self, records: u32) {
        self.unacked = self.unacked.saturating_sub(usize::try_from(records).unwrap_or(0));
    }

    /// No more records; gives the partitions that have some.
    pub fn close(&mut self) -> Vec<usize> {
        if self.state == State::Open {
            self.state = State::Closing;
        }
        std::mem::take(&mut self.partitions)
    }

    /// The link on which the commit is due, if it is.
    pub fn due_commit(&mut self, now: u64) -> Option<usize> {
        match self.state {
            State::Closing if self.unacked == 0 => {
                self.state = State::Committing { correlation: None, not_before: 0 };
                Some(self.link)
            }
            State::Committing { correlation: None, not_before } if not_before <= now => {
                Some(self.link)
            }
            _ => None,
        }
    }

    pub fn commit(&mut self, link: &mut Link, producer: i64, epoch: i16) -> Result<()> {
        let request = EndTxnRequest {
            transactional_id: self.id.as_str().into(),
            producer_id: producer,
            producer_epoch: epoch,
            committed: true,
        };
        let correlation = Some(link.request(&request, END_VERSION)?);
        self.state = State::Committing { correlation, not_before: 0 };
        Ok(())
    }

    /// The producer's id and epoch from now on; `None` if the commit has to be tried again.
    pub fn committed(
        &mut self,
        frame: &[u8],
        now: u64,
        recorder: &mut Recorder,
    ) -> Result<Option<(i64, i16)>> {
        let State::Committing { correlation: Some(expected), .. } = self.state else {
            return Err(Error::Unreadable("an answer to no commit".to_owned()));
        };
        let body = body_of(frame, ApiKey::EndTxn, END_VERSION, expected)?;
        let answer = EndTxnResponse::decode(&mut Reader::new(body), END_VERSION)?;
        if self.says_try_again(answer.error_code) {
            recorder.tried_again += 1;
            self.state = State::Committing { correlation: None, not_before: now + PAUSE_NS };
            return Ok(None);
        }
        Error::check(|| format!("commit of {}", self.id), answer.error_code)?;
        recorder.committed(self.first_due, now);
        self.state = State::Open;
        self.records = 0;
        Ok(Some((answer.producer_id, answer.producer_epoch)))
    }

    /// The last transaction is still ending, or a coordinator is not there yet.
    pub fn says_try_again(&self, code: i16) -> bool {
        matches!(
            ErrorCode::from_code(code),
            Some(
                ErrorCode::ConcurrentTransactions
                    | ErrorCode::NotEnoughReplicas
                    | ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::CoordinatorNotAvailable
            )
        )
    }

    pub fn retry_later(&mut self, partition: usize, now: u64) {
        self.again.push((now + PAUSE_NS, partition));
    }

    pub fn due_retries(&mut self, now: u64) -> Vec<usize> {
        let due = self.again.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, partition)| partition).collect()
    }

    pub fn wake_at(&self) -> Option<u64> {
        let commit = match self.state {
            State::Committing { correlation: None, not_before } => Some(not_before),
            _ => None,
        };
        self.again.iter().map(|(at, _)| *at).chain(commit).min()
    }
}
