//! InitProducerId (22): the id and epoch that a producer writes with. Without a transactional id an
//! id that no other producer ever gets; with one, what its coordinator says.

use coord::txn::{TxnReply, TxnRequest};
use wire::ErrorCode;
use wire::messages::init_producer_id_request::InitProducerIdRequest;
use wire::messages::init_producer_id_response::InitProducerIdResponse;

use super::{Request, other_transaction_kind};
use crate::reply::Handled;
use crate::transactions;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: InitProducerIdRequest<'_> = request.body()?;
    if body.transactional_id.is_some() {
        return initialise(&request, &body).await;
    }
    let result = request.shard.next_producer_id().await;
    request.reply(&match result {
        Ok(producer_id) => {
            InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
        }
        Err(error) => refused(error),
    })
}

async fn initialise(request: &Request, body: &InitProducerIdRequest<'_>) -> Handled {
    if let Err(error) = request.shard.hold_producer_ids().await {
        return request.reply(&refused(error));
    }
    let asked = TxnRequest::InitProducerId(body);
    match transactions::ask(&request.shard, request.version, asked).await {
        TxnReply::InitProducerId(response) => request.reply(&response),
        other => other_transaction_kind(&other),
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: error.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    }
}
