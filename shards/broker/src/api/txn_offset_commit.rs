//! TxnOffsetCommit (28): positions of a group that count when a transaction is committed.

use coord::{Producer, Reply as Answer, Request as Asked};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::ErrorCode;
use wire::messages::TxnOffsetCommitRequest;

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::coordinators::partition_of;
use crate::fetch_session::TopicRef;
use crate::groups::ask;
use crate::reply::Handled;
use crate::transactions::{self, Question};

/// From this version on the client leaves it to the group's coordinator to make its partition part
/// of the transaction.
const ADDS_FROM: i16 = 5;
/// From this version on clients know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 4;
/// What the coordinator appends has none.
const NO_SEQUENCE: i32 = -1;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: TxnOffsetCommitRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let asked = Asked::TxnOffsetCommit(&body);
    let answer = match may_commit(&request, &body).await {
        Ok(()) => ask(&request, asked).await,
        Err(code) => asked.refused(code, request.version),
    };
    match answer {
        Answer::TxnOffsetCommit(response) => request.reply(&response),
        other => other_kind(&other),
    }
}

/// Whether the group's partition is part of the producer's transaction.
async fn may_commit(request: &Request, body: &TxnOffsetCommitRequest<'_>) -> Result<(), ErrorCode> {
    let shard = &request.shard;
    let count = {
        let image = shard.image();
        image.topic_by_name(GROUP_OFFSETS_TOPIC).map(|topic| topic.partitions.len())
    };
    let index = partition_of(&body.group_id, count.ok_or(ErrorCode::NotCoordinator)?);
    let topic = TopicRef::Name(GROUP_OFFSETS_TOPIC.into());
    let partition = shard.partition_when_open(&topic, index).await;
    let partition = partition.map_err(|_| ErrorCode::NotCoordinator)?;
    let producer = Producer { id: body.producer_id, epoch: body.producer_epoch };
    let question = Question {
        transactional_id: &body.transactional_id,
        producer,
        topic: GROUP_OFFSETS_TOPIC,
        partition: index,
        adds: request.version >= ADDS_FROM,
        knows_abortable: request.version >= ABORTABLE_FROM,
    };
    loop {
        let known = partition.log.producer(producer.id);
        if let Some(known) = known
            && known.epoch > producer.epoch
        {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if known.is_some_and(|known| known.open_since.is_some() && known.epoch == producer.epoch) {
            return Ok(());
        }
        if !question.adds && !shard.config().transactions.verify_partitions {
            return Ok(());
        }
        if !partition.log.may_open_transaction() {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let (first, now_ms) = ((producer.epoch, NO_SEQUENCE), reactor::wall_clock_ms());
        let verification = partition.log.begin_verification(producer.id, first, now_ms);
        transactions::verify(shard, &question).await.map_err(told)?;
        if verification.holds() {
            return Ok(());
        }
    }
}

/// As clients of groups understand it.
fn told(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::NotEnoughReplicas => ErrorCode::CoordinatorLoadInProgress,
        other => other,
    }
}
