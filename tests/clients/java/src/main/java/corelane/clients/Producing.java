package corelane.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** Scenarios about writing. */
final class Producing {
    private Producing() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("create-topic", Administering::createTopic);
        scenarios.put("produce-sync", Producing::sync);
        scenarios.put("produce-async", Producing::async);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            scenarios.put("codec-" + codec, kit -> codec(kit, codec));
        }
        scenarios.put("acks-0", kit -> acks(kit, "0"));
        scenarios.put("acks-1", kit -> acks(kit, "1"));
        scenarios.put("acks-all", kit -> acks(kit, "all"));
        scenarios.put("idempotent", Producing::idempotent);
        scenarios.put("large-record", Producing::largeRecord);
        scenarios.put("oversize-record", Producing::oversizeRecord);
        scenarios.put("empty-and-null", Producing::emptyAndNull);
        scenarios.put("headers", Producing::headers);
        scenarios.put("many-partitions", Producing::manyPartitions);
    }

    private static void sync(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        var producer = kit.producer();
        var sent = records(topic, 100);
        List<Long> offsets = new ArrayList<>();
        for (var record : sent) {
            offsets.add(producer.send(record).get().offset());
        }
        Check.equal("acknowledged offsets", Check.range(0, 100), offsets);
        Check.same(sent, kit.readBack(topic, 4, 100));
    }

    private static void async(Kit kit) throws Exception {
        int count = 10_000;
        String topic = kit.newTopic(4);
        String filler = "x".repeat(80);
        var sent = IntStream.range(0, count)
                .mapToObj(i -> new ProducerRecord<>(topic, Kit.key(i), Kit.bytes(String.format("value-%06d %s", i, filler))))
                .toList();
        Kit.send(kit.producer(), sent);
        var read = kit.readBack(topic, 4, count);
        var values = new TreeSet<String>();
        long[] next = new long[4];
        for (var record : read) {
            values.add(new String(record.value(), java.nio.charset.StandardCharsets.UTF_8));
            Check.equal("offset in partition " + record.partition(), next[record.partition()]++, record.offset());
            int index = Integer.parseInt(new String(record.value(), 6, 6, java.nio.charset.StandardCharsets.UTF_8));
            Check.bytes("key of value " + index, Kit.key(index), record.key());
            Check.bytes("value " + index, sent.get(index).value(), record.value());
        }
        Check.equal("different values", count, values.size());
        for (int partition = 0; partition < 4; partition++) {
            Check.that("nothing in partition " + partition, next[partition] > 0);
        }
    }

    private static void codec(Kit kit, String codec) throws Exception {
        String topic = kit.newTopic(4);
        var sent = IntStream.range(0, 1_000)
                .mapToObj(i -> new ProducerRecord<>(topic, 0, Kit.key(i), Kit.bytes(String.format("value-%06d ", i).repeat(15))))
                .toList();
        var producer = kit.producer("compression.type", codec, "linger.ms", 20);
        Check.equal("acknowledged offsets", Check.range(0, 1_000), Kit.send(producer, sent));
        Check.same(sent, kit.readBack(topic, 4, 1_000));
        long raw = sent.stream().mapToLong(record -> record.value().length).sum();
        long stored = Administering.sizeOf(kit, topic);
        Check.that(
                "stored " + stored + " bytes of " + raw + " with " + codec,
                codec.equals("none") ? stored >= raw : stored > 0 && stored < raw / 2);
    }

    private static void acks(Kit kit, String acks) throws Exception {
        String topic = kit.newTopic(4);
        var sent = records(topic, 100);
        var offsets = Kit.send(kit.producer("acks", acks, "enable.idempotence", false), sent);
        if (!acks.equals("0")) {
            Check.equal("acknowledged offsets", Check.range(0, 100), offsets);
        }
        Check.same(sent, kit.readBack(topic, 4, 100));
    }

    private static void idempotent(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        var sent = records(topic, 1_000);
        // Small batches, so that there really are several requests in flight.
        var producer = kit.producer(
                "enable.idempotence", true, "acks", "all", "max.in.flight.requests.per.connection", 5,
                "batch.size", 1_000, "linger.ms", 0);
        Check.equal("acknowledged offsets", Check.range(0, 1_000), Kit.send(producer, sent));
        Check.same(sent, kit.readBack(topic, 4, 1_000));
    }

    private static void largeRecord(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        Random random = new Random(42);
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            byte[] value = new byte[900 * 1024];
            random.nextBytes(value);
            sent.add(new ProducerRecord<>(topic, 0, Kit.key(i), value));
        }
        Check.equal("acknowledged offsets", Check.range(0, 3), Kit.send(kit.producer(), sent));
        Check.same(sent, kit.readBack(topic, 4, 3));
    }

    private static void oversizeRecord(Kit kit) throws Exception {
        String topic = kit.newTopic(4, Map.of("max.message.bytes", "10000"));
        var producer = kit.producer();
        var oversize = new ProducerRecord<>(topic, 0, Kit.key(0), new byte[20_000]);
        Check.fails(RecordTooLargeException.class, "20,000 bytes", () -> producer.send(oversize).get());
        var small = records(topic, 1);
        Check.equal("offset after the refusal", Check.range(0, 1), Kit.send(producer, small));
        Check.same(small, kit.readBack(topic, 4, 1));
    }

    private static void emptyAndNull(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        byte[] none = {};
        byte[] k = Kit.bytes("k");
        byte[] v = Kit.bytes("v");
        byte[][][] pairs = {{null, v}, {none, v}, {k, null}, {k, none}, {null, null}, {none, none}};
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (byte[][] pair : pairs) {
            sent.add(new ProducerRecord<>(topic, 0, pair[0], pair[1]));
        }
        Kit.send(kit.producer(), sent);
        Check.same(sent, kit.readBack(topic, 4, 6));
    }

    private static void headers(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        var sent = records(topic, 3);
        sent.get(1).headers()
                .add("a", Kit.bytes("1"))
                .add("b", new byte[0])
                .add("a", Kit.bytes("2"))
                .add("bin", new byte[] {0, (byte) 0xff, (byte) 0x80, 0x7f})
                .add("n", null);
        sent.get(2).headers().add("clé", Kit.bytes("ü"));
        Kit.send(kit.producer(), sent);
        Check.same(sent, kit.readBack(topic, 4, 3));
    }

    private static void manyPartitions(Kit kit) throws Exception {
        int count = 1_000;
        String topic = kit.newTopic(count);
        var ids = kit.awaitLeaders(topic, count).partitions().stream().map(p -> p.partition()).sorted().toList();
        Check.equal("partition ids", IntStream.range(0, count).boxed().toList(), ids);
        var sent = IntStream.range(0, 50).mapToObj(i -> Kit.record(topic, i * 20, i)).toList();
        for (long offset : Kit.send(kit.producer(), sent)) {
            Check.equal("offset in its partition", 0L, offset);
        }
        var read = kit.readBack(topic, count, 50);
        for (int i = 0; i < 50; i++) {
            Check.equal("partition", i * 20, read.get(i).partition());
            Check.equal("offset in its partition", 0L, read.get(i).offset());
            Check.bytes("value", Kit.value(i), read.get(i).value());
        }
        kit.admin.deleteTopics(List.of(topic)).all().get();
    }

    static List<ProducerRecord<byte[], byte[]>> records(String topic, int count) {
        return IntStream.range(0, count).mapToObj(i -> Kit.record(topic, 0, i)).toList();
    }
}
