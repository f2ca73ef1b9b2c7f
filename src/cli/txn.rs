//! `corelane txn`: list and describe transactions of any Kafka cluster, and end those that hang.

use std::fmt::Write as _;

use wire::ErrorCode;

use super::args::{TxnAbortArgs, TxnCommand, TxnDescribeArgs, TxnListArgs};
use super::shown::Shown;
use super::{cluster, print};
use crate::client::error::ClientError;
use crate::client::transactions::{self, Described, Listed};
use crate::error::{Error, Result};

pub async fn run(command: TxnCommand) -> Result<()> {
    match command {
        TxnCommand::List(args) => list(args).await,
        TxnCommand::Describe(args) => describe(args).await,
        TxnCommand::Abort(args) => abort(args).await,
    }
}

async fn list(args: TxnListArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let listed = cluster.retrying(async |cluster| transactions::list(cluster).await).await?;
    let wanted = |state: &str| {
        args.state.is_empty() || args.state.iter().any(|it| it.eq_ignore_ascii_case(state))
    };
    let lines = listed.iter().filter(|it| wanted(&it.state)).map(write_listed);
    print(lines.collect::<String>()).await
}

fn write_listed(listed: &Listed) -> String {
    let Listed { id, state, producer_id } = listed;
    let state = state.to_lowercase();
    format!("{}  {}  producer {producer_id}\n", Shown(id), Shown(&state))
}

async fn describe(args: TxnDescribeArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let mut out = String::new();
    for id in &args.ids {
        let found = cluster.retrying(async |cluster| transactions::describe(cluster, id).await);
        let described = found.await.map_err(|error| not_found(id, error))?;
        write_transaction(id, &described, &mut out);
    }
    print(out).await
}

fn write_transaction(id: &str, described: &Described, out: &mut String) {
    let Described { producer_id, producer_epoch, timeout_ms, coordinator, .. } = described;
    let state = described.state.to_lowercase();
    let (id, state) = (Shown(id), Shown(&state));
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{id}  {state}  producer {producer_id} epoch {producer_epoch}  timeout {timeout_ms} ms  \
         coordinator {coordinator}"
    );
    if let Some(since_ms) = described.since_ms.filter(|_| !described.partitions.is_empty()) {
        let _ = writeln!(out, "  since {since_ms} ms");
    }
    for (topic, index) in &described.partitions {
        let _ = writeln!(out, "  {}-{index}", Shown(topic));
    }
}

async fn abort(args: TxnAbortArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    match (&args.id, &args.partition, args.start_offset) {
        (Some(id), None, None) => {
            let known = cluster.retrying(async |cluster| transactions::describe(cluster, id).await);
            known.await.map_err(|error| not_found(id, error))?;
            let fenced = cluster.retrying(async |cluster| transactions::fence(cluster, id).await);
            fenced.await?;
            print(format!(
                "{}: its producer is fenced, and what it had open is aborted\n",
                Shown(id)
            ))
            .await
        }
        (None, Some(partition), Some(offset)) => {
            let (topic, index) = (partition.topic.as_str(), partition.index);
            let open = cluster
                .retrying(async |cluster| {
                    transactions::open_since(cluster, (topic, index), offset).await
                })
                .await?;
            let Some(open) = open else {
                let what = format!("no transaction is open in {topic}-{index} since {offset}");
                return Err(Error::refused(what, "kafka-transactions find-hanging finds them"));
            };
            let aborted = cluster
                .retrying(async |cluster| transactions::abort(cluster, (topic, index), open).await);
            aborted.await?;
            let producer = open.producer_id;
            print(format!("{topic}-{index}: the transaction of producer {producer} is aborted\n"))
                .await
        }
        _ => Err(Error::config(
            "name a transactional id, or a partition and the offset where its transaction begins",
            "see --help",
        )),
    }
}

fn not_found(id: &str, error: ClientError) -> Error {
    match error.code() {
        Some(ErrorCode::TransactionalIdNotFound) => Error::refused(
            format!("no transactional id {id}"),
            "`corelane txn list` shows what there is",
        ),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_within_its_line() {
        let (id, state) = ("a\nb\u{1b}[2J".into(), "Ongoing".into());
        let listed = write_listed(&Listed { id, state, producer_id: 7 });
        assert_eq!(listed, "a\\nb\\x1b[2J  ongoing  producer 7\n");
    }

    #[test]
    fn a_transaction_is_shown_with_its_partitions() {
        let described = Described {
            state: "Ongoing".into(),
            coordinator: 1001,
            producer_id: 7,
            producer_epoch: 3,
            timeout_ms: 60_000,
            since_ms: Some(1_700_000_000_000),
            partitions: vec![("orders".into(), 0), ("orders".into(), 2)],
        };
        let mut out = String::new();
        write_transaction("billing", &described, &mut out);
        assert_eq!(
            out,
            "billing  ongoing  producer 7 epoch 3  timeout 60000 ms  coordinator 1001\n  \
             since 1700000000000 ms\n  orders-0\n  orders-2\n"
        );
    }
}
