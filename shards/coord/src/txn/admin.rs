//! DescribeTransactions and ListTransactions.

use std::ops::Bound;

use ahash::AHashSet;
use regex::Regex;
use wire::messages as m;
use wire::messages::describe_transactions_response::{TopicData, TransactionState};
use wire::messages::list_transactions_response as listed;
use wire::{ErrorCode, Text};

use super::request::TxnReply;
use super::state::State;
use super::{Entry, TxnCoordinator};
use crate::pattern;

/// Most bytes a compiled filter may take: whoever asks gives a new one each time.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Ids that one call looks at.
const LISTED_PER_CALL_MAX: usize = 1_000;

impl TxnCoordinator {
    pub(super) fn describe(&self, id: &str) -> TxnReply {
        let transactional_id: Text<'static> = String::from(id).into();
        let missing = match id {
            "" => ErrorCode::InvalidRequest,
            _ => ErrorCode::TransactionalIdNotFound,
        };
        let Some(Entry { txn, sending }) = self.entries.get(id).map(|entry| &**entry) else {
            let error_code = missing.code();
            let state = TransactionState { transactional_id, error_code, ..Default::default() };
            return TxnReply::Describe(state);
        };
        let partitions =
            if txn.state.is_prepared() { sending.left() } else { txn.partitions.clone() };
        let topics = partitions.topics().map(|(topic, partitions)| TopicData {
            topic: String::from(topic).into(),
            partitions: partitions.to_vec().into(),
        });
        TxnReply::Describe(TransactionState {
            error_code: ErrorCode::None.code(),
            transactional_id,
            transaction_state: txn.state.name().into(),
            transaction_timeout_ms: txn.timeout_ms,
            transaction_start_time_ms: txn.started_ms,
            producer_id: txn.producer.id,
            producer_epoch: txn.producer.epoch,
            topics: topics.collect(),
        })
    }

    /// The ids of this partition that the request's filters let through, but for its pattern: a
    /// piece, without what the whole says of the request.
    pub(super) fn list(
        &self,
        request: &m::ListTransactionsRequest<'_>,
        after: Option<&str>,
        now_ms: i64,
    ) -> TxnReply {
        let states: Vec<Text<'_>> = request.state_filters.iter().collect();
        let wanted = State::ALL.map(|state| states.iter().any(|name| **name == *state.name()));
        let producer_ids: AHashSet<i64> = request.producer_id_filters.iter().collect();
        let passes = |entry: &Entry| {
            let txn = &entry.txn;
            let open_ms = now_ms.saturating_sub(txn.started_ms);
            (producer_ids.is_empty() || producer_ids.contains(&txn.producer.id))
                && (states.is_empty() || wanted[txn.state as usize])
                && (request.duration_filter < 0 || open_ms > request.duration_filter)
        };
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.entries.range::<str, _>((begin, Bound::Unbounded));
        let (mut found, mut last) = (Vec::new(), None);
        for (id, entry) in rest.by_ref().take(LISTED_PER_CALL_MAX) {
            last = Some(id);
            if passes(entry) {
                found.push(listed::TransactionState {
                    transactional_id: String::from(&**id).into(),
                    producer_id: entry.txn.producer.id,
                    transaction_state: entry.txn.state.name().into(),
                });
            }
        }
        let list =
            m::ListTransactionsResponse { transaction_states: found.into(), ..Default::default() };
        TxnReply::List { list, goes_on_after: last.filter(|_| rest.next().is_some()).cloned() }
    }
}

/// A filter of transactional ids, which the caller applies to what it was listed: to many ids that
/// takes time.
pub struct IdPattern(Regex);

impl IdPattern {
    /// In RE2's syntax.
    pub fn new(text: &str) -> Result<Self, ErrorCode> {
        let compiled = pattern::whole_within(text, PATTERN_BYTES_MAX);
        compiled.map(IdPattern).map_err(|_| ErrorCode::InvalidRegularExpression)
    }

    pub fn is_match(&self, id: &str) -> bool {
        self.0.is_match(id)
    }
}

/// What a request's filters of states name that is none. Of the request, not of its pieces: they are
/// many, and the names may be as large as a request.
pub(super) fn unknown_states(
    request: &m::ListTransactionsRequest<'_>,
) -> impl Iterator<Item = Text<'static>> {
    let names = request.state_filters.iter().filter(|name| !is_state(name));
    names.map(|name| String::from(&*name).into())
}

/// Kafka knows two more states, in which nothing is ever seen here.
fn is_state(name: &str) -> bool {
    State::ALL.iter().any(|state| state.name() == name)
        || matches!(name, "Dead" | "PrepareEpochFence")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_takes_long_to_compile_is_refused() {
        for text in [r"\pL{200}", &".".repeat(5_000), "(", &"(.*.*.*.*.*.*){30}".repeat(10)] {
            let refused = IdPattern::new(text).err();
            assert_eq!(refused, Some(ErrorCode::InvalidRegularExpression), "{text}");
        }
        for text in ["payments-.*", r"[\w.-]{1,249}", "(?i)a|b", r"\pL+-\d+", &"x".repeat(2_000)] {
            assert!(IdPattern::new(text).is_ok(), "{text}");
        }
    }
}
