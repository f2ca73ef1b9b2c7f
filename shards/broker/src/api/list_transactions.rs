//! ListTransactions (66) and DescribeTransactions (65): what the coordinators of this shard node
//! know; clients ask every node.

use ahash::AHashSet;
use coord::txn::{IdPattern, TxnReply, TxnRequest, join_lists};
use wire::ErrorCode;
use wire::messages::list_transactions_response::TransactionState;
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
            return request.reply(&refused(code));
        }
    };
    let listed = transactions::list(&request.shard, request.version, &body).await;
    let mut list = listed.map(|pieces| join_lists(&body, pieces)).unwrap_or_else(refused);
    if let Some(pattern) = pattern {
        let all = list.transaction_states.into_vec();
        list.transaction_states = matching(all, |id| pattern.is_match(id)).await.into();
    }
    request.reply(&list)
}

/// To many ids a pattern takes long: others run in between.
async fn matching(
    all: Vec<TransactionState<'static>>,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<TransactionState<'static>> {
    let mut found = Vec::new();
    for state in all {
        if is_wanted(&state.transactional_id) {
            found.push(state);
        }
        reactor::yield_if_due().await;
    }
    found
}

fn refused(code: ErrorCode) -> ListTransactionsResponse<'static> {
    ListTransactionsResponse { error_code: code.code(), ..Default::default() }
}

pub(crate) async fn handle_describe(request: Request) -> Handled {
    let body: DescribeTransactionsRequest<'_> = request.body()?;
    check_items(body.transactional_ids.len(), REQUEST_ITEMS_MAX)?;
    // Each id once: a small request could ask for an answer of any size.
    let mut seen = AHashSet::new();
    let ids = body.transactional_ids.iter().filter(|id| seen.insert(id.clone()));
    let ids: Vec<_> = ids.collect();
    let mut states = Vec::with_capacity(ids.len());
    let mut left = if ids.len() > DESCRIBED_ITEMS_MAX { 0 } else { REQUEST_ITEMS_MAX };
    for id in ids {
        match describe(&request, &id, &mut left).await {
            TxnReply::Describe(state) => states.push(state),
            other => return other_transaction_kind(&other),
        }
    }
    request.reply(&DescribeTransactionsResponse {
        transaction_states: states.into(),
        ..Default::default()
    })
}

/// Describes one, or refuses it if it does not fit into one answer with those before it; `left`
/// says how many more partitions do.
async fn describe(request: &Request, id: &str, left: &mut usize) -> TxnReply {
    let asked = TxnRequest::Describe(id);
    if *left > 0 {
        let reply = transactions::ask(&request.shard, request.version, asked).await;
        let TxnReply::Describe(state) = &reply else { return reply };
        let partitions = state.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>();
        if partitions <= *left {
            *left -= partitions;
            return reply;
        }
        *left = 0;
    }
    asked.refused(ErrorCode::InvalidRequest)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use reactor::sim::{Outcome, World, stand_still};

    use super::*;

    #[test]
    fn others_run_while_many_ids_are_compared() {
        let outcome = World::new(1).run(|| async {
            let turns = Rc::new(Cell::new(0));
            let counted = turns.clone();
            let others = reactor::spawn(async move {
                loop {
                    counted.set(counted.get() + 1);
                    reactor::yield_now().await;
                }
            });
            let id = |number: usize| TransactionState {
                transactional_id: number.to_string().into(),
                ..Default::default()
            };
            let slow = |id: &str| {
                stand_still(Duration::from_millis(1));
                id.ends_with('7')
            };
            let found = matching((0..100).map(id).collect(), slow).await;
            drop(others);
            (found.len(), turns.get())
        });
        let Outcome::Finished((found, turns)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(found, 10);
        assert!(turns > 10, "{turns}");
    }
}
