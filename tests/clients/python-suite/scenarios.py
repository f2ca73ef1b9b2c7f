"""The scenarios of tests/clients/README.md for the Python libraries, over client.Client."""

import contextlib
import random
import secrets
import time

from client import Client, OutOfRange, Record, TooLarge, TopicExists, UnknownTopic

# For records that are known to be there, and for the cluster's state: a loaded broker takes its
# time over 1,000 partitions.
PATIENCE_S = 30
STATE_S = 45


class Kit:
    """One scenario's topic names and open clients."""

    def __init__(self, client: Client, scenario: str):
        self.client = client
        self.scenario = scenario
        self.open = contextlib.ExitStack()

    def fresh_name(self):
        return f"{self.scenario}-{self.client.family}-{secrets.token_hex(4)}"

    def new_topic(self, partitions=4, **configs):
        topic = self.fresh_name()
        self.create(topic, partitions, configs)
        return topic

    def create(self, topic, partitions, configs):
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.create_topic(topic, partitions, configs)
        self.await_leaders(topic, partitions)

    def await_leaders(self, topic, partitions):
        def ask():
            try:
                found = self.client.partitions(topic)
            except UnknownTopic:
                return None
            led = len(found) == partitions and all(leader >= 0 for leader, _, _ in found.values())
            return found if led else None

        found = wait_for(f"leaders of {topic}", ask)
        # A leader may be named a moment before it serves: asking it for offsets settles that.
        wait_for(f"offsets of {topic}", lambda: self.client.bounds(topic, list(found)))
        return found

    def producer(self, **settings):
        producer = self.client.producer(**settings)
        self.open.callback(producer.close)
        return producer

    def consumer(self, topic, partitions, **settings):
        consumer = self.client.consumer(topic, partitions, **settings)
        self.open.callback(consumer.close)
        return consumer

    def send(self, topic, records, **settings):
        """Without waiting between records; the acknowledged offsets in order of sending."""
        producer = self.producer(**settings)
        waits = [producer.send(topic, record) for record in records]
        producer.flush()
        return [wait() for wait in waits]

    def produce(self, topic, count, first=0):
        """Indexed records to partition 0, whose offsets must follow on from `first`."""
        offsets = self.send(topic, indexed(count, first))
        equal("acknowledged offsets", list(range(first, first + count)), offsets)

    def read_back(self, topic, partitions, count):
        """Exactly `count` records are in these partitions; gives them by partition and offset."""
        partitions = list(partitions)
        consumer = self.consumer(topic, partitions, reset="earliest")
        records = poll(consumer, count)
        bounds = self.client.bounds(topic, partitions).values()
        equal("records between the bounds", count, sum(end - start for start, end in bounds))
        return sorted(records, key=lambda record: (record.partition, record.offset))


# --- writing -----------------------------------------------------------------------------------


def create_topic(kit):
    topic = kit.new_topic(retention_ms="3600000")
    equal("partitions", [0, 1, 2, 3], sorted(kit.await_leaders(topic, 4)))
    equal("retention.ms", ("3600000", True), kit.client.config(topic, "retention.ms"))
    fails(TopicExists, lambda: kit.client.create_topic(topic, 4, {}))


def produce_sync(kit):
    topic = kit.new_topic()
    producer = kit.producer()
    sent = indexed(100)
    equal("offsets", list(range(100)), [producer.send(topic, record)() for record in sent])
    same(sent, kit.read_back(topic, range(4), 100))


def produce_async(kit):
    topic = kit.new_topic()
    sent = [Record(None, key(i), value(i) + b" " + b"x" * 80) for i in range(10_000)]
    kit.send(topic, sent, linger_ms=5)
    read = kit.read_back(topic, range(4), len(sent))
    following = [0] * 4
    seen = set()
    for record in read:
        equal(f"offset in partition {record.partition}", following[record.partition], record.offset)
        following[record.partition] += 1
        index = int(record.value[6:12])
        seen.add(index)
        equal(f"key of {index}", key(index), record.key)
        equal(f"value of {index}", sent[index].value, record.value)
    equal("different values", len(sent), len(seen))
    that("every partition got records", all(following))


def codec(name):
    def scenario(kit):
        topic = kit.new_topic()
        sent = [Record(0, key(i), (value(i) + b" ") * 15) for i in range(1_000)]
        equal("offsets", list(range(1_000)), kit.send(topic, sent, codec=name, linger_ms=20))
        same(sent, kit.read_back(topic, range(4), 1_000))
        if kit.client.log_dirs_described:
            raw = sum(len(record.value) for record in sent)
            stored = sum(size for (t, _), size in kit.client.log_dirs().items() if t == topic)
            fits = stored >= raw if name == "none" else 0 < stored < raw / 2
            that(f"stored {stored} bytes of {raw} with {name}", fits)

    return scenario


def acks(level):
    def scenario(kit):
        topic = kit.new_topic()
        sent = indexed(100)
        offsets = kit.send(topic, sent, acks=level)
        if level != "0":
            equal("offsets", list(range(100)), offsets)
        same(sent, kit.read_back(topic, range(4), 100))

    return scenario


def idempotent(kit):
    topic = kit.new_topic()
    sent = indexed(1_000)
    # Small batches, so that there really are several requests in flight.
    offsets = kit.send(topic, sent, idempotent=True, batch_bytes=1_000)
    equal("offsets", list(range(1_000)), offsets)
    same(sent, kit.read_back(topic, range(4), 1_000))


def large_record(kit):
    topic = kit.new_topic()
    noise = random.Random(42)
    sent = [Record(0, key(i), noise.randbytes(900 * 1024)) for i in range(3)]
    equal("offsets", [0, 1, 2], kit.send(topic, sent))
    same(sent, kit.read_back(topic, range(4), 3))


def oversize_record(kit):
    topic = kit.new_topic(max_message_bytes="10000")
    producer = kit.producer()
    fails(TooLarge, producer.send(topic, Record(0, key(0), bytes(20_000))))
    sent = indexed(1)
    equal("offset after the refusal", 0, producer.send(topic, sent[0])())
    same(sent, kit.read_back(topic, range(4), 1))


def empty_and_null(kit):
    topic = kit.new_topic()
    pairs = [(None, b"v"), (b"", b"v"), (b"k", None), (b"k", b""), (None, None), (b"", b"")]
    if not kit.client.null_key_with_null_value:
        pairs.remove((None, None))
    sent = [Record(0, *pair) for pair in pairs]
    kit.send(topic, sent)
    same(sent, kit.read_back(topic, range(4), len(sent)))


def headers(kit):
    topic = kit.new_topic()
    sent = indexed(3)
    sent[1].headers = [("a", b"1"), ("b", b""), ("a", b"2"), ("bin", b"\x00\xff\x80\x7f")]
    if kit.client.null_header:
        sent[1].headers.append(("n", None))
    sent[2].headers = [("clé", "ü".encode())]
    kit.send(topic, sent)
    same(sent, kit.read_back(topic, range(4), 3))


def many_partitions(kit):
    topic = kit.new_topic(1_000)
    equal("partitions", list(range(1_000)), sorted(kit.await_leaders(topic, 1_000)))
    sample = range(0, 1_000, 20)
    sent = [Record(partition, key(i), value(i)) for i, partition in enumerate(sample)]
    equal("offsets", [0] * 50, kit.send(topic, sent))
    read = kit.read_back(topic, sample, 50)
    for expected, actual in zip(sent, read, strict=True):
        got = (actual.partition, actual.offset, actual.key, actual.value)
        equal("record", (expected.partition, 0, expected.key, expected.value), got)
    kit.client.delete_topic(topic)


# --- reading -----------------------------------------------------------------------------------


def consume_earliest(kit):
    topic = kit.new_topic()
    kit.produce(topic, 100)
    consumer = kit.consumer(topic, [0], reset="earliest")
    expect(0, 100, poll(consumer, 100))
    equal("bounds", (0, 100), consumer.bounds(0))


def consume_latest(kit):
    topic = kit.new_topic()
    kit.produce(topic, 50)
    consumer = kit.consumer(topic, [0], reset="latest")
    equal("position", 50, consumer.position(0))
    kit.produce(topic, 10, first=50)
    expect(50, 60, poll(consumer, 10))


def consume_timestamp(kit):
    topic = kit.new_topic()
    start = int(time.time() * 1000) - 3_600_000
    sent = indexed(100)
    for i, record in enumerate(sent):
        record.timestamp = start + i * 1_000
    kit.send(topic, sent, linger_ms=50)
    consumer = kit.consumer(topic, [0], start=0)
    equal("inside a second", 50, consumer.offset_at(0, start + 49_500))
    equal("on the second", 50, consumer.offset_at(0, start + 50_000))
    equal("before all", 0, consumer.offset_at(0, start - 1))
    equal("after all", None, consumer.offset_at(0, start + 99_001))
    found = kit.consumer(topic, [0], start=consumer.offset_at(0, start + 49_500))
    records = poll(found, 50)
    expect(50, 100, records)
    equal("timestamp", start + 50_000, records[0].timestamp)


def offsets_for_times(kit):
    now = int(time.time() * 1000)
    # Times of one batch each: out of order, the same twice, all the same, of the future.
    batches = [
        [500, 100, 900],
        [300],
        [900, 900, 900, 900],
        [0, 200],
        [10_000_000_000, 700, 10_000_000_000],
        [700],
    ]
    for codec_name in ("none", "gzip"):
        topic = kit.new_topic(message_timestamp_after_max_ms=str(2**63 - 1))
        for batch in batches:
            sent = indexed(len(batch))
            for record, ahead in zip(sent, batch, strict=True):
                record.timestamp = now + ahead
            kit.send(topic, sent, codec=codec_name, linger_ms=500)
        times = [now + ahead for batch in batches for ahead in batch]
        found_by_time(kit, topic, times)
    # Here the broker's clock counts, and all of a batch have the same time.
    topic = kit.new_topic(message_timestamp_type="LogAppendTime")
    for batch in range(3):
        sent = indexed(5)
        for record in sent:
            record.timestamp = now - 3_600_000 - batch
        kit.send(topic, sent, codec="gzip", linger_ms=500)
    times = [record.timestamp for record in kit.read_back(topic, [0], 15)]
    that(f"the broker's clock: {times}", min(times) > now - 60_000 and times == sorted(times))
    found_by_time(kit, topic, times)


def found_by_time(kit, topic, times):
    """The records of partition 0 have these times, and each is found by them."""
    read = kit.read_back(topic, [0], len(times))
    equal("times", times, [record.timestamp for record in read])
    consumer = kit.consumer(topic, [0], start=0)
    for asked in sorted({at + step for at in times for step in (-1, 0)} | {0, max(times) + 1}):
        first = next((offset for offset, at in enumerate(times) if at >= asked), None)
        equal(f"offset at {asked} of {times}", first, consumer.offset_at(0, asked))


def consume_offset(kit):
    topic = kit.new_topic()
    kit.produce(topic, 100)
    consumer = kit.consumer(topic, [0], start=37)
    expect(37, 100, poll(consumer, 63))
    consumer.seek(0, 5)
    expect(5, 100, poll(consumer, 95))
    if kit.client.out_of_range_error:
        consumer.seek(0, 1_000)
        fails(OutOfRange, lambda: poll(consumer, 1))


def long_poll(kit):
    topic = kit.new_topic(1)
    consumer = kit.consumer(topic, [0], reset="latest")
    equal("position", 0, consumer.position(0))
    idle_until = time.monotonic() + 3
    while time.monotonic() < idle_until:
        equal("records while idle", [], consumer.poll(100))
    fetches = consumer.fetches()
    that(f"{fetches} fetch requests while idle", fetches is None or 1 <= fetches <= 60)
    kit.produce(topic, 1)
    deadline = time.monotonic() + 10
    records = []
    while not records and time.monotonic() < deadline:
        records = consumer.poll(1_000)
    expect(0, 1, records)


# --- compacted topics ---------------------------------------------------------------------------


def compact(kit):
    """Segments are 1 MiB, the least there is: two rounds over the keys."""
    topic = kit.new_topic(
        1,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="1000",
    )
    fails(Exception, lambda: kit.send(topic, [Record(0, None, b"v")]))
    latest, filler = {}, iter(range(1_000))

    def send(prefix, number, tombstones=False):
        padding = b" " + b"x" * 10_000
        sent = [
            Record(0, f"{prefix}{i}".encode(), None if tombstones else value(number * 50 + i) + padding)
            for i in range(5 if tombstones else 50)
        ]
        for record, offset in zip(sent, kit.send(topic, sent, linger_ms=5), strict=True):
            if prefix == "key-":
                latest[record.key] = (offset, record.value)

    def left(tombstones):
        def ask():
            start, end = kit.client.bounds(topic, [0])[0]
            consumer = kit.client.consumer(topic, [0], start=start)
            read, deadline = [], time.monotonic() + PATIENCE_S
            while (not read or read[-1].offset < end - 1) and time.monotonic() < deadline:
                read += consumer.poll(200)
            consumer.close()
            offsets = [record.offset for record in read]
            equal("offsets grow", sorted(set(offsets)), offsets)
            found = [record for record in read if record.key.startswith(b"key-")]
            by_key = {record.key: (record.offset, record.value) for record in found}
            if len(found) != len(by_key) or not (tombstones or all(v for _, v in by_key.values())):
                return None
            return by_key

        return ask

    for number in range(6):
        send("key-", number)
    send("key-", 0, tombstones=True)
    for _ in range(3):
        send(f"filler-{next(filler)}-", 0)
    seen = wait_for("only the latest values", left(tombstones=True))
    # The passes may be so far apart that the tombstones are gone already.
    expected = {k: sent for k, sent in latest.items() if sent[1] is not None or k in seen}
    equal("keys and offsets", expected, seen)

    def another_pass():
        send(f"filler-{next(filler)}-", 0)
        send(f"filler-{next(filler)}-", 0)
        return left(tombstones=False)()

    values = {key: (offset, text) for key, (offset, text) in latest.items() if text is not None}
    equal("without tombstones", values, wait_for("the tombstones to go", another_pass))


# --- topics and cluster ------------------------------------------------------------------------


def delete_recreate(kit):
    topic = kit.new_topic()
    kit.produce(topic, 10)
    kit.client.delete_topic(topic)
    wait_for("the topic to be gone", lambda: True if topic not in kit.client.topics() else None)

    def create_again():
        try:
            kit.create(topic, 4, {})
            return True
        except TopicExists:
            return None

    wait_for("the name to be free", create_again)
    equal("bounds", {0: (0, 0)}, kit.client.bounds(topic, [0]))
    kit.produce(topic, 1)
    same(indexed(1), kit.read_back(topic, range(4), 1))


def unknown_topic(kit):
    topic = kit.fresh_name()
    fails(UnknownTopic, lambda: kit.client.partitions(topic))
    fails(UnknownTopic, lambda: kit.client.delete_topic(topic))
    that("the topic was not created", topic not in kit.client.topics())


def admin(kit):
    client = kit.client
    cluster_id, nodes, controller = client.cluster()
    that("a cluster id", cluster_id)
    that(f"controller {controller} among {nodes}", controller in nodes)

    topic = kit.new_topic()
    that("the topic is listed", topic in client.topics())
    for partition, (leader, replicas, isr) in kit.await_leaders(topic, 4).items():
        that(f"leader of {partition} among the nodes", leader in nodes)
        equal(f"replicas and isr of {partition}", ([leader], [leader]), (replicas, isr))

    equal("max.message.bytes", ("1048588", False), client.config(topic, "max.message.bytes"))
    client.set_config(topic, "retention.ms", "123456789")
    await_config(client, topic, ("123456789", True))
    client.set_config(topic, "retention.ms", None)
    await_config(client, topic, ("604800000", False))

    client.create_partitions(topic, 6)
    kit.await_leaders(topic, 6)

    kit.produce(topic, 10)
    equal("low watermark", 4, client.delete_records(topic, 0, 4))
    equal("bounds", {0: (4, 10)}, kit.client.bounds(topic, [0]))

    if client.log_dirs_described:
        described = sorted(partition for t, partition in client.log_dirs() if t == topic)
        equal("partitions in log directories", list(range(6)), described)


SCENARIOS = {
    "create-topic": create_topic,
    "produce-sync": produce_sync,
    "produce-async": produce_async,
    "codec-none": codec("none"),
    "codec-gzip": codec("gzip"),
    "codec-snappy": codec("snappy"),
    "codec-lz4": codec("lz4"),
    "codec-zstd": codec("zstd"),
    "acks-0": acks("0"),
    "acks-1": acks("1"),
    "acks-all": acks("all"),
    "idempotent": idempotent,
    "large-record": large_record,
    "oversize-record": oversize_record,
    "empty-and-null": empty_and_null,
    "headers": headers,
    "many-partitions": many_partitions,
    "consume-earliest": consume_earliest,
    "consume-latest": consume_latest,
    "consume-timestamp": consume_timestamp,
    "consume-offset": consume_offset,
    "long-poll": long_poll,
    "delete-recreate": delete_recreate,
    "unknown-topic": unknown_topic,
    "admin": admin,
    "compact": compact,
    "offsets-for-times": offsets_for_times,
}


# --- comparing ---------------------------------------------------------------------------------


def key(index):
    return b"key-%d" % (index % 97)


def value(index):
    return b"value-%06d" % index


def indexed(count, first=0):
    return [Record(0, key(i), value(i)) for i in range(first, first + count)]


def poll(consumer, count):
    """Polls until `count` records came; fails if more did or time ran out."""
    records = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll(200)
    equal("records read", count, len(records))
    return records


def wait_for(what, ask):
    deadline = time.monotonic() + STATE_S
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {STATE_S} s for {what}")


def await_config(client, topic, expected):
    ask = lambda: True if client.config(topic, "retention.ms") == expected else None  # noqa: E731
    wait_for(f"retention.ms to read {expected}", ask)


def expect(start, end, records):
    """The indexed records at offsets start..end."""
    equal("offsets", list(range(start, end)), [record.offset for record in records])
    for record in records:
        got = (record.key, record.value)
        equal(f"record {record.offset}", (key(record.offset), value(record.offset)), got)


def same(sent, read):
    """Those sent to one partition were read, in order, at offsets from 0 on."""
    equal("count", len(sent), len(read))
    for offset, (a, b) in enumerate(zip(sent, read, strict=True)):
        equal("offset", offset, b.offset)
        equal(f"record {offset}", (a.key, a.value, a.headers), (b.key, b.value, b.headers))


def equal(what, expected, actual):
    if expected != actual:
        raise AssertionError(f"{what}: expected {expected!r:.200}, got {actual!r:.200}")


def that(what, holds):
    if not holds:
        raise AssertionError(what)


def fails(error, call):
    try:
        got = call()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}, got {got!r:.200}")
