package corelane.clients;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Scenarios about transactions. */
final class Transacting {
    private static final int PARTITIONS = 4;

    private Transacting() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("txn-commit-abort", Transacting::commitAndAbort);
        scenarios.put("txn-fencing", Transacting::fencing);
        scenarios.put("txn-consume-transform", kit -> {
            consumeTransform(kit, Grouping.protocol("classic"));
            consumeTransform(kit, Grouping.protocol("consumer"));
            stable(kit);
        });
        scenarios.put("txn-timeout", Transacting::timeout);
        scenarios.put("txn-broker-kill", Pipeline::underKills);
        scenarios.put("txn-client-kill", Pipeline::killed);
        scenarios.put("streams-word-count", WordCount::run);
        scenarios.put("txn-old-protocol", Transacting::oldProtocol);
    }

    static KafkaProducer<byte[], byte[]> producer(Kit kit, String id, Object... settings) {
        var producer = kit.producer(Grouping.with(settings, "transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    /** Records `from` to `to`, evenly over the partitions, acknowledged. */
    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int from, int to) throws Exception {
        var records = IntStream.range(from, to).mapToObj(i -> Kit.record(topic, i % PARTITIONS, i)).toList();
        Kit.send(producer, records);
    }

    /** The values in the topic, sorted, up to the end of what this isolation level may see. */
    static List<String> values(Kit kit, String topic, int partitions, String isolation) throws Exception {
        List<String> values = new ArrayList<>();
        read(kit, topic, partitions, isolation, record -> values.add(new String(record.value())));
        values.sort(null);
        return values;
    }

    /** Reads the topic up to the end of what this isolation level may see. */
    static void read(Kit kit, String topic, int partitions, String isolation,
            Consumer<ConsumerRecord<byte[], byte[]>> each) throws Exception {
        try (var consumer = kit.passingConsumer("isolation.level", isolation)) {
            var all = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            var ends = consumer.endOffsets(all);
            // Positions go past markers and aborted records, so they tell where the end is.
            Kit.await("the end of " + topic, () -> {
                consumer.poll(Kit.POLL).forEach(each);
                return all.stream().allMatch(p -> consumer.position(p) >= ends.get(p)) ? true : null;
            });
        }
    }

    private static List<String> expected(int... bounds) {
        List<String> values = new ArrayList<>();
        for (int i = 0; i < bounds.length; i += 2) {
            IntStream.range(bounds[i], bounds[i + 1]).mapToObj(n -> new String(Kit.value(n))).forEach(values::add);
        }
        values.sort(null);
        return values;
    }

    private static void check(Kit kit, String topic, List<String> committed, List<String> all) throws Exception {
        committed(kit, topic, PARTITIONS, committed);
        same("all", all, values(kit, topic, PARTITIONS, "read_uncommitted"));
    }

    /** The markers may be written a moment after a commit is acknowledged; never may there be too much. */
    static void committed(Kit kit, String topic, int partitions, List<String> expected) throws Exception {
        Kit.await("what is committed in " + topic, () -> {
            var seen = values(kit, topic, partitions, "read_committed");
            if (seen.size() < expected.size()) {
                List<String> more = new ArrayList<>(seen);
                expected.forEach(more::remove);
                Check.equal("too much", List.of(), more);
                return null;
            }
            same("committed", expected, seen);
            return true;
        });
    }

    /** Compares sorted values, and says what is missing and what is too much. */
    static void same(String what, List<String> expected, List<String> actual) {
        if (!expected.equals(actual)) {
            List<String> missing = new ArrayList<>(expected);
            actual.forEach(missing::remove);
            List<String> more = new ArrayList<>(actual);
            expected.forEach(more::remove);
            throw new AssertionError(what + ": missing " + missing + ", too much " + more);
        }
    }

    private static void commitAndAbort(Kit kit) throws Exception {
        String topic = kit.newTopic(PARTITIONS);
        var producer = producer(kit, topic);
        producer.beginTransaction();
        send(producer, topic, 0, 100);
        check(kit, topic, expected(), expected(0, 100));
        producer.commitTransaction();
        check(kit, topic, expected(0, 100), expected(0, 100));
        producer.beginTransaction();
        send(producer, topic, 100, 200);
        producer.abortTransaction();
        check(kit, topic, expected(0, 100), expected(0, 200));
        // Aborted before anything is sent, committed without a record, and many in a row.
        producer.beginTransaction();
        producer.abortTransaction();
        producer.beginTransaction();
        producer.commitTransaction();
        List<String> committed = expected(0, 100);
        for (int round = 0; round < 20; round++) {
            int first = 200 + 8 * round;
            producer.beginTransaction();
            send(producer, topic, first, first + 8);
            if (round % 3 == 2) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
                committed.addAll(expected(first, first + 8));
            }
        }
        committed.sort(null);
        check(kit, topic, committed, expected(0, 360));
        // A second producer's open transaction holds back what a first one commits behind it.
        var other = producer(kit, topic + "-other");
        other.beginTransaction();
        send(other, topic, 360, 364);
        producer.beginTransaction();
        send(producer, topic, 364, 368);
        producer.commitTransaction();
        check(kit, topic, committed, expected(0, 368));
        other.abortTransaction();
        committed.addAll(expected(364, 368));
        committed.sort(null);
        check(kit, topic, committed, expected(0, 368));
    }

    /** A producer whose id another one has taken. */
    private static void fencing(Kit kit) throws Exception {
        String topic = kit.newTopic(PARTITIONS);
        var zombie = producer(kit, topic);
        zombie.beginTransaction();
        send(zombie, topic, 0, 40);
        zombie.commitTransaction();
        zombie.beginTransaction();
        send(zombie, topic, 40, 80);
        // Its open transaction is aborted by the newcomer.
        var heir = producer(kit, topic);
        check(kit, topic, expected(0, 40), expected(0, 80));
        fenced("a send of the zombie", () -> {
            send(zombie, topic, 80, 120);
            return null;
        });
        fenced("a commit of the zombie", () -> {
            zombie.commitTransaction();
            return null;
        });
        heir.beginTransaction();
        send(heir, topic, 120, 160);
        fenced("a new transaction of the zombie", () -> {
            zombie.beginTransaction();
            send(zombie, topic, 160, 200);
            zombie.commitTransaction();
            return null;
        });
        heir.commitTransaction();
        committed(kit, topic, PARTITIONS, expected(0, 40, 120, 160));
        // One that is fenced between transactions learns it when it begins the next.
        var third = producer(kit, topic);
        fenced("the next transaction", () -> {
            heir.beginTransaction();
            send(heir, topic, 200, 240);
            heir.commitTransaction();
            return null;
        });
        third.beginTransaction();
        send(third, topic, 240, 280);
        third.commitTransaction();
        committed(kit, topic, PARTITIONS, expected(0, 40, 120, 160, 240, 280));
    }

    /** InvalidTxnState is what one with the epoch before the coordinator's own abort gets for its commit. */
    private static void fenced(String what, java.util.concurrent.Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (ExecutionException | KafkaException e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof ProducerFencedException
                        || cause instanceof InvalidProducerEpochException
                        || cause instanceof InvalidTxnStateException) {
                    return;
                }
            }
            throw new AssertionError(what + ": expected to be fenced, got " + e, e);
        }
        throw new AssertionError(what + ": expected to be fenced, got no error");
    }

    private static void consumeTransform(Kit kit, Object[] protocol) throws Exception {
        var pipeline = Pipeline.filled(kit, 600);
        for (int life = 0; life < 2; life++) {
            // Every third round is aborted; the second life goes on where the first was.
            pipeline.run(protocol, 300 * (life + 1), round -> round % 3 == 1);
        }
        pipeline.check();
        Check.that("some rounds were aborted", pipeline.aborted >= 4);
        int written = values(kit, pipeline.output, Pipeline.PARTITIONS, "read_uncommitted").size();
        Check.that("aborted records are in the log: " + written, written > 600);
    }

    /** Offsets of an open transaction are pending: who wants stable ones waits, others see the old. */
    private static void stable(Kit kit) throws Exception {
        String topic = kit.newTopic(1);
        var partition = new TopicPartition(topic, 0);
        var producer = producer(kit, topic);
        for (boolean commit : List.of(true, false, true)) {
            Long before = committed(kit, topic, partition, false);
            long next = before == null ? 10 : before + 10;
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(next, "m-" + next)), new ConsumerGroupMetadata(topic));
            Check.equal("unstable", before, committed(kit, topic, partition, false));
            try (var consumer = kit.passingConsumer("group.id", topic, "isolation.level", "read_committed")) {
                Check.fails(org.apache.kafka.common.errors.TimeoutException.class, "stable offsets while some are pending",
                        () -> consumer.committed(Set.of(partition), Duration.ofSeconds(1)));
            }
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            // The admin client leaves out what is not stable yet.
            Long after = commit ? (Long) next : before;
            Kit.await("stable " + after, () -> Objects.equals(after, committed(kit, topic, partition, true)) ? true : null);
        }
    }

    private static Long committed(Kit kit, String group, TopicPartition partition, boolean stable) throws Exception {
        var options = new ListConsumerGroupOffsetsOptions().requireStable(stable);
        var found = kit.admin.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata().get().get(partition);
        if (found != null) {
            Check.equal("metadata", "m-" + found.offset(), found.metadata());
        }
        return found == null ? null : found.offset();
    }

    /** A producer that stops in the middle is aborted by the coordinator. */
    private static void timeout(Kit kit) throws Exception {
        String topic = kit.newTopic(PARTITIONS);
        var silent = producer(kit, topic, "transaction.timeout.ms", 2_000);
        silent.beginTransaction();
        send(silent, topic, 0, 40);
        // What comes after it waits for it.
        Kit.send(kit.producer(), IntStream.range(40, 44).mapToObj(i -> Kit.record(topic, i % PARTITIONS, i)).toList());
        check(kit, topic, expected(40, 44), expected(0, 44));
        fenced("a commit of what was aborted", () -> {
            silent.commitTransaction();
            return null;
        });
        var next = producer(kit, topic);
        next.beginTransaction();
        send(next, topic, 44, 48);
        next.commitTransaction();
        check(kit, topic, expected(40, 48), expected(0, 48));
    }

    /** With the feature lowered, clients speak the protocol from before KIP-890. */
    private static void oldProtocol(Kit kit) throws Exception {
        setVersion(kit, (short) 1, UpgradeType.SAFE_DOWNGRADE);
        try {
            Main.Scenario[] scenarios = {Transacting::commitAndAbort, Transacting::fencing, Transacting::stable,
                inner -> consumeTransform(inner, Grouping.protocol("classic"))};
            for (var scenario : scenarios) {
                scenario.run(kit);
            }
            // Producers of the old protocol live on when the feature is raised.
            String topic = kit.newTopic(PARTITIONS);
            var producer = producer(kit, topic);
            producer.beginTransaction();
            send(producer, topic, 0, 40);
            setVersion(kit, (short) 2, UpgradeType.UPGRADE);
            send(producer, topic, 40, 80);
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, topic, 80, 120);
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, 120, 160);
            producer.commitTransaction();
            check(kit, topic, expected(0, 80, 120, 160), expected(0, 160));
        } finally {
            setVersion(kit, (short) 2, UpgradeType.UPGRADE);
        }
    }

    private static void setVersion(Kit kit, short level, UpgradeType type) throws Exception {
        var before = kit.admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        if (before.maxVersionLevel() == level) {
            return;
        }
        kit.admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate(level, type)), new UpdateFeaturesOptions())
                .all().get();
        Kit.await("transaction.version " + level, () -> {
            var now = kit.admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
            return now.maxVersionLevel() == level ? true : null;
        });
    }
}
