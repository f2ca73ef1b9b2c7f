//! Before a leader takes the first batch of a transaction it asks the coordinator whether the
//! partition is part of it (KIP-890): what comes late, or from a producer that was fenced, must not
//! open a transaction that nobody ends. From produce version 12 on the question makes it part of
//! the transaction.

use std::rc::Rc;
use std::time::Duration;

use coord::Producer;
use meta::controller::TRANSACTION_STATE_TOPIC;
use wire::ErrorCode;

use super::between::{Asked, ShardAsk, ask_node};
use crate::coordinators::partition_of;
use crate::shard::Shard;

/// Markers on the same machine are mostly written by then: a producer that begins its next
/// transaction at once does not wait for a whole `add.partitions.to.txn.retry.backoff.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// What a leader wants to know.
pub(crate) struct Question<'a> {
    pub transactional_id: &'a str,
    pub producer: Producer,
    pub topic: &'a str,
    pub partition: i32,
    /// The client leaves it to the leader to make partitions part of the transaction.
    pub adds: bool,
    /// The client knows TRANSACTION_ABORTABLE.
    pub knows_abortable: bool,
}

/// # Errors
/// What the client is told; all of them in words that clients of the old protocol understand.
pub(crate) async fn verify(shard: &Rc<Shard>, question: &Question<'_>) -> Result<(), ErrorCode> {
    let config = shard.config().transactions.clone();
    let give_up = reactor::now() + Duration::from_millis(u64::from(config.retry_backoff_max_ms));
    let longest = Duration::from_millis(u64::from(config.retry_backoff_ms));
    let mut pause = FIRST_PAUSE.min(longest);
    loop {
        let code = ask_once(shard, question).await;
        // Its last transaction is just ending: markers take a moment.
        let may_wait = question.adds && code == ErrorCode::ConcurrentTransactions;
        if may_wait && reactor::now() < give_up {
            reactor::sleep(pause).await;
            pause = (pause * 2).min(longest);
            continue;
        }
        return match code {
            ErrorCode::None => Ok(()),
            code => Err(told(code, question.knows_abortable)),
        };
    }
}

async fn ask_once(shard: &Rc<Shard>, question: &Question<'_>) -> ErrorCode {
    let node = {
        let image = shard.image();
        let Some(topic) = image.topic_by_name(TRANSACTION_STATE_TOPIC) else {
            return ErrorCode::InvalidProducerIdMapping;
        };
        let index = partition_of(question.transactional_id, topic.partitions.len());
        topic.partition(index).map(|partition| partition.leader)
    };
    let Some(node) = node.filter(|node| *node != meta::NO_LEADER) else {
        return ErrorCode::CoordinatorNotAvailable;
    };
    let asked = Asked::AddPartitions {
        transactional_id: question.transactional_id.to_owned(),
        producer: question.producer,
        verify_only: !question.adds,
    };
    let partitions = vec![(question.topic.to_owned(), question.partition)];
    let codes = ask_node(shard, node.0, ShardAsk { partitions, asked }).await;
    codes.first().copied().unwrap_or(ErrorCode::CoordinatorNotAvailable)
}

fn told(code: ErrorCode, knows_abortable: bool) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if !knows_abortable => ErrorCode::InvalidTxnState,
        // Old clients do not try these again; this one they do, without asking for metadata.
        ErrorCode::ConcurrentTransactions
        | ErrorCode::NotCoordinator
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable => ErrorCode::NotEnoughReplicas,
        other => other,
    }
}
