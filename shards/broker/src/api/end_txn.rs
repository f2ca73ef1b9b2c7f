//! EndTxn (26): commits or aborts a transaction. Answered once the decision is safe; the markers
//! follow.

use coord::txn::{TxnReply, TxnRequest};
use wire::messages::EndTxnRequest;

use super::{Request, other_transaction_kind};
use crate::reply::Handled;
use crate::transactions;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: EndTxnRequest<'_> = request.body()?;
    // Epochs may be used up: then the producer gets another id. Without one at hand it is told to
    // try again.
    let _ = request.shard.hold_producer_ids().await;
    let asked = TxnRequest::EndTxn(&body);
    match transactions::ask(&request.shard, request.version, asked).await {
        TxnReply::EndTxn(response) => request.reply(&response),
        other => other_transaction_kind(&other),
    }
}
