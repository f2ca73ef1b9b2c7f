//! `docs/protocol.md` says what the code's own table says. `UPDATE_DOCS=1` writes the page anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Protocol

Corelane speaks Kafka's binary protocol. This table is generated from the table that the broker
itself answers ApiVersions from (`shards/broker/src/api/mod.rs`); a test keeps them equal.
*Kafka 4.4* is the range of Apache Kafka 4.4.0 for the same API.

| key | API | versions | Kafka 4.4 | note |
|----:|-----|----------|-----------|------|
";

const TAIL: &str = "
Any other API, and any other version, closes the connection, as Apache Kafka does. The one exception
is ApiVersions: a version from the future is answered in the layout of version 0 with
`UNSUPPORTED_VERSION` and the range that is served, so that the client can try again.

A request that names more than is answered (200,000 items; 10,000 where each is answered at length;
1,000 protocols in a JoinGroup) is refused with `INVALID_REQUEST` where its answer has a place for that.
Elsewhere the connection closes. Apache Kafka knows no such bounds.

Every shard is a node with the id `broker id * 1000 + shard`, listening on the base port plus its
number. Metadata, DescribeCluster and FindCoordinator speak of these nodes. A request for a partition
that another shard leads is answered with `NOT_LEADER_OR_FOLLOWER` and, from Produce 10 and Fetch 12
on, with the leader. A request for a group that another shard coordinates is answered with
`NOT_COORDINATOR`.
";

fn note(name: &str) -> &'static str {
    match name {
        "Produce" => {
            "0 is advertised as the lowest version for librdkafka before 2.11 (KAFKA-18659); \
             versions below 3 close the connection."
        }
        "Fetch" => "Incremental sessions; no follower fetching yet.",
        "FindCoordinator" => {
            "Names the shard node of a key; the first group makes `__consumer_offsets`, the first \
             transactional id `__transaction_state`."
        }
        "ListGroups" => "The groups of one shard node; ask every node for all of them.",
        "DescribeTransactions" | "ListTransactions" => {
            "What one shard node coordinates; ask every node for all of it."
        }
        "InitProducerId" => "Version 6 (two-phase commit) is not stable in Kafka either.",
        "ListPartitionReassignments" => {
            "Those between cores; a move takes milliseconds, so mostly an empty list."
        }
        "ListOffsets" => "Nothing is tiered: -5 and -6 find no offset.",
        _ => "",
    }
}

#[test]
fn the_protocol_page_is_current() {
    let mut page = HEAD.to_owned();
    for api in broker::api_table() {
        let schema = api.key.schema_versions();
        writeln!(
            page,
            "| {} | {} | {}-{} | {}-{} | {} |",
            api.key.code(),
            api.key.name(),
            api.min,
            api.max,
            schema.start(),
            schema.end(),
            note(api.key.name())
        )
        .expect("a string can be written to");
    }
    page.push_str(TAIL);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/ is writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/protocol.md is out of date: run the tests with UPDATE_DOCS=1");
}
