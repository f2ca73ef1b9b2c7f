//! Reading: a read_committed consumer that runs beside the clients, and a look at all there is in
//! the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use wire::messages::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::fetch_response::PartitionData;
use wire::messages::{
    DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    FetchRequest, FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse,
};
use wire::records::control::EndTransaction;
use wire::{ApiKey, Records};

use super::IDS;
use super::calls::{Answer, Call, Caller, GROUP, Links, NOBODY, SHARDS, TOPIC};
use super::clients::{Everything, PARTITIONS};
use super::history::{End, Entry, Event, Kind, Label, PartitionEnd};
use crate::support::{self, BASE_PORT, Client, Gone};

crate::response!(Fetched, FetchResponse, borrows);
crate::response!(Found, FindCoordinatorResponse, borrows);
crate::response!(Producers, DescribeProducersResponse, borrows);
crate::response!(Transactions, DescribeTransactionsResponse, borrows);

const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;
/// The broker has been left alone for long by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far the consumer has come in each partition; it outlives the broker.
#[derive(Default)]
pub struct Reader {
    pub positions: [i64; PARTITIONS],
    pub stops: bool,
}

type Clients = Vec<Client>;

async fn connect() -> Result<Clients, Gone> {
    let mut clients = Vec::new();
    for address in support::addresses(SHARDS, BASE_PORT) {
        clients.push(Client::connect(address).await?);
    }
    Ok(clients)
}

/// The shard with the coordinator of a key, once there is one.
pub async fn coordinator(
    client: &mut Client,
    key_type: i8,
    key: &'static str,
) -> Result<Option<usize>, Gone> {
    let request = FindCoordinatorRequest {
        key_type,
        coordinator_keys: vec![key.into()].into(),
        ..Default::default()
    };
    let answer = client.call::<_, Found>(ApiKey::FindCoordinator, 4, &request).await?;
    let found = answer.coordinators.first().unwrap();
    Ok((found.error_code == 0).then_some((found.node_id % 1000) as usize))
}

/// One fetch from whoever leads the partition. Small ones, so that every part of the log is asked
/// about.
async fn fetch(
    clients: &mut Clients,
    partition: usize,
    offset: i64,
    isolation_level: i8,
) -> Result<Option<PartitionData<'static>>, Gone> {
    for client in clients {
        let wanted = FetchPartition {
            partition: partition as i32,
            fetch_offset: offset,
            partition_max_bytes: 400,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: TOPIC.into(),
            partitions: vec![wanted].into(),
            ..Default::default()
        };
        let request = FetchRequest {
            max_bytes: 400,
            isolation_level,
            session_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let answer = client.call::<_, Fetched>(ApiKey::Fetch, 12, &request).await?;
        let fetched = answer.responses.first().unwrap().partitions.first().unwrap();
        match fetched.error_code {
            0 => return Ok(Some(fetched)),
            // Not here; opening; its disk has just failed.
            3 | 5 | 6 | 56 | 74 | 75 => {}
            code => panic!("a fetch from {partition}:{offset} answers {code}"),
        }
    }
    Ok(None)
}

/// What is in some fetched bytes from an offset on.
fn entries(fetched: &PartitionData<'static>, from: i64) -> Vec<Entry> {
    let Some(Records::Owned(bytes)) = &fetched.records else { return Vec::new() };
    let mut all = Vec::new();
    for batch in wire::records::batches(bytes) {
        let batch = batch.unwrap();
        batch.verify_crc().unwrap();
        let header = *batch.header();
        let producer = (header.producer_id, header.producer_epoch);
        if let Some(end) = EndTransaction::read(&batch).unwrap() {
            let kind = Kind::Marker { commit: end.committed };
            all.push(Entry { offset: header.base_offset, producer, kind });
            continue;
        }
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            let label = Label::read(record.value.unwrap()).unwrap();
            all.push(Entry { offset: record.offset, producer, kind: Kind::Data(label) });
        }
    }
    all.retain(|entry| entry.offset >= from);
    all
}

/// The algorithm of Kafka's consumers: what a fetch shows of its entries.
fn visible(fetched: &PartitionData<'static>, entries: &[Entry]) -> Vec<(i64, Label)> {
    let aborted = fetched.aborted_transactions.as_ref();
    let mut aborted: Vec<(i64, i64)> = aborted
        .map(|all| all.iter().map(|it| (it.first_offset, it.producer_id)).collect())
        .unwrap_or_default();
    aborted.sort_unstable_by(|a, b| b.cmp(a));
    let (mut shown, mut skipped) = (Vec::new(), BTreeSet::new());
    for entry in entries {
        while aborted.last().is_some_and(|(first, _)| *first <= entry.offset) {
            skipped.extend(aborted.pop().map(|(_, producer)| producer));
        }
        match entry.kind {
            Kind::Marker { commit: false } => {
                skipped.remove(&entry.producer.0);
            }
            Kind::Marker { commit: true } => {}
            Kind::Data(label) if !skipped.contains(&entry.producer.0) => {
                shown.push((entry.offset, label));
            }
            Kind::Data(_) => {}
        }
    }
    shown
}

/// Consumes with read_committed while the broker runs.
pub async fn read_on(everything: Everything, reader: Rc<RefCell<Reader>>) {
    let mut clients = None;
    loop {
        let stops = reader.borrow().stops;
        let read = read_round(&mut clients, &everything, &reader).await;
        if read.is_err() {
            clients = None;
        }
        if stops && matches!(read, Ok(0)) {
            return;
        }
        if !matches!(read, Ok(1..)) {
            reactor::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns how many entries there were.
async fn read_round(
    clients: &mut Option<Clients>,
    everything: &Everything,
    reader: &Rc<RefCell<Reader>>,
) -> Result<usize, Gone> {
    if clients.is_none() {
        *clients = Some(connect().await?);
    }
    let Some(clients) = clients else { return Ok(0) };
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let from = reader.borrow().positions[partition];
        let Some(fetched) = fetch(clients, partition, from, READ_COMMITTED).await? else {
            continue;
        };
        let entries = entries(&fetched, from);
        count += entries.len();
        let saw = visible(&fetched, &entries);
        let saw = saw.into_iter().map(|(offset, label)| Event::Saw { partition, offset, label });
        everything.borrow_mut().history.extend(saw);
        if let Some(last) = entries.last() {
            reader.borrow_mut().positions[partition] = last.offset + 1;
        }
    }
    Ok(count)
}

/// All there is, when nobody writes any more. `read_up_to`: how far the consumer came.
pub async fn look(read_up_to: [i64; PARTITIONS]) -> End {
    let mut clients = connect().await.unwrap();
    let mut partitions = Vec::new();
    for (partition, read_up_to) in read_up_to.into_iter().enumerate() {
        let mut there = read_all(&mut clients, partition).await;
        there.open = open_producers(&mut clients, TOPIC, partition as i32).await;
        there.read_up_to = read_up_to;
        partitions.push(there);
    }
    let mut groups_open = Vec::new();
    for partition in 0..2 {
        groups_open.extend(open_producers(&mut clients, "__consumer_offsets", partition).await);
    }
    let states = states(&mut clients).await;
    End { partitions, position: position().await, groups_open, states }
}

async fn read_all(clients: &mut Clients, partition: usize) -> PartitionEnd {
    let mut there = PartitionEnd::default();
    for isolation in [READ_UNCOMMITTED, READ_COMMITTED] {
        let mut from = 0;
        loop {
            let Some(fetched) = patiently_fetch(clients, partition, from, isolation).await else {
                panic!("partition {partition} cannot be read");
            };
            there.high_watermark = fetched.high_watermark;
            there.last_stable_offset = fetched.last_stable_offset;
            let entries = entries(&fetched, from);
            let Some(last) = entries.last() else { break };
            from = last.offset + 1;
            match isolation {
                READ_UNCOMMITTED => there.log.extend(entries),
                _ => there.committed.extend(visible(&fetched, &entries)),
            }
        }
    }
    there
}

async fn patiently_fetch(
    clients: &mut Clients,
    partition: usize,
    from: i64,
    isolation: i8,
) -> Option<PartitionData<'static>> {
    let begin = reactor::now();
    while reactor::now() - begin < PATIENCE {
        if let Some(fetched) = fetch(clients, partition, from, isolation).await.unwrap() {
            return Some(fetched);
        }
        reactor::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Producers with an open transaction, as the leader of the partition tells.
async fn open_producers(clients: &mut Clients, topic: &'static str, partition: i32) -> Vec<i64> {
    for client in clients {
        let asked = TopicRequest { name: topic.into(), partition_indexes: vec![partition].into() };
        let request = DescribeProducersRequest { topics: vec![asked].into() };
        let answer = client.call::<_, Producers>(ApiKey::DescribeProducers, 0, &request).await;
        let answer = answer.unwrap();
        let described = answer.topics.first().unwrap().partitions.first().unwrap();
        if described.error_code == 0 {
            let open = described.active_producers.iter();
            let open = open.filter(|producer| producer.current_txn_start_offset >= 0);
            return open.map(|producer| producer.producer_id).collect();
        }
    }
    panic!("nobody leads {topic}-{partition}");
}

async fn states(clients: &mut Clients) -> Vec<(String, String)> {
    let mut states = Vec::new();
    for id in IDS {
        let shard = coordinator(&mut clients[0], 1, id).await.unwrap().unwrap();
        let request = DescribeTransactionsRequest { transactional_ids: vec![id.into()].into() };
        let call =
            clients[shard].call::<_, Transactions>(ApiKey::DescribeTransactions, 0, &request);
        let answer = call.await.unwrap();
        let state = answer.transaction_states.first().unwrap();
        match state.error_code {
            0 => states.push((id.to_owned(), state.transaction_state.to_string())),
            // Nobody has ever had it.
            105 => {}
            code => panic!("{id} is described by {code}"),
        }
    }
    states
}

/// The group's position; with a transaction open it would stay unstable.
async fn position() -> i64 {
    let (mut links, begin) = (Links::default(), reactor::now());
    let caller = Caller { id: GROUP, producer: NOBODY, new: true };
    loop {
        for shard in 0..usize::from(SHARDS) {
            let answer = links.ask(shard, caller, &Call::Position, true).await.unwrap();
            if let Answer { code: 0, offset, .. } = answer {
                return offset;
            }
        }
        assert!(reactor::now() - begin < PATIENCE, "the group has no stable position");
        reactor::sleep(Duration::from_millis(20)).await;
    }
}
