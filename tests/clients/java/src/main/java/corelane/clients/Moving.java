package corelane.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.LogDirNotFoundException;

/** Partitions on their way from one data directory to another. */
final class Moving {
    private static final int PARTITIONS = 2;
    /** In each partition before the first move: several segments of 1 MiB. */
    private static final int RECORDS_BEFORE = 6_000;
    private static final int VALUE_BYTES = 900;
    /** Sent between two moves at least, so that every move has been written to. */
    private static final int RECORDS_BETWEEN = 200;
    private static final int MOVES = 4;
    private static final String THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second";
    /** Bytes in a second at which a move takes longer than it takes to look at it. */
    private static final int SLOW = 100_000;
    /** Records to each partition on their way to the broker. */
    private static final int UNACKNOWLEDGED = 50;

    private Moving() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("move-between-dirs", Moving::betweenDirs);
    }

    private static void betweenDirs(Kit kit) throws Exception {
        String topic = kit.newTopic(PARTITIONS, Map.of("segment.bytes", "1048576"));
        var replicas = replicasOf(kit, topic);
        for (var replica : replicas) {
            var dirs = describe(kit, replica.brokerId());
            Check.that("two data directories: " + dirs.keySet(), dirs.size() >= 2);
            Check.fails(LogDirNotFoundException.class, "no such directory",
                    () -> kit.admin.alterReplicaLogDirs(Map.of(replica, "/no/such/directory")).all().get());
        }
        var writer = new Writer(kit.producer("linger.ms", 2), topic);
        writer.send(RECORDS_BEFORE);
        var reader = new Reader(kit.consumer("fetch.max.wait.ms", 50), topic);
        var threads = Executors.newFixedThreadPool(2);
        try {
            Future<Integer> written = threads.submit(writer);
            Future<Integer> read = threads.submit(reader);
            for (int move = 0; move < MOVES; move++) {
                move(kit, replicas);
                long from = end(kit, topic);
                Kit.await("records behind the move", () -> {
                    failedEarly(written, read);
                    return end(kit, topic) >= from + RECORDS_BETWEEN ? true : null;
                });
            }
            giveUp(kit, replicas);
            failedEarly(written, read);
            writer.enough.set(true);
            int count = written.get();
            reader.until(count);
            Check.equal("records that the reader had, each once and in order", count * PARTITIONS, read.get());
            // All over again, from what is on disk now.
            var again = new Reader(kit.consumer(), topic);
            again.until(count);
            Check.equal("records read again", count * PARTITIONS, again.call());
        } finally {
            threads.shutdownNow();
        }
    }

    /** Every partition to the other directory; returns when each is there, and only there. */
    private static void move(Kit kit, List<TopicPartitionReplica> replicas) throws Exception {
        var wanted = elsewhere(kit, homes(kit, replicas));
        kit.admin.alterReplicaLogDirs(wanted).all().get();
        for (var replica : replicas) {
            String target = wanted.get(replica);
            Kit.await("the move to " + target, () -> {
                var now = whereabouts(kit, replica);
                if (now.getFutureReplicaLogDir() != null) {
                    Check.equal("where it goes", target, now.getFutureReplicaLogDir());
                    Check.that("lag of the copy: " + now.getFutureReplicaOffsetLag(), now.getFutureReplicaOffsetLag() >= 0);
                    return null;
                }
                return target.equals(now.getCurrentReplicaLogDir()) ? true : null;
            });
            var partition = new TopicPartition(replica.topic(), replica.partition());
            describe(kit, replica.brokerId()).forEach((dir, description) -> {
                var here = description.replicaInfos().get(partition);
                Check.equal("the partition is in " + dir, dir.equals(target), here != null);
                Check.that("the partition is no copy", here == null || !here.isFuture());
                Check.that("it has its size", here == null || here.size() > (long) RECORDS_BEFORE * VALUE_BYTES);
            });
        }
        // Where it is already: done at once.
        kit.admin.alterReplicaLogDirs(wanted).all().get();
        for (var replica : replicas) {
            Check.equal("no new move", null, whereabouts(kit, replica).getFutureReplicaLogDir());
        }
    }

    /** A slow move is seen on its way, and then called off: the partitions stay where they are. */
    private static void giveUp(Kit kit, List<TopicPartitionReplica> replicas) throws Exception {
        var homes = homes(kit, replicas);
        var others = elsewhere(kit, homes);
        throttle(kit, replicas, new AlterConfigOp(new ConfigEntry(THROTTLE, "" + SLOW), AlterConfigOp.OpType.SET));
        kit.admin.alterReplicaLogDirs(others).all().get();
        for (var replica : replicas) {
            Kit.await("a move that goes on", () -> {
                var now = whereabouts(kit, replica);
                return others.get(replica).equals(now.getFutureReplicaLogDir()) && now.getFutureReplicaOffsetLag() > 0
                        ? true : null;
            });
            var partition = new TopicPartition(replica.topic(), replica.partition());
            describe(kit, replica.brokerId()).forEach((dir, description) -> Check.equal("a copy in " + dir,
                    !dir.equals(homes.get(replica)), description.replicaInfos().get(partition).isFuture()));
        }
        kit.admin.alterReplicaLogDirs(homes).all().get();
        throttle(kit, replicas, new AlterConfigOp(new ConfigEntry(THROTTLE, null), AlterConfigOp.OpType.DELETE));
        for (var replica : replicas) {
            Kit.await("the move to end", () -> whereabouts(kit, replica).getFutureReplicaLogDir() == null ? true : null);
            Check.equal("where it stays", homes.get(replica), whereabouts(kit, replica).getCurrentReplicaLogDir());
        }
    }

    private static void throttle(Kit kit, List<TopicPartitionReplica> replicas, AlterConfigOp change) throws Exception {
        for (var replica : replicas) {
            var broker = new ConfigResource(ConfigResource.Type.BROKER, "" + replica.brokerId());
            kit.admin.incrementalAlterConfigs(Map.of(broker, List.of(change))).all().get();
        }
    }

    private static Map<TopicPartitionReplica, String> homes(Kit kit, List<TopicPartitionReplica> replicas)
            throws Exception {
        var homes = new HashMap<TopicPartitionReplica, String>();
        for (var replica : replicas) {
            homes.put(replica, whereabouts(kit, replica).getCurrentReplicaLogDir());
        }
        return homes;
    }

    /** For each partition a directory that is not the one given. */
    private static Map<TopicPartitionReplica, String> elsewhere(Kit kit, Map<TopicPartitionReplica, String> homes)
            throws Exception {
        var others = new HashMap<TopicPartitionReplica, String>();
        for (var home : homes.entrySet()) {
            others.put(home.getKey(), describe(kit, home.getKey().brokerId()).keySet().stream()
                    .filter(dir -> !dir.equals(home.getValue())).sorted().findFirst().orElseThrow());
        }
        return others;
    }

    /** Sends to all partitions alike until it is enough; the value says which record it is. */
    private static final class Writer implements Callable<Integer> {
        final AtomicBoolean enough = new AtomicBoolean();
        private final KafkaProducer<byte[], byte[]> producer;
        private final String topic;
        private int next;

        Writer(KafkaProducer<byte[], byte[]> producer, String topic) {
            this.producer = producer;
            this.topic = topic;
        }

        void send(int count) throws Exception {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = next; i < next + count; i++) {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, partition, Kit.key(i), value(i))));
                }
            }
            for (int i = 0; i < sent.size(); i++) {
                Check.equal("acknowledged offset", (long) next + i / PARTITIONS, sent.get(i).get().offset());
            }
            next += count;
        }

        @Override
        public Integer call() throws Exception {
            while (!enough.get()) {
                send(UNACKNOWLEDGED);
                Thread.sleep(10);
            }
            return next;
        }
    }

    /** Reads all partitions from the start until it has what there is to be; checks every record. */
    private static final class Reader implements Callable<Integer> {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private volatile int records = Integer.MAX_VALUE;

        Reader(KafkaConsumer<byte[], byte[]> consumer, String topic) {
            this.consumer = consumer;
            var all = IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
        }

        /** How many records there are in each partition. */
        void until(int count) {
            records = count;
        }

        @Override
        public Integer call() {
            int[] next = new int[PARTITIONS];
            int read = 0;
            long patience = Kit.PATIENCE.toNanos();
            long silentSince = System.nanoTime();
            while (read / PARTITIONS < records || IntStream.of(next).anyMatch(n -> n < records)) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Kit.POLL)) {
                    int expected = next[record.partition()]++;
                    Check.equal("next offset of partition " + record.partition(), (long) expected, record.offset());
                    Check.bytes("key at " + expected, Kit.key(expected), record.key());
                    Check.bytes("value at " + expected, value(expected), record.value());
                    read++;
                    silentSince = System.nanoTime();
                }
                Check.that("no record for long, after " + read, System.nanoTime() - silentSince < patience);
            }
            return read;
        }
    }

    private static byte[] value(int index) {
        byte[] value = new byte[VALUE_BYTES];
        new Random(index).nextBytes(value);
        return value;
    }

    /** A thread that ended before its time has failed. */
    private static void failedEarly(Future<?>... threads) throws Exception {
        for (var thread : threads) {
            if (thread.isDone()) {
                try {
                    thread.get();
                } catch (ExecutionException e) {
                    throw new AssertionError("during the move: " + e.getCause(), e.getCause());
                }
                throw new AssertionError("a thread ended during the move");
            }
        }
    }

    private static List<TopicPartitionReplica> replicasOf(Kit kit, String topic) throws Exception {
        return kit.awaitLeaders(topic, PARTITIONS).partitions().stream()
                .map(p -> new TopicPartitionReplica(topic, p.partition(), p.leader().id()))
                .toList();
    }

    private static ReplicaLogDirInfo whereabouts(Kit kit, TopicPartitionReplica replica) throws Exception {
        return kit.admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
    }

    private static Map<String, LogDirDescription> describe(Kit kit, int broker) throws Exception {
        var dirs = kit.admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
        dirs.forEach((dir, description) -> Check.equal("error of " + dir, null, description.error()));
        return dirs;
    }

    /** The end offset of the partition that has least. */
    private static long end(Kit kit, String topic) throws Exception {
        var asked = new HashMap<TopicPartition, OffsetSpec>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            asked.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        }
        return kit.admin.listOffsets(asked).all().get().values().stream().mapToLong(info -> info.offset()).min().orElseThrow();
    }
}
