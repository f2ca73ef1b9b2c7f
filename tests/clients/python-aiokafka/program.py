"""aiokafka behind the Python suite's interface.

The library is asynchronous: it lives on an event loop in a thread of its own, as it would in a
service, and each call of the suite waits for its coroutine there.
"""

import asyncio
import threading

import client as suite
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.protocol.metadata import MetadataRequest
from runner import main

# Bounds one call; a loaded broker takes its time over 1,000 partitions.
TIMEOUT_S = 45
# What the older DescribeConfigs answers that this library reads call "set on the topic".
DYNAMIC_TOPIC_CONFIG = 1

LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def wait(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result(TIMEOUT_S)


class Producer(suite.Producer):
    def __init__(self, bootstrap, acks, codec, idempotent, linger_ms, batch_bytes):
        async def start():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks={"0": 0, "1": 1, "all": "all"}[acks],
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                max_batch_size=batch_bytes,
            )
            await producer.start()
            return producer

        self.inner = wait(start())

    def send(self, topic, record):
        sent = wait(
            self.inner.send(
                topic,
                key=record.key,
                value=record.value,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        )

        async def acknowledged():
            metadata = await sent
            # With acks=0 there is nothing to tell.
            return metadata.offset if metadata else None

        def wait_for_it():
            try:
                return wait(acknowledged())
            except errors.MessageSizeTooLargeError as error:
                raise suite.TooLarge(error) from error

        return wait_for_it

    def flush(self):
        wait(self.inner.flush())

    def close(self):
        wait(self.inner.stop())


class Transactor(suite.Transactor):
    def __init__(self, bootstrap, name, timeout_ms):
        async def start():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
            )
            # Initialises the id.
            await producer.start()
            return producer

        self.inner = self.call(start())

    def call(self, coroutine):
        try:
            return wait(coroutine)
        except (errors.ProducerFenced, errors.InvalidProducerEpoch) as error:
            raise suite.Fenced(error) from error
        except errors.IllegalOperation:
            raise
        except (errors.KafkaError, TimeoutError) as error:
            raise suite.MustAbort(error) from error

    def begin(self):
        self.sent = []
        self.call(self.inner.begin_transaction())

    def send(self, topic, record):
        async def acknowledged(sent):
            return await sent

        try:
            sent = self.call(
                self.inner.send(
                    topic, key=record.key, value=record.value, partition=record.partition
                )
            )
        except errors.IllegalOperation:
            # A transaction that has failed takes no more; the records before this one say why.
            for sent in self.sent:
                self.call(acknowledged(sent))
            raise
        self.sent.append(sent)
        return lambda: self.call(acknowledged(sent))

    def flush(self):
        self.call(self.inner.flush())

    def send_offsets(self, member, topic, offsets):
        asked = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self.call(self.inner.send_offsets_to_transaction(asked, member.group))

    def commit(self):
        self.call(self.inner.commit_transaction())

    def abort(self):
        self.call(self.inner.abort_transaction())

    def close(self):
        self.call(self.inner.stop())


class Consumer(suite.Consumer):
    def __init__(self, bootstrap, topic, partitions, reset, start, isolation):
        self.topic = topic
        assigned = [TopicPartition(topic, partition) for partition in partitions]

        async def begin():
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                auto_offset_reset=reset,
                enable_auto_commit=False,
                isolation_level=isolation,
                fetch_max_wait_ms=500,
                fetch_min_bytes=1,
            )
            await consumer.start()
            consumer.assign(assigned)
            if start is not None:
                for partition in assigned:
                    consumer.seek(partition, start)
            return consumer

        self.inner = wait(begin())

    def poll(self, timeout_ms):
        try:
            batches = wait(self.inner.getmany(timeout_ms=timeout_ms))
        except errors.OffsetOutOfRangeError as error:
            raise suite.OutOfRange(error) from error
        return [
            suite.Record(r.partition, r.key, r.value, list(r.headers), r.timestamp, r.offset)
            for batch in batches.values()
            for r in batch
        ]

    def position(self, partition):
        return wait(self.inner.position(TopicPartition(self.topic, partition)))

    def seek(self, partition, offset):
        async def seek():
            self.inner.seek(TopicPartition(self.topic, partition), offset)

        wait(seek())

    def bounds(self, partition):
        tp = TopicPartition(self.topic, partition)
        starts, ends = wait(self.inner.beginning_offsets([tp])), wait(self.inner.end_offsets([tp]))
        return starts[tp], ends[tp]

    def offset_at(self, partition, timestamp):
        tp = TopicPartition(self.topic, partition)
        found = wait(self.inner.offsets_for_times({tp: timestamp}))[tp]
        return None if found is None else found.offset

    def fetches(self):
        return None

    def close(self):
        wait(self.inner.stop())


class Member(suite.Member):
    def __init__(self, bootstrap, topic, group, protocol, instance):
        async def begin():
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=instance,
                partition_assignment_strategy=[RangePartitionAssignor],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=500,
                session_timeout_ms=suite.SESSION_MS,
            )
            await consumer.start()
            return consumer

        self.group = group
        self.inner = wait(begin())

    def poll(self, timeout_ms):
        batches = wait(self.inner.getmany(timeout_ms=timeout_ms))
        return [
            suite.Record(r.partition, r.key, r.value, list(r.headers), r.timestamp, r.offset)
            for batch in batches.values()
            for r in batch
        ]

    def assignment(self):
        return {tp.partition for tp in self.inner.assignment()}

    def commit(self):
        try:
            wait(self.inner.commit())
            return True
        except (errors.CommitFailedError, errors.IllegalStateError):
            return False

    def close(self):
        wait(self.inner.stop())


class Client(suite.Client):
    family = "python-aiokafka"
    group_protocols = ("classic",)
    groups_deleted = False
    null_key_with_null_value = False
    log_dirs_described = False

    def __init__(self, bootstrap):
        super().__init__(bootstrap)

        async def start():
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            plain = AIOKafkaClient(bootstrap_servers=bootstrap)
            await plain.bootstrap()
            offsets = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            await offsets.start()
            return admin, plain, offsets

        self.admin, self.plain, self.offsets = wait(start())

    def producer(self, acks="all", codec="none", idempotent=False, linger_ms=0, batch_bytes=16384):
        return Producer(self.bootstrap, acks, codec, idempotent, linger_ms, batch_bytes)

    def consumer(self, topic, partitions, reset="none", start=None, isolation="read_uncommitted"):
        return Consumer(self.bootstrap, topic, partitions, reset, start, isolation)

    def transactor(self, name, timeout_ms=60_000):
        return Transactor(self.bootstrap, name, timeout_ms)

    def create_topic(self, topic, partitions, configs):
        wanted = NewTopic(topic, partitions, 1, topic_configs=configs)
        [(_, code, *_)] = wait(self.admin.create_topics([wanted])).topic_errors
        if code == errors.TopicAlreadyExistsError.errno:
            raise suite.TopicExists(topic)
        check(code)

    def delete_topic(self, topic):
        [(_, code, *_)] = wait(self.admin.delete_topics([topic])).topic_error_codes
        if code == errors.UnknownTopicOrPartitionError.errno:
            raise suite.UnknownTopic(topic)
        check(code)

    def partitions(self, topic):
        # The admin client's own call always asks for auto creation.
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        answer = wait(self.plain.send(self.plain.get_random_node(), request)).to_object()
        [found] = answer["topics"]
        if found["error_code"] == errors.UnknownTopicOrPartitionError.errno:
            raise suite.UnknownTopic(topic)
        return {p["partition"]: (p["leader"], p["replicas"], p["isr"]) for p in found["partitions"]}

    def bounds(self, topic, partitions):
        asked = [TopicPartition(topic, partition) for partition in partitions]
        starts = wait(self.offsets.beginning_offsets(asked))
        ends = wait(self.offsets.end_offsets(asked))
        return {tp.partition: (starts[tp], ends[tp]) for tp in asked}

    def topics(self):
        return wait(self.admin.list_topics())

    def cluster(self):
        found = wait(self.admin.describe_cluster())
        nodes = [broker["node_id"] for broker in found["brokers"]]
        return found["cluster_id"], nodes, found["controller_id"]

    def config(self, topic, key):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: None})
        [answer] = wait(self.admin.describe_configs([resource]))
        [entry] = answer.to_object()["resources"][0]["config_entries"]
        return entry["config_value"], entry["config_source"] == DYNAMIC_TOPIC_CONFIG

    def set_config(self, topic, key, value):
        # Replaces the topic's whole set, which holds nothing else here.
        configs = {} if value is None else {key: value}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        [answer] = wait(self.admin.alter_configs([resource]))
        check(answer.to_object()["resources"][0]["error_code"])

    def create_partitions(self, topic, total):
        wait(self.admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic, partition, before):
        tp = TopicPartition(topic, partition)
        return wait(self.admin.delete_records({tp: RecordsToDelete(before)}))[tp]

    def member(self, topic, group, protocol, instance=None):
        return Member(self.bootstrap, topic, group, protocol, instance)

    def committed(self, group, topic):
        found = wait(self.admin.list_consumer_group_offsets(group))
        return {tp.partition: at.offset for tp, at in found.items() if tp.topic == topic}

    def groups(self):
        return {group[0] for group in wait(self.admin.list_consumer_groups())}

    def describe_group(self, group):
        [answer] = wait(self.admin.describe_consumer_groups([group]))
        [found] = answer.to_object()["groups"]
        return found["state"], len(found["members"])

    def close(self):
        wait(self.offsets.stop())
        wait(self.plain.close())
        wait(self.admin.close())


def check(code):
    if code:
        raise errors.for_code(code)


if __name__ == "__main__":
    main(Client)
