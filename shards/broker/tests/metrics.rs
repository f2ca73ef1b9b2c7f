//! The admin listener over loopback sockets: Prometheus text that a strict reader takes, health,
//! and what it does with clients that mean no good.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::{ShardSpec, TcpStream};
use support::{Client, Shards, batch, batch_within, start_shards, to_produce_within};
use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::messages::{
    EndTxnRequest, EndTxnResponse, FetchRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse,
};
use wire::{ApiKey, Records};

static NEXT_PORT: AtomicU16 = AtomicU16::new(21_560);
const SHARDS: u16 = 2;

/// Runs a test against a broker with an admin listener on the port behind its shards.
fn with_broker<F, Fut>(test: F)
where
    F: FnOnce(Rc<Shards>, SocketAddr) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_string_lossy().into_owned();
    let base_port = NEXT_PORT.fetch_add(SHARDS + 1, Ordering::SeqCst);
    let admin = SocketAddr::from(([127, 0, 0, 1], base_port + SHARDS));
    reactor::uring::run(&ShardSpec::default(), move || async move {
        let setting = format!("admin.port={}", admin.port());
        let mut broker = start_shards(SHARDS, base_port, &path, &[&setting]);
        broker.ready().await;
        let broker = Rc::new(broker);
        test(broker.clone(), admin).await;
    })
    .expect("io_uring works here");
}

/// Sends the bytes as they are and returns everything that comes back.
async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let stream = TcpStream::connect(address).await.expect("connect");
    stream.write_all(vec![Bytes::copy_from_slice(request)]).await.expect("send");
    let mut answer = BytesMut::new();
    loop {
        answer.reserve(64 * 1024);
        let (read, back) = stream.read(answer).await;
        answer = back;
        match read {
            Ok(more) if more > 0 => {}
            _ => return String::from_utf8(answer.to_vec()).expect("text"),
        }
    }
}

async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let answer = exchange(address, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length, Some(body.len().to_string().as_str()), "{head}");
    let status = head.lines().next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    (status.expect("a status line").to_owned(), body.to_owned())
}

type Series = BTreeMap<(String, Vec<(String, String)>), f64>;

/// Reads the text format strictly: HELP and TYPE once and first, no series twice, every line whole.
fn read_strictly(text: &str) -> Series {
    assert!(text.ends_with('\n'), "the last line is not ended");
    let mut series = Series::new();
    let mut families = BTreeSet::new();
    let mut current: Option<(String, &str)> = None;
    let mut help: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect("a help text");
            assert!(!text.is_empty() && families.insert(name.to_owned()), "{line}");
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(help.take().as_deref(), Some(name), "TYPE follows its HELP: {line}");
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            current = Some((name.to_owned(), kind));
        } else {
            let (name, labels, value) = read_sample(line);
            let (family, kind) = current.as_ref().expect("a family before its samples");
            assert_eq!(&name, family, "{line}");
            assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
            assert!(*kind != "counter" || value >= 0.0, "{line}");
            assert!(series.insert((name, labels), value).is_none(), "twice: {line}");
        }
    }
    series
}

fn read_sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let is_name = |name: &str| {
        let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
        rest && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
    };
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label's value");
            assert!(is_name(label) && !label.starts_with("__"), "{line}");
            let (value, after) = read_quoted(after);
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("one space before the value");
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().unwrap_or_else(|_| panic!("no number: {line}")),
    };
    (name.to_owned(), labels, value)
}

fn read_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(escaped @ ('\\' | '"')) => value.push(escaped),
                other => panic!("no escape: {other:?}"),
            },
            c => value.push(c),
        }
    }
    panic!("a quote without an end: {text}")
}

fn value(series: &Series, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let found = series.get(&(name.to_owned(), labels));
    *found.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn groups_their_offsets_and_their_loading_are_counted() {
    with_broker(|broker, admin| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("counted", 1, &[]).await.expect("create"), 0);
        for group in ["g1", "g2", "g3"] {
            let (error, node) = client.coordinator(group).await.expect("find");
            assert_eq!(error, 0);
            let address = broker.addresses[node as usize % 1000];
            let mut client = Client::connect(address).await.expect("connect");
            client.groups_loaded().await.expect("list");
            for offset in [1, 2] {
                let done = client.commit(group, ("", -1), ("counted", 0), offset).await;
                assert_eq!(done.expect("commit"), 0);
            }
        }
        for address in &broker.addresses {
            let mut client = Client::connect(*address).await.expect("connect");
            client.groups_loaded().await.expect("list");
        }
        let (_, text) = get(admin, "/metrics").await;
        let series = read_strictly(&text);
        let empty = [("type", "Classic"), ("state", "Empty")];
        assert_eq!(value(&series, "corelane_groups", &empty), 3.0);
        assert_eq!(value(&series, "corelane_group_offsets", &[]), 3.0);
        assert_eq!(value(&series, "corelane_group_offset_commits_total", &[]), 6.0);
        let active = [("state", "active")];
        assert_eq!(value(&series, "corelane_group_coordinators", &active), 50.0);
        assert_eq!(value(&series, "corelane_group_loads_total", &[]), 50.0);
        assert_eq!(value(&series, "corelane_group_loaded_records_total", &[]), 0.0);
    });
}

crate::response!(Found, FindCoordinatorResponse, borrows);
crate::response!(Initialised, InitProducerIdResponse);
crate::response!(Ended, EndTxnResponse);
crate::response!(Produced, ProduceResponse, borrows);

/// Not there yet, still being loaded, or a transaction is just ending.
const TRY_AGAIN: [i16; 5] = [14, 15, 16, 19, 51];
const NOT_LEADER: i16 = 6;
const PAUSE: Duration = Duration::from_millis(10);

/// A transactional producer, and a connection to each shard.
struct Producer {
    clients: Vec<Client>,
    name: &'static str,
    coordinator: usize,
    id: i64,
    epoch: i16,
}

impl Producer {
    async fn begin(broker: &Shards, name: &'static str, timeout_ms: i32) -> Self {
        let mut clients = Vec::new();
        for address in &broker.addresses {
            clients.push(Client::connect(*address).await.expect("connect"));
        }
        loop {
            let request = FindCoordinatorRequest {
                key_type: 1,
                coordinator_keys: vec![name.into()].into(),
                ..Default::default()
            };
            let found = clients[0].call::<_, Found>(ApiKey::FindCoordinator, 4, &request).await;
            let node = found.expect("find").coordinators.first().expect("one").node_id;
            if let Ok(coordinator) = usize::try_from(node % 1000) {
                let request = InitProducerIdRequest {
                    transactional_id: Some(name.into()),
                    transaction_timeout_ms: timeout_ms,
                    ..Default::default()
                };
                let client = &mut clients[coordinator];
                let call = client.call::<_, Initialised>(ApiKey::InitProducerId, 4, &request);
                let answer = call.await.expect("init");
                if answer.error_code == 0 {
                    let (id, epoch) = (answer.producer_id, answer.producer_epoch);
                    return Producer { clients, name, coordinator, id, epoch };
                }
                assert!(TRY_AGAIN.contains(&answer.error_code), "{answer:?}");
            }
            reactor::sleep(PAUSE).await;
        }
    }

    /// One record of its transaction, the first in that partition.
    async fn write(&mut self, partition: i32) {
        let bytes = batch_within((self.id, self.epoch), 0, b"v");
        for shard in (0..self.clients.len()).cycle() {
            let request = to_produce_within(self.name, ("counted", partition), &bytes);
            let client = &mut self.clients[shard];
            let answer = client.call::<_, Produced>(ApiKey::Produce, 12, &request).await;
            let answer = answer.expect("produce");
            let topic = answer.responses.first().expect("a topic");
            match topic.partition_responses.first().expect("a partition").error_code {
                0 => return,
                NOT_LEADER => {}
                code if TRY_AGAIN.contains(&code) => reactor::sleep(PAUSE).await,
                code => panic!("produce answers {code}"),
            }
        }
    }

    async fn end(&mut self, committed: bool) {
        let request = EndTxnRequest {
            transactional_id: self.name.into(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            committed,
        };
        let client = &mut self.clients[self.coordinator];
        let answer = client.call::<_, Ended>(ApiKey::EndTxn, 5, &request).await.expect("end");
        assert_eq!(answer.error_code, 0);
        (self.id, self.epoch) = (answer.producer_id, answer.producer_epoch);
    }
}

/// Scrapes until the figure is there: markers and timeouts take a moment.
async fn scrape_until(admin: SocketAddr, name: &str, labels: &[(&str, &str)], due: f64) -> Series {
    loop {
        let series = read_strictly(&get(admin, "/metrics").await.1);
        if value(&series, name, labels) == due {
            return series;
        }
        reactor::sleep(PAUSE).await;
    }
}

#[test]
fn transactions_their_ends_and_their_producers_are_counted() {
    with_broker(|broker, admin| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("counted", 2, &[]).await.expect("create"), 0);
        let mut producer = Producer::begin(&broker, "tx", 60_000).await;
        for (commits, state) in [(true, "CompleteCommit"), (false, "CompleteAbort")] {
            producer.write(0).await;
            producer.write(1).await;
            producer.end(commits).await;
            let state = [("state", state)];
            scrape_until(admin, "corelane_transactional_ids", &state, 1.0).await;
        }
        let mut late = Producer::begin(&broker, "late", 50).await;
        late.write(0).await;
        scrape_until(admin, "corelane_transactions_timed_out_total", &[], 1.0).await;
        let aborted = [("state", "CompleteAbort")];
        scrape_until(admin, "corelane_transactional_ids", &aborted, 2.0).await;
        let mut open = Producer::begin(&broker, "open", 60_000).await;
        open.write(1).await;
        let began = reactor::wall_clock_ms();
        while reactor::wall_clock_ms() == began {
            reactor::sleep(PAUSE).await;
        }

        let series = read_strictly(&get(admin, "/metrics").await.1);
        let total = |name: &str| value(&series, name, &[]);
        assert_eq!(total("corelane_transactions_committed_total"), 1.0);
        assert_eq!(total("corelane_transactions_aborted_total"), 2.0);
        assert_eq!(total("corelane_transaction_markers_written_total"), 5.0);
        assert_eq!(total("corelane_transaction_markers_retried_total"), 0.0);
        assert_eq!(total("corelane_transaction_verifying_partitions"), 0.0);
        // One wrote to two partitions.
        assert_eq!(total("corelane_producer_ids"), 4.0);
        assert!(total("corelane_producer_state_bytes") > 0.0);
        for (state, ids) in [("Ongoing", 1.0), ("CompleteAbort", 2.0), ("PrepareCommit", 0.0)] {
            let found = value(&series, "corelane_transactional_ids", &[("state", state)]);
            assert_eq!(found, ids, "{state}");
        }
        let active = [("state", "active")];
        assert_eq!(value(&series, "corelane_transaction_coordinators", &active), 50.0);
        assert_eq!(total("corelane_transaction_loads_total"), 50.0);
        let oldest =
            |shard| value(&series, "corelane_transaction_oldest_open_seconds", &[("shard", shard)]);
        let ages = [oldest("0"), oldest("1")];
        assert!(ages.iter().all(|age| (0.0..60.0).contains(age)), "{ages:?}");
        assert_eq!(ages.iter().filter(|age| **age > 0.0).count(), 1, "{ages:?}");
    });
}

#[test]
fn what_clients_did_is_counted_over_all_shards() {
    with_broker(|broker, admin| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("counted", 4, &[]).await.expect("create"), 0);
        let bytes = batch(&[b"one", b"two"], reactor::wall_clock_ms());
        // Both shards lead two of the partitions; each takes what is its own.
        let mut appended = 0;
        for (shard, address) in broker.addresses.iter().enumerate() {
            let mut client = Client::connect(*address).await.expect("connect");
            for partition in 0..4 {
                let (error, _) = client.produce("counted", partition, &bytes).await.expect("sent");
                if error == 0 {
                    appended += 1;
                    let (_, _, read) =
                        client.fetch("counted", partition, 0, 0).await.expect("read");
                    assert_eq!(read.len(), bytes.len(), "shard {shard}");
                }
            }
        }
        assert_eq!(appended, 4);
        let (status, text) = get(admin, "/metrics").await;
        assert_eq!(status, "200 OK");
        let series = read_strictly(&text);
        let topic = [("topic", "counted")];
        let total = 4.0 * bytes.len() as f64;
        assert_eq!(value(&series, "corelane_topic_produced_bytes_total", &topic), total);
        assert_eq!(value(&series, "corelane_topic_produced_records_total", &topic), 8.0);
        assert_eq!(value(&series, "corelane_topic_fetched_bytes_total", &topic), total);
        assert_eq!(value(&series, "corelane_topic_log_bytes", &topic), total);
        assert_eq!(value(&series, "corelane_topic_partitions", &topic), 4.0);
        assert_eq!(value(&series, "corelane_topic_segments", &topic), 4.0);
        let produce = [("api", "Produce")];
        assert_eq!(value(&series, "corelane_requests_total", &produce), 8.0);
        let wrong = [("api", "Produce"), ("error", "NOT_LEADER_OR_FOLLOWER")];
        assert_eq!(value(&series, "corelane_partition_errors_total", &wrong), 4.0);
        assert_eq!(value(&series, "corelane_partitions_online", &[]), 4.0);
        for shard in ["0", "1"] {
            assert_eq!(value(&series, "corelane_shard_up", &[("shard", shard)]), 1.0);
            let tails = [("shard", shard), ("pool", "tails")];
            assert!(value(&series, "corelane_memory_limit_bytes", &tails) > 0.0);
            assert!(value(&series, "corelane_connections_total", &[("shard", shard)]) >= 1.0);
        }
        assert!(value(&series, "corelane_received_bytes_total", &[]) > total);
        assert!(value(&series, "corelane_sent_bytes_total", &[]) > total);
    });
}

#[test]
fn a_thousand_partitions_and_topics_with_any_name_are_one_scrape() {
    with_broker(|broker, admin| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("wide", 1_000, &[]).await.expect("create"), 0);
        while get(admin, "/ready").await.0 != "200 OK" {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        let (_, text) = get(admin, "/metrics").await;
        let series = read_strictly(&text);
        assert_eq!(value(&series, "corelane_topic_partitions", &[("topic", "wide")]), 1_000.0);
        assert_eq!(value(&series, "corelane_partitions_opening", &[]), 0.0);
        let of_wide = series.keys().filter(|(_, labels)| labels.iter().any(|(_, v)| v == "wide"));
        assert!(of_wide.count() < 20, "series grow with topics, not with partitions");
    });
}

/// Sends a fetch that waits for long, and behind it as many times this produce; returns when what
/// waits for its answer is paid for with at least this much, and how much that is.
async fn wait_behind_a_fetch(
    address: SocketAddr,
    admin: SocketAddr,
    (count, produce): (usize, &ProduceRequest<'_>),
    at_least: f64,
) -> f64 {
    let mut client = Client::connect(address).await.expect("connect");
    assert_eq!(client.create_topic("empty", 4, &[]).await.expect("create"), 0);
    let mut led_here = 0;
    while client.fetch("empty", led_here, 0, 0).await.expect("answered").0 != 0 {
        led_here = (led_here + 1) % 4;
    }
    let at_end = FetchPartition {
        partition: led_here,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic: "empty".into(),
        partitions: vec![at_end].into(),
        ..FetchTopic::default()
    };
    let fetch = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![topic].into(),
        ..FetchRequest::default()
    };
    client.send(ApiKey::Fetch, 12, &fetch).await.expect("sent");
    for _ in 0..count {
        client.send(ApiKey::Produce, 9, produce).await.expect("sent");
    }
    let paid_for = async {
        loop {
            let series = read_strictly(&get(admin, "/metrics").await.1);
            let requests = [("shard", "0"), ("pool", "requests")];
            let used = value(&series, "corelane_memory_used_bytes", &requests);
            if used >= at_least {
                return used;
            }
            reactor::sleep(Duration::from_millis(20)).await;
        }
    };
    reactor::timeout(Duration::from_secs(60), paid_for).await.expect("the memory is paid for")
}

#[test]
fn names_that_wait_for_an_answer_are_paid_for() {
    const NAMES: usize = 20;
    const NAME_BYTES: usize = 30_000;
    const REQUESTS: usize = 8;
    with_broker(|broker, admin| async move {
        let name = "n".repeat(NAME_BYTES);
        let empty = || TopicProduceData { name: name.as_str().into(), ..Default::default() };
        let topic_data: Vec<_> = (0..NAMES).map(|_| empty()).collect();
        let request =
            ProduceRequest { acks: 1, topic_data: topic_data.into(), ..Default::default() };
        let all = (REQUESTS * NAMES * NAME_BYTES) as f64;
        wait_behind_a_fetch(broker.addresses[0], admin, (REQUESTS, &request), all).await;
    });
}

/// Ten thousand refused records of each of four partitions, two of which this shard leads.
#[test]
fn refused_records_that_wait_for_an_answer_are_paid_for_and_named_once() {
    const RECORDS: usize = 10_000;
    const REQUESTS: usize = 3;
    with_broker(|broker, admin| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("early", 4, &[]).await.expect("create"), 0);
        let tomorrow = reactor::wall_clock_ms() + 86_400_000;
        let bytes = batch(&[b"".as_slice(); RECORDS], tomorrow);
        assert!(4 * bytes.len() < 700_000);
        let partition_data: Vec<_> = (0..4)
            .map(|index| PartitionProduceData { index, records: Some(Records::Borrowed(&bytes)) })
            .collect();
        let topic = TopicProduceData {
            name: "early".into(),
            partition_data: partition_data.into(),
            ..Default::default()
        };
        let request =
            ProduceRequest { acks: 1, topic_data: vec![topic].into(), ..Default::default() };
        let behind = (REQUESTS, &request);
        let each = wait_behind_a_fetch(broker.addresses[0], admin, behind, 3.0e6).await / 3.0;
        assert!(each < 2.0e6, "{each} bytes");
    });
}

#[test]
fn health_and_refusals_have_their_codes() {
    with_broker(|_broker, admin| async move {
        assert_eq!(get(admin, "/live").await, ("200 OK".to_owned(), "live\n".to_owned()));
        assert_eq!(get(admin, "/ready?verbose").await.1, "ready\n");
        assert_eq!(get(admin, "/").await.0, "404 Not Found");
        let posted = exchange(admin, b"POST /metrics HTTP/1.1\r\n\r\n").await;
        assert!(posted.starts_with("HTTP/1.1 405 Method Not Allowed\r\nAllow: GET"), "{posted}");
        let head = exchange(admin, b"HEAD /live HTTP/1.1\r\n\r\n").await;
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 5\r\n"), "{head}");
        let nonsense = exchange(admin, b"\x16\x03\x01\x02\0\x01").await;
        assert!(nonsense.starts_with("HTTP/1.1 400 "), "{nonsense}");
        let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 9_000]].concat();
        let refused = exchange(admin, &endless).await;
        assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
        // Clients that say nothing hold places, not the listener.
        let mut silent = Vec::new();
        for _ in 0..15 {
            silent.push(TcpStream::connect(admin).await.expect("connect"));
        }
        assert_eq!(get(admin, "/live").await.0, "200 OK");
    });
}
