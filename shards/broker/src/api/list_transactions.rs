//! ListTransactions (66) and DescribeTransactions (65): what the coordinators of this shard node know;
//! clients ask every node.

use ahash::AHashSet;
use coord::txn::{IdPattern, TxnReply, TxnRequest, join_lists};
use wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse,
};

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, other_transaction_kind};
use crate::reply::Handled;
use crate::transactions;

pub(crate) async fn handle(request: Request) -> Handled {
    let mut body: ListTransactionsRequest<'_> = request.body()?;
    check_items(body.state_filters.len() + body.producer_id_filters.len(), DESCRIBED_ITEMS_MAX)?;
    // The coordinators are not held up by it.
    let pattern = body.transactional_id_pattern.take().filter(|text| !text.is_empty());
    let pattern = match pattern.map(|text| IdPattern::new(&text)).transpose() {
        Ok(pattern) => pattern,
        Err(code) => {
            let refused =
                ListTransactionsResponse { error_code: code.code(), ..Default::default() };
            return request.reply(&refused);
        }
    };
    let asked = TxnRequest::List(&body);
    let mut lists = Vec::new();
    for reply in transactions::ask_all(&request.shard, request.version, asked).await {
        match reply {
            TxnReply::List(list) => lists.push(list),
            other => return other_transaction_kind(&other),
        }
    }
    let mut list = join_lists(lists);
    if let Some(pattern) = pattern {
        let mut found = Vec::new();
        for state in list.transaction_states.into_vec() {
            if pattern.is_match(&state.transactional_id) {
                found.push(state);
            }
            reactor::yield_if_due().await;
        }
        list.transaction_states = found.into();
    }
    request.reply(&list)
}

pub(crate) async fn handle_describe(request: Request) -> Handled {
    let body: DescribeTransactionsRequest<'_> = request.body()?;
    check_items(body.transactional_ids.len(), DESCRIBED_ITEMS_MAX)?;
    // Each id once: a small request could ask for an answer of any size.
    let mut seen = AHashSet::new();
    let mut states = Vec::with_capacity(body.transactional_ids.len());
    let mut partitions = 0;
    for id in body.transactional_ids.iter().filter(|id| seen.insert(id.clone())) {
        let asked = TxnRequest::Describe(&id);
        let state = match transactions::ask(&request.shard, request.version, asked).await {
            TxnReply::Describe(state) => state,
            other => return other_transaction_kind(&other),
        };
        partitions += state.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>();
        check_items(partitions, REQUEST_ITEMS_MAX)?;
        states.push(state);
    }
    request.reply(&DescribeTransactionsResponse {
        transaction_states: states.into(),
        ..Default::default()
    })
}
