"""confluent-kafka (librdkafka) behind the Python suite's interface."""

import json
import time

import client as suite
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer as RdConsumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer as RdProducer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from runner import main

TIMEOUT_S = 30


class Producer(suite.Producer):
    def __init__(self, bootstrap, acks, codec, idempotent, linger_ms, batch_bytes):
        self.inner = RdProducer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "compression.codec": codec,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "batch.size": batch_bytes,
                "message.max.bytes": 2_000_000,
            }
        )

    def send(self, topic, record):
        done = []
        optional = {"partition": record.partition, "timestamp": record.timestamp}
        self.inner.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=record.headers or None,
            on_delivery=lambda error, message: done.append((error, message)),
            **{name: given for name, given in optional.items() if given is not None},
        )
        self.inner.poll(0)

        def wait():
            if not done:
                self.inner.flush(TIMEOUT_S)
            [(error, message)] = done
            if error and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise suite.TooLarge(error)
            if error:
                raise KafkaException(error)
            return message.offset()

        return wait

    def flush(self):
        self.inner.flush(TIMEOUT_S)

    def close(self):
        self.inner.purge()
        self.inner.flush(2)


class Transactor(suite.Transactor):
    def __init__(self, bootstrap, name, timeout_ms):
        self.fenced = False
        self.inner = RdProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                # When all brokers are away it bootstraps again, and then waits forever at sending
                # offsets: its memory of coordinators keeps the handle of a broker that it dropped.
                "metadata.recovery.strategy": "none",
                "transaction.timeout.ms": timeout_ms,
            }
        )
        self.call(self.inner.init_transactions)

    def call(self, function, *arguments):
        """What can be tried again is, as the library asks for."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return function(*arguments)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise self.known(error) from error

    def known(self, error):
        inner = error.args[0]
        self.fenced |= inner.code() in FENCED
        if self.fenced:
            return suite.Fenced(error)
        return suite.MustAbort(error) if inner.txn_requires_abort() else error

    def begin(self):
        self.call(self.inner.begin_transaction)

    def send(self, topic, record):
        failed = []
        self.call(
            lambda: self.inner.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=record.partition,
                on_delivery=lambda error, _: failed.append(error),
            )
        )

        def wait():
            [error] = failed
            if error:
                known = self.known(KafkaException(error))
                # The transaction's own state is told by its calls.
                raise known if isinstance(known, suite.Fenced) else suite.MustAbort(error)

        return wait

    def flush(self):
        self.call(self.inner.flush, TIMEOUT_S)

    def send_offsets(self, member, topic, offsets):
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        group = member.inner.consumer_group_metadata()
        try:
            # Bounded, since it tries by itself for ever; a new producer begins again.
            self.inner.send_offsets_to_transaction(asked, group, 8)
        except KafkaException as error:
            known = self.known(error)
            raise known if isinstance(known, suite.Fenced) else suite.MustAbort(error) from error

    def commit(self):
        self.call(self.inner.commit_transaction)

    def abort(self):
        self.call(self.inner.abort_transaction)

    def close(self):
        try:
            self.inner.purge()
            self.inner.flush(2)
        except KafkaException:
            # Of one that is fenced, every call fails.
            if not self.fenced:
                raise


class Consumer(suite.Consumer):
    def __init__(self, bootstrap, topic, partitions, reset, start, isolation):
        self.topic = topic
        self.fetched = {}
        self.following = {}
        self.inner = RdConsumer(
            {
                "bootstrap.servers": bootstrap,
                # The library insists on a group; assigning by hand never joins it.
                "group.id": "assigned-by-hand",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error" if reset == "none" else reset,
                "allow.auto.create.topics": False,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 500,
                "fetch.min.bytes": 1,
                "statistics.interval.ms": 250,
                "stats_cb": self.count,
            }
        )
        first = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END, "none": start}[reset]
        self.partitions = [TopicPartition(topic, partition, first) for partition in partitions]
        self.inner.assign(self.partitions)

    def count(self, statistics):
        statistics = json.loads(statistics)
        for name, broker in statistics["brokers"].items():
            self.fetched[name] = broker["req"].get("Fetch", 0)
        for partition, known in statistics["topics"].get(self.topic, {}).get("partitions", {}).items():
            if known["fetch_state"] == "active":
                self.following[int(partition)] = known["next_offset"]

    def poll(self, timeout_ms):
        records = []
        for message in self.inner.consume(1_000, timeout_ms / 1_000):
            error = message.error()
            if error and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise suite.OutOfRange(error)
            if error:
                raise KafkaException(error)
            records.append(
                suite.Record(
                    message.partition(),
                    message.key(),
                    message.value(),
                    message.headers() or [],
                    message.timestamp()[1],
                    message.offset(),
                )
            )
        return records

    def position(self, partition):
        # The library settles it in the background and tells only in its statistics.
        deadline = time.monotonic() + TIMEOUT_S
        while partition not in self.following and time.monotonic() < deadline:
            suite.none_expected(self.poll(100))
        return self.following.get(partition)

    def seek(self, partition, offset):
        self.inner.seek(TopicPartition(self.topic, partition, offset))

    def bounds(self, partition):
        return self.inner.get_watermark_offsets(
            TopicPartition(self.topic, partition), timeout=TIMEOUT_S
        )

    def offset_at(self, partition, timestamp):
        asked = TopicPartition(self.topic, partition, timestamp)
        [found] = self.inner.offsets_for_times([asked], timeout=TIMEOUT_S)
        if found.error:
            raise KafkaException(found.error)
        return None if found.offset == OFFSET_END else found.offset

    def fetches(self):
        return sum(self.fetched.values())

    def close(self):
        self.inner.close()


class Member(suite.Member):
    def __init__(self, bootstrap, topic, group, protocol, instance):
        settings = {
            "classic": {"partition.assignment.strategy": "range", **CLASSIC},
            "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
            "consumer": {"group.protocol": "consumer"},
        }
        self.inner = RdConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
                **settings[protocol],
                **({"group.instance.id": instance} if instance else {}),
            }
        )
        self.inner.subscribe([topic])

    def poll(self, timeout_ms):
        records = []
        for message in self.inner.consume(1_000, timeout_ms / 1_000):
            if message.error():
                raise KafkaException(message.error())
            records.append(
                suite.Record(
                    message.partition(), message.key(), message.value(), offset=message.offset()
                )
            )
        return records

    def assignment(self):
        return {tp.partition for tp in self.inner.assignment()}

    def commit(self):
        try:
            self.inner.commit(asynchronous=False)
            return True
        except KafkaException as error:
            if error.args[0].code() not in LOST:
                raise
            # There is nothing to commit once the partitions went to another member.
            return error.args[0].code() == KafkaError._NO_OFFSET

    def close(self):
        self.inner.close()


class Client(suite.Client):
    family = "python-confluent"
    group_protocols = ("classic", "cooperative", "consumer")
    log_dirs_described = False

    def __init__(self, bootstrap):
        super().__init__(bootstrap)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def producer(self, acks="all", codec="none", idempotent=False, linger_ms=0, batch_bytes=16384):
        return Producer(self.bootstrap, acks, codec, idempotent, linger_ms, batch_bytes)

    def consumer(self, topic, partitions, reset="none", start=None, isolation="read_uncommitted"):
        return Consumer(self.bootstrap, topic, partitions, reset, start, isolation)

    def transactor(self, name, timeout_ms=60_000):
        return Transactor(self.bootstrap, name, timeout_ms)

    def create_topic(self, topic, partitions, configs):
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
        known = {KafkaError.TOPIC_ALREADY_EXISTS: suite.TopicExists}
        result(self.admin.create_topics([wanted])[topic], known)

    def delete_topic(self, topic):
        result(self.admin.delete_topics([topic])[topic], UNKNOWN)

    def partitions(self, topic):
        described = self.admin.describe_topics(TopicCollection([topic]))[topic]
        return {
            p.id: (p.leader.id if p.leader else -1, [n.id for n in p.replicas], [n.id for n in p.isr])
            for p in result(described, UNKNOWN).partitions
        }

    def bounds(self, topic, partitions):
        asked = [TopicPartition(topic, partition) for partition in partitions]
        starts = self.admin.list_offsets(dict.fromkeys(asked, OffsetSpec.earliest()))
        ends = self.admin.list_offsets(dict.fromkeys(asked, OffsetSpec.latest()))
        try:
            return {tp.partition: (result(starts[tp]).offset, result(ends[tp]).offset) for tp in asked}
        except KafkaException as error:
            if error.args[0].code() in NOT_YET:
                return None
            raise

    def topics(self):
        return set(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def cluster(self):
        found = result(self.admin.describe_cluster())
        return found.cluster_id, [node.id for node in found.nodes], found.controller.id

    def config(self, topic, key):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entry = result(self.admin.describe_configs([resource])[resource])[key]
        source = ConfigSource(entry.source)
        return entry.value, source == ConfigSource.DYNAMIC_TOPIC_CONFIG

    def set_config(self, topic, key, value):
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        result(self.admin.incremental_alter_configs([resource])[resource])

    def create_partitions(self, topic, total):
        result(self.admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_records(self, topic, partition, before):
        [deleted] = self.admin.delete_records([TopicPartition(topic, partition, before)]).values()
        return result(deleted).low_watermark

    def member(self, topic, group, protocol, instance=None):
        return Member(self.bootstrap, topic, group, protocol, instance)

    def committed(self, group, topic):
        asked = [ConsumerGroupTopicPartitions(group)]
        # One that has asked before a broker was away may wait forever, as a Transactor would.
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = result(admin.list_consumer_group_offsets(asked)[group])
        ours = (tp for tp in found.topic_partitions if tp.topic == topic)
        return {tp.partition: tp.offset for tp in ours}

    def groups(self):
        listed = result(self.admin.list_consumer_groups())
        if listed.errors:
            raise listed.errors[0]
        return {group.group_id for group in listed.valid}

    def describe_group(self, group):
        found = result(self.admin.describe_consumer_groups([group])[group])
        return found.state.name.capitalize(), len(found.members)

    def delete_group(self, group):
        known = {KafkaError.NON_EMPTY_GROUP: suite.GroupInUse}
        result(self.admin.delete_consumer_groups([group])[group], known)

    def close(self):
        pass


# With the new protocol the broker says how often.
CLASSIC = {"heartbeat.interval.ms": 500, "session.timeout.ms": suite.SESSION_MS}
LOST = (
    KafkaError._NO_OFFSET,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
NOT_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART: suite.UnknownTopic}


def result(future, known=None):
    """The future's value, with the errors that the suite knows under their own names."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as error:
        code = error.args[0].code()
        if known and code in known:
            raise known[code](error) from error
        raise


if __name__ == "__main__":
    main(Client)
