"""kafka-python behind the Python suite's interface."""

import client as suite
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata
from runner import main

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)


class Producer(suite.Producer):
    def __init__(self, bootstrap, acks, codec, idempotent, linger_ms, batch_bytes):
        self.inner = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks={"0": 0, "1": 1, "all": "all"}[acks],
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            batch_size=batch_bytes,
            allow_auto_create_topics=False,
        )

    def send(self, topic, record):
        future = self.inner.send(
            topic,
            key=record.key,
            value=record.value,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp,
        )

        def wait():
            try:
                return future.get(timeout=30).offset
            except errors.MessageSizeTooLargeError as error:
                raise suite.TooLarge(error) from error

        return wait

    def flush(self):
        self.inner.flush(timeout=30)

    def close(self):
        self.inner.close(timeout=2)


class Transactor(suite.Transactor):
    def __init__(self, bootstrap, name, timeout_ms):
        self.inner = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        self.call(self.inner.init_transactions)

    def call(self, function, *arguments, **named):
        try:
            return function(*arguments, **named)
        except FENCED as error:
            raise suite.Fenced(error) from error
        except errors.KafkaError as error:
            # Once it has failed, the library tells why in words only.
            again = any(known.__name__ in str(error) for known in FENCED)
            raise (suite.Fenced if again else suite.MustAbort)(error) from error

    def begin(self):
        self.call(self.inner.begin_transaction)

    def send(self, topic, record):
        future = self.call(
            self.inner.send,
            topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
        )
        return lambda: self.call(future.get, timeout=30)

    def flush(self):
        self.call(self.inner.flush, timeout=30)

    def send_offsets(self, member, topic, offsets):
        asked = {TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in offsets.items()}
        group = member.inner.group_metadata()
        self.call(self.inner.send_offsets_to_transaction, asked, group)

    def commit(self):
        self.call(self.inner.commit_transaction)

    def abort(self):
        self.call(self.inner.abort_transaction)

    def close(self):
        self.inner.close(timeout=2)


class Consumer(suite.Consumer):
    def __init__(self, bootstrap, topic, partitions, reset, start, isolation):
        self.topic = topic
        self.inner = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            isolation_level=isolation,
            fetch_max_wait_ms=500,
            fetch_min_bytes=1,
            allow_auto_create_topics=False,
        )
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        self.inner.assign(assigned)
        if start is not None:
            for partition in assigned:
                self.inner.seek(partition, start)

    def poll(self, timeout_ms):
        try:
            batches = self.inner.poll(timeout_ms=timeout_ms)
        except errors.OffsetOutOfRangeError as error:
            raise suite.OutOfRange(error) from error
        return [
            suite.Record(r.partition, r.key, r.value, list(r.headers), r.timestamp, r.offset)
            for batch in batches.values()
            for r in batch
        ]

    def position(self, partition):
        return self.inner.position(TopicPartition(self.topic, partition))

    def seek(self, partition, offset):
        self.inner.seek(TopicPartition(self.topic, partition), offset)

    def bounds(self, partition):
        tp = TopicPartition(self.topic, partition)
        return self.inner.beginning_offsets([tp])[tp], self.inner.end_offsets([tp])[tp]

    def offset_at(self, partition, timestamp):
        tp = TopicPartition(self.topic, partition)
        found = self.inner.offsets_for_times({tp: timestamp})[tp]
        return None if found is None else found.offset

    def fetches(self):
        manager = self.inner.metrics()["consumer-fetch-manager-metrics"]
        # A rate over the 30 s window is the only count there is.
        return round(manager["fetch-rate"] * 30) or None

    def close(self):
        self.inner.close()


class Member(suite.Member):
    def __init__(self, bootstrap, topic, group, protocol, instance):
        self.topic = topic
        assignor = {"classic": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
        self.inner = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            partition_assignment_strategy=[assignor[protocol]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=suite.SESSION_MS,
        )

    def poll(self, timeout_ms):
        batches = self.inner.poll(timeout_ms=timeout_ms)
        return [
            suite.Record(r.partition, r.key, r.value, list(r.headers), r.timestamp, r.offset)
            for batch in batches.values()
            for r in batch
        ]

    def assignment(self):
        return {tp.partition for tp in self.inner.assignment()}

    def commit(self):
        self.inner.commit()
        return True

    def close(self):
        self.inner.close()


class Client(suite.Client):
    family = "python-kafka"
    null_header = False
    null_key_with_null_value = False

    def __init__(self, bootstrap):
        super().__init__(bootstrap)
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def producer(self, acks="all", codec="none", idempotent=False, linger_ms=0, batch_bytes=16384):
        return Producer(self.bootstrap, acks, codec, idempotent, linger_ms, batch_bytes)

    def consumer(self, topic, partitions, reset="none", start=None, isolation="read_uncommitted"):
        return Consumer(self.bootstrap, topic, partitions, reset, start, isolation)

    def transactor(self, name, timeout_ms=60_000):
        return Transactor(self.bootstrap, name, timeout_ms)

    def create_topic(self, topic, partitions, configs):
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        try:
            self.admin.create_topics({topic: wanted})
        except errors.TopicAlreadyExistsError as error:
            raise suite.TopicExists(error) from error

    def delete_topic(self, topic):
        try:
            self.admin.delete_topics([topic])
        except errors.UnknownTopicOrPartitionError as error:
            raise suite.UnknownTopic(error) from error

    def partitions(self, topic):
        [found] = self.admin.describe_topics([topic])
        if found["error_code"] == errors.UnknownTopicOrPartitionError.errno:
            raise suite.UnknownTopic(topic)
        return {
            p["partition_index"]: (p["leader_id"], p["replica_nodes"], p["isr_nodes"])
            for p in found["partitions"]
        }

    def bounds(self, topic, partitions):
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            starts = self.admin.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.EARLIEST))
            ends = self.admin.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.LATEST))
        except errors.UnknownTopicOrPartitionError:
            return None
        return {tp.partition: (starts[tp].offset, ends[tp].offset) for tp in asked}

    def topics(self):
        return self.admin.list_topics()

    def cluster(self):
        found = self.admin.describe_cluster()
        nodes = [broker["broker_id"] for broker in found["brokers"]]
        return found["cluster_id"], nodes, found["controller_id"]

    def config(self, topic, key):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: None})
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][topic][key]
        return found["value"], found["config_source"] == "DYNAMIC_TOPIC_CONFIG"

    def set_config(self, topic, key, value):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        if value is None:
            result = self.admin.reset_configs([resource])
        else:
            result = self.admin.alter_configs([resource])
        if result["topic"][topic] != "OK":
            raise AssertionError(f"alter configs: {result}")

    def create_partitions(self, topic, total):
        self.admin.create_partitions({topic: total})

    def delete_records(self, topic, partition, before):
        tp = TopicPartition(topic, partition)
        return self.admin.delete_records({tp: before})[tp]["low_watermark"]

    def member(self, topic, group, protocol, instance=None):
        return Member(self.bootstrap, topic, group, protocol, instance)

    def committed(self, group, topic):
        found = self.admin.list_group_offsets({group: None})[group]
        return {tp.partition: at.offset for tp, at in found.items() if tp.topic == topic}

    def groups(self):
        return {group["group_id"] for group in self.admin.list_groups()}

    def describe_group(self, group):
        found = self.admin.describe_groups([group])[group]
        return found["group_state"], len(found["members"])

    def delete_group(self, group):
        result = self.admin.delete_groups([group])[group]
        if result == errors.NonEmptyGroupError.__name__:
            raise suite.GroupInUse(group)
        if result != "OK":
            raise AssertionError(f"delete group: {result}")

    def log_dirs(self):
        return {
            (topic["name"], partition["partition_index"]): partition["partition_size"]
            for broker in self.admin.describe_log_dirs()
            for log_dir in broker["log_dirs"]
            for topic in log_dir["topics"]
            for partition in topic["partitions"]
        }

    def close(self):
        self.admin.close()


if __name__ == "__main__":
    main(Client)
