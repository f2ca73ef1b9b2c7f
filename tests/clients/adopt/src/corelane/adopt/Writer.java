package corelane.adopt;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes the topics. All content comes from one seed, so that every run writes the same. */
final class Writer {
    static final String CODECS = "adopt-codecs";
    static final String TRANSACTIONS = "adopt-transactions";
    static final String COMPACTED = "adopt-compacted";
    private static final long START_MS = 1_700_000_000_000L;
    private static final Map<String, String> SMALL =
            Map.of("segment.bytes", "1048576", "index.interval.bytes", "1024", "retention.ms", "-1");

    private final String bootstrap;
    private final Random random = new Random(42);

    Writer(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void everything() throws Exception {
        try (Admin admin = admin()) {
            topic(admin, CODECS, 2, SMALL);
            topic(admin, TRANSACTIONS, 1, SMALL);
            var compacted = new HashMap<>(SMALL);
            compacted.put("cleanup.policy", "compact");
            compacted.put("min.cleanable.dirty.ratio", "0.01");
            compacted.put("delete.retention.ms", "1");
            topic(admin, COMPACTED, 1, compacted);
            compacted(admin);
            codecs(CODECS, 2);
            transactions(admin);
        }
    }

    void plain() throws Exception {
        try (Admin admin = admin()) {
            topic(admin, CODECS, 2, SMALL);
        }
        codecs(CODECS, 2);
    }

    void create(List<String> topics) throws Exception {
        try (Admin admin = admin()) {
            for (String topic : topics) {
                int colon = topic.lastIndexOf(':');
                topic(admin, topic.substring(0, colon), Integer.parseInt(topic.substring(colon + 1)), SMALL);
            }
        }
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private static void topic(Admin admin, String name, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get(30, TimeUnit.SECONDS);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        var all = new HashMap<String, Object>(Map.of(
                "bootstrap.servers", bootstrap, "acks", "all", "batch.size", 8000, "linger.ms", 5, "transaction.timeout.ms", 900_000));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Each codec, with headers, nulls, empty values, and timestamps that go back now and then. */
    private void codecs(String topic, int partitions) throws Exception {
        long n = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd", "none")) {
            try (var producer = producer(Map.of("compression.type", codec))) {
                for (int i = 0; i < 1500; i++, n++) {
                    long time = START_MS + n * 10 - (n % 97 == 0 ? 50_000 : 0);
                    byte[] key = i % 5 == 0 ? null : text("key-" + i % 50);
                    byte[] value = i % 11 == 0 ? null : i % 13 == 0 ? new byte[0] : noise(100 + random.nextInt(600));
                    var record = new ProducerRecord<>(topic, (int) (n % partitions), time, key, value);
                    for (int h = 0; h < i % 4; h++) {
                        record.headers().add("header-" + h, h == 2 ? null : text("of " + n));
                    }
                    producer.send(record);
                }
                producer.flush();
            }
        }
    }

    private byte[] noise(int size) {
        byte[] bytes = new byte[size];
        random.nextBytes(bytes);
        // Half of it compresses.
        java.util.Arrays.fill(bytes, 0, size / 2, (byte) 'x');
        return bytes;
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Rounds of the same keys until the cleaner has left holes. */
    private void compacted(Admin admin) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int round = 0; round < 8; round++) {
                for (int i = 0; i < 500; i++) {
                    byte[] value = i % 10 == 3 && round > 4 ? null : noise(900);
                    producer.send(new ProducerRecord<>(COMPACTED, 0, START_MS + round * 1000 + i, text("key-" + i), value));
                }
                producer.flush();
            }
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        var reader = new Reader(bootstrap);
        while (reader.count(COMPACTED) > 3000) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the cleaner did nothing");
            }
            Thread.sleep(500);
        }
    }

    /** Transactions that are committed and aborted, interleaved over segments; the last stays open. */
    private void transactions(Admin admin) throws Exception {
        var first = transactional("first");
        var second = transactional("second");
        for (int round = 0; round < 60; round++) {
            first.beginTransaction();
            second.beginTransaction();
            for (int i = 0; i < 20; i++) {
                first.send(record(round, i, "first"));
                if (i % 2 == 0) {
                    second.send(record(round, i, "second"));
                }
            }
            first.flush();
            second.flush();
            if (round % 3 == 0) {
                first.abortTransaction();
            } else {
                first.commitTransaction();
            }
            if (round % 4 == 1) {
                second.abortTransaction();
            } else {
                second.commitTransaction();
            }
        }
        try (var plain = producer(Map.of())) {
            plain.send(record(1000, 1, "plain")).get();
        }
        awaitStable(admin);
        first.beginTransaction();
        first.send(record(2000, 1, "open"));
        first.flush();
        try (var plain = producer(Map.of())) {
            plain.send(record(1000, 2, "behind the open one")).get();
        }
    }

    private KafkaProducer<byte[], byte[]> transactional(String id) {
        var producer = producer(Map.of("transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    private ProducerRecord<byte[], byte[]> record(int round, int i, String who) {
        return new ProducerRecord<>(TRANSACTIONS, 0, START_MS + round * 100L + i, text(who + "-" + i), noise(1000));
    }

    /** Markers are written behind the answers. */
    private void awaitStable(Admin admin) throws Exception {
        var partition = new TopicPartition(TRANSACTIONS, 0);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (end(admin, partition, IsolationLevel.READ_COMMITTED) != end(admin, partition, IsolationLevel.READ_UNCOMMITTED)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("transactions do not end");
            }
            Thread.sleep(100);
        }
    }

    private static long end(Admin admin, TopicPartition partition, IsolationLevel level) throws Exception {
        return admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(level))
                .partitionResult(partition).get(30, TimeUnit.SECONDS).offset();
    }
}
