//! The scenarios of ../README.md, in its order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::Offset;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::client::{Client, Config, Record, Result, eventually, random_bytes};
use crate::{groups, txns};

const PARTITIONS: i32 = 4;
/// How many partitions of a large topic are looked at.
pub const SAMPLE: i32 = 50;

type Scenario = (&'static str, fn(&Client) -> Result<()>);

pub const SCENARIOS: [Scenario; 37] = [
    ("create-topic", create_topic),
    ("produce-sync", produce_sync),
    ("produce-async", produce_async),
    ("codec-none", |client| codec(client, "none")),
    ("codec-gzip", |client| codec(client, "gzip")),
    ("codec-snappy", |client| codec(client, "snappy")),
    ("codec-lz4", |client| codec(client, "lz4")),
    ("codec-zstd", |client| codec(client, "zstd")),
    ("acks-0", |client| acks(client, "0")),
    ("acks-1", |client| acks(client, "1")),
    ("acks-all", |client| acks(client, "all")),
    ("idempotent", idempotent),
    ("large-record", large_record),
    ("oversize-record", oversize_record),
    ("empty-and-null", empty_and_null),
    ("headers", headers),
    ("many-partitions", many_partitions),
    ("consume-earliest", consume_earliest),
    ("consume-latest", consume_latest),
    ("consume-timestamp", consume_timestamp),
    ("consume-offset", consume_offset),
    ("long-poll", long_poll),
    ("delete-recreate", delete_recreate),
    ("unknown-topic", unknown_topic),
    ("admin", admin),
    ("group-classic", groups::classic),
    ("group-cooperative", groups::cooperative),
    ("group-consumer", groups::next_gen),
    ("group-rolling", groups::rolling_classic),
    ("group-rolling-cooperative", groups::rolling_cooperative),
    ("group-rolling-consumer", groups::rolling_next_gen),
    ("group-admin", groups::admin),
    ("txn-commit-abort", txns::commit_abort),
    ("txn-fencing", txns::fencing),
    ("txn-consume-transform", txns::consume_transform),
    ("txn-timeout", txns::timeout),
    ("txn-broker-kill", txns::broker_kill),
];

/// Fails the scenario with a reason unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+).into());
        }
    };
}

fn create_topic(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[("retention.ms", "3600000")])?;
    let config = client.config("retention.ms")?;
    ensure!(config == Config::new("3600000", false), "retention.ms is {config:?}");
    expect_code(client.try_create(PARTITIONS, &[]), Code::TopicAlreadyExists)
}

fn produce_sync(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(100, 1);
    let producer = client.producer(&[("linger.ms", "0")])?;
    records.chunks_mut(1).try_for_each(|one| producer.send(one))?;
    verify(client, &records)
}

fn produce_async(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(10_000, PARTITIONS);
    records.iter_mut().for_each(|record| append(record, &".".repeat(80)));
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

fn codec(client: &Client, name: &str) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(1_000, 1);
    records.iter_mut().for_each(|record| append(record, &"corelane ".repeat(21)));
    let size: usize = records.iter().flat_map(|r| &r.value).map(Vec::len).sum();
    let producer = client.producer(&[("compression.codec", name)])?;
    producer.send(&mut records)?;
    let sent = producer.bytes_sent()? as usize;
    match name {
        "none" => ensure!(sent > size, "{size} bytes went out as {sent}"),
        _ => ensure!(sent < size / 2, "{size} bytes went out as {sent}: not compressed"),
    }
    verify(client, &records)
}

fn acks(client: &Client, level: &str) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(100, 1);
    let producer = client.producer(&[("acks", level)])?;
    producer.send(&mut records)?;
    if level == "0" {
        // No acknowledgement tells the offsets, so they are what they must be.
        records.iter_mut().zip(0..).for_each(|(record, offset)| record.offset = offset);
    }
    verify(client, &records)
}

fn idempotent(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(1_000, 1);
    let producer = client.producer(&[
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", "5"),
        ("batch.num.messages", "20"),
        ("linger.ms", "0"),
    ])?;
    producer.send(&mut records)?;
    verify(client, &records)
}

fn large_record(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(3, 1);
    records.iter_mut().for_each(|record| record.value = Some(random_bytes(900 << 10)));
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

fn oversize_record(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[("max.message.bytes", "10000")])?;
    let mut records = numbered(2, 1);
    records[0].value = Some(random_bytes(20_000));
    let (large, small) = records.split_at_mut(1);
    let producer = client.producer(&[])?;
    let outcome = producer.outcomes(large)?;
    ensure!(outcome == [Some(Code::MessageSizeTooLarge)], "20,000 bytes gave {outcome:?}");
    producer.send(small)?;
    verify(client, small)
}

fn empty_and_null(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let pairs = [
        (None, Some("v")),
        (Some(""), Some("v")),
        (Some("k"), None),
        (Some("k"), Some("")),
        (None, None),
        (Some(""), Some("")),
    ];
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let mut records = pairs.map(|(key, value)| Record {
        key: bytes(key),
        value: bytes(value),
        ..Record::default()
    });
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

fn headers(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(3, 1);
    let header = |key: &str, value: Option<&[u8]>| (key.to_owned(), value.map(<[u8]>::to_vec));
    records[0].headers = Vec::new();
    records[1].headers = vec![
        header("a", Some(b"1")),
        header("b", Some(b"")),
        header("a", Some(b"2")),
        header("bin", Some(&[0x00, 0xff, 0x80, 0x7f])),
        header("n", None),
    ];
    records[2].headers = vec![header("clé", Some(b"valeur"))];
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

fn many_partitions(client: &Client) -> Result<()> {
    const COUNT: i32 = 1_000;
    client.create(COUNT, &[])?;
    let mut records = numbered(SAMPLE as usize, SAMPLE);
    records.iter_mut().for_each(|record| record.partition *= COUNT / SAMPLE);
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)?;
    client.delete()
}

fn consume_earliest(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(100, 1);
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

fn consume_latest(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(60, 1);
    let producer = client.producer(&[])?;
    producer.send(&mut records[..50])?;
    let consumer = client.consumer(&[(0, Offset::End)])?;
    let position = consumer.settled(0)?;
    ensure!(position == 50, "the consumer starts at offset {position}, expected 50");
    producer.send(&mut records[50..])?;
    same(&consumer.take(10)?, &records[50..], 50)
}

fn consume_timestamp(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let base_ms = now_ms - 3_600_000;
    let mut records = numbered(100, 1);
    for (record, i) in records.iter_mut().zip(0..) {
        record.timestamp_ms = Some(base_ms + i * 1_000);
    }
    client.producer(&[])?.send(&mut records)?;
    for (after_ms, want) in [
        (49_500, Offset::Offset(50)),
        (50_000, Offset::Offset(50)),
        (-1, Offset::Offset(0)),
        (99_001, Offset::End), // none is that young
    ] {
        let found = client.offset_after(0, base_ms + after_ms)?;
        ensure!(found == want, "{after_ms} ms after the first is {found:?}, expected {want:?}");
    }
    let start = client.offset_after(0, base_ms + 49_500)?;
    same(&client.consumer(&[(0, start)])?.take(50)?, &records[50..], 50)
}

fn consume_offset(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let mut records = numbered(100, 1);
    client.producer(&[])?.send(&mut records)?;
    let consumer = client.consumer(&[(0, Offset::Offset(37))])?;
    same(&consumer.take(63)?, &records[37..], 37)?;
    consumer.seek(0, 5)?;
    same(&consumer.take(95)?, &records[5..], 5)?;
    // librdkafka asks its reset policy, which is "error", and gives that as the error.
    let beyond = client.consumer(&[(0, Offset::Offset(1_000))])?;
    expect_code(beyond.take(1), Code::AutoOffsetReset)
}

/// An idle consumer that waits 500 ms a fetch needs about 6 in 3 s; with a broker that does not
/// wait it would send thousands.
fn long_poll(client: &Client) -> Result<()> {
    const IDLE: Duration = Duration::from_secs(3);
    const FETCH_LIMIT: i64 = 60;
    client.create(1, &[])?;
    let consumer = client.consumer(&[(0, Offset::Beginning)])?;
    consumer.settled(0)?;
    let end = Instant::now() + IDLE;
    while Instant::now() < end {
        let record = consumer.next(Duration::from_millis(100))?;
        ensure!(record.is_none(), "the empty topic gave {record:?}");
    }
    let fetches = consumer.fetches();
    ensure!((1..=FETCH_LIMIT).contains(&fetches), "{fetches} fetch requests in {IDLE:?} of idling");
    let mut records = numbered(1, 1);
    client.producer(&[])?.send(&mut records)?;
    let got = consumer.next(Duration::from_secs(10))?.ok_or("nothing came within 10 s")?;
    same(&[got], &records, 0)
}

fn delete_recreate(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    client.producer(&[])?.send(&mut numbered(10, 1))?;
    client.delete()?;
    eventually(|| {
        ensure!(!client.topic_is_listed()?, "the deleted topic is still listed");
        Ok(())
    })?;
    eventually(|| client.try_create(PARTITIONS, &[]))?;
    client.await_topic(PARTITIONS)?;
    for partition in 0..PARTITIONS {
        expect_span(client, partition, (0, 0))?;
    }
    let mut records = numbered(1, 1);
    records[0].value = Some(b"new".to_vec());
    client.producer(&[])?.send(&mut records)?;
    verify(client, &records)
}

/// Without a produce: librdkafka's producers always let the broker create the topic.
fn unknown_topic(client: &Client) -> Result<()> {
    let error = client.topic_error()?;
    ensure!(error == Some(Code::UnknownTopicOrPartition), "metadata of the topic gave {error:?}");
    let consumer = client.consumer(&[(0, Offset::Beginning)])?;
    expect_code(consumer.take(1), Code::UnknownTopicOrPartition)?;
    ensure!(!client.topic_is_listed()?, "asking for the topic created it");
    Ok(())
}

fn admin(client: &Client) -> Result<()> {
    let (id, nodes) = client.cluster()?;
    ensure!(!id.is_empty() && nodes > 0, "cluster {id:?} has {nodes} nodes");
    client.create(PARTITIONS, &[])?;
    ensure!(client.topic_is_listed()?, "the topic is not listed");

    let default = client.config("max.message.bytes")?;
    ensure!(default == Config::new("1048588", true), "max.message.bytes is {default:?}");
    client.set_configs(&[("retention.ms", "123456789")])?;
    await_config(client, Config::new("123456789", false))?;
    client.set_configs(&[])?;
    await_config(client, Config::new("604800000", true))?;

    client.create_partitions(6)?;
    client.await_topic(6)?;

    let mut records = numbered(10, 1);
    client.producer(&[])?.send(&mut records)?;
    client.delete_records(0, 4)?;
    expect_span(client, 0, (4, 10))?;
    same(&client.consumer(&[(0, Offset::Beginning)])?.take(6)?, &records[4..], 4)
}

fn await_config(client: &Client, want: Config) -> Result<()> {
    eventually(|| {
        let config = client.config("retention.ms")?;
        ensure!(config == want, "retention.ms is {config:?}, expected {want:?}");
        Ok(())
    })
}

/// Distinct records spread over the first partitions in turn.
fn numbered(count: usize, partitions: i32) -> Vec<Record> {
    let record = |(index, partition): (usize, i32)| Record {
        partition,
        offset: -1,
        key: Some(format!("key-{index:06}").into_bytes()),
        value: Some(format!("value-{index:06}").into_bytes()),
        headers: vec![("index".to_owned(), Some(index.to_string().into_bytes()))],
        timestamp_ms: None,
    };
    (0..count).zip((0..partitions).cycle()).map(record).collect()
}

fn append(record: &mut Record, text: &str) {
    record.value.get_or_insert_default().extend_from_slice(text.as_bytes());
}

fn expect_span(client: &Client, partition: i32, want: (i64, i64)) -> Result<()> {
    let found = client.span(partition)?;
    ensure!(found == want, "partition {partition} spans offsets {found:?}, expected {want:?}");
    Ok(())
}

fn expect_code<T>(outcome: Result<T>, want: Code) -> Result<()> {
    let error = outcome.err().ok_or(format!("no error, expected {want:?}"))?;
    let code = match error.downcast_ref::<KafkaError>() {
        Some(KafkaError::AdminOp(code)) => Some(*code),
        Some(other) => other.rdkafka_error_code(),
        None => None,
    };
    ensure!(code == Some(want), "expected {want:?}, got: {error}");
    Ok(())
}

/// Reads every partition of these records from the start: each record must be where it was
/// acknowledged, in the order it was handed over, and nothing else may be there.
fn verify(client: &Client, sent: &[Record]) -> Result<()> {
    let mut want: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
    for record in sent {
        want.entry(record.partition).or_default().push(record.clone());
    }
    let starts: Vec<_> = want.keys().map(|partition| (*partition, Offset::Beginning)).collect();
    let mut got: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
    for record in client.consumer(&starts)?.take(sent.len())? {
        got.entry(record.partition).or_default().push(record);
    }
    for (partition, want) in &want {
        same(got.get(partition).map_or(&[], Vec::as_slice), want, 0)?;
        expect_span(client, *partition, (0, want.len() as i64))?;
    }
    Ok(())
}

/// Compares records of one partition in order; the first has the given offset, which is also where
/// its acknowledgement said it is.
fn same(got: &[Record], want: &[Record], first_offset: i64) -> Result<()> {
    ensure!(got.len() == want.len(), "{} records, expected {}", got.len(), want.len());
    for ((got, want), offset) in got.iter().zip(want).zip(first_offset..) {
        let want = Record { timestamp_ms: want.timestamp_ms.or(got.timestamp_ms), ..want.clone() };
        ensure!(want.offset == offset, "offset {} acknowledged, expected {offset}", want.offset);
        ensure!(*got == want, "got {}, expected {}", brief(got), brief(&want));
    }
    Ok(())
}

fn brief(record: &Record) -> String {
    format!("{record:?}").chars().take(300).collect()
}
