package corelane.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Scenarios about what brokers delete by themselves, and what they are told to delete. */
final class Retaining {
    /** The smallest that Apache Kafka allows. */
    private static final int SEGMENT_BYTES = 1 << 20;

    private static final long HOUR_MS = 3_600_000;

    private Retaining() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("retention-size", Retaining::bySize);
        scenarios.put("retention-time", Retaining::byTime);
        scenarios.put("delete-records", Retaining::deleteRecords);
    }

    private static void bySize(Kit kit) throws Exception {
        String topic = kit.newTopic(1, Map.of(
                "segment.bytes", "" + SEGMENT_BYTES,
                "retention.bytes", "" + 2 * SEGMENT_BYTES,
                "file.delete.delay.ms", "100"));
        var sent = records(topic, 6_000, System.currentTimeMillis());
        Check.equal("acknowledged offsets", Check.range(0, 6_000), Kit.send(kit.producer(), sent));
        // Whole segments go while what is left is at least retention.bytes.
        Kit.await("retention by size", () -> sizeOf(kit, topic) < 3 * SEGMENT_BYTES ? true : null);
        Check.that("not below retention.bytes", sizeOf(kit, topic) >= 2 * SEGMENT_BYTES - SEGMENT_BYTES / 8);
        long earliest = offset(kit, topic, OffsetSpec.earliest());
        Check.that("the oldest are gone: " + earliest, earliest > 2_000);
        Check.equal("latest", 6_000L, offset(kit, topic, OffsetSpec.latest()));
        var read = kit.readBack(topic, 1, (int) (6_000 - earliest));
        same(sent, earliest, read);

        set(kit, topic, "retention.bytes", "0");
        awaitEmpty(kit, topic, 6_000);
    }

    private static void byTime(Kit kit) throws Exception {
        String topic = kit.newTopic(1, Map.of(
                "segment.bytes", "" + SEGMENT_BYTES, "retention.ms", "" + 100 * HOUR_MS, "file.delete.delay.ms", "100"));
        long now = System.currentTimeMillis();
        var old = records(topic, 2_500, now - 3 * HOUR_MS);
        var young = records(topic, 1_200, now);
        var producer = kit.producer();
        Check.equal("offsets of the old", Check.range(0, 2_500), Kit.send(producer, old));
        Check.equal("offsets of the young", Check.range(2_500, 3_700), Kit.send(producer, young));
        Check.equal("all are kept", 0L, offset(kit, topic, OffsetSpec.earliest()));

        set(kit, topic, "retention.ms", "" + HOUR_MS);
        // The segment in which the young begin stays whole.
        Kit.await("retention by time", () -> offset(kit, topic, OffsetSpec.earliest()) > 1_000 ? true : null);
        long earliest = offset(kit, topic, OffsetSpec.earliest());
        Check.that("no young record is gone: " + earliest, earliest <= 2_500);
        var all = new ArrayList<>(old);
        all.addAll(young);
        same(all, earliest, kit.readBack(topic, 1, (int) (3_700 - earliest)));

        // The segment that is written to is closed and goes too.
        set(kit, topic, "retention.ms", "0");
        awaitEmpty(kit, topic, 3_700);
        set(kit, topic, "retention.ms", "-1");
        var next = records(topic, 1, now - 1_000 * HOUR_MS);
        Check.equal("the offset after", List.of(3_700L), Kit.send(producer, next));
        all.addAll(next);
        same(all, 3_700, kit.readBack(topic, 1, 1));
    }

    private static void deleteRecords(Kit kit) throws Exception {
        String topic = kit.newTopic(1, Map.of("segment.bytes", "" + SEGMENT_BYTES, "file.delete.delay.ms", "100"));
        var sent = records(topic, 4_000, System.currentTimeMillis());
        Check.equal("acknowledged offsets", Check.range(0, 4_000), Kit.send(kit.producer(), sent));
        var partition = new TopicPartition(topic, 0);
        // In the middle of a segment, and then to the end.
        for (long before : new long[] {2_345, 2_345, 100, 4_000}) {
            long start = Math.max(before, 2_345);
            var deleted = kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before))).lowWatermarks();
            Check.equal("low watermark", start, deleted.get(partition).get().lowWatermark());
            Check.equal("earliest", start, offset(kit, topic, OffsetSpec.earliest()));
            int left = (int) (4_000 - start);
            same(sent, start, left == 0 ? List.of() : kit.readBack(topic, 1, left));
        }
        Kit.await("segments below the start to go", () -> sizeOf(kit, topic) <= SEGMENT_BYTES ? true : null);
        Check.equal("latest", 4_000L, offset(kit, topic, OffsetSpec.latest()));
    }

    /** What is left is what was sent, from this offset on. */
    private static void same(
            List<ProducerRecord<byte[], byte[]>> sent, long first, List<ConsumerRecord<byte[], byte[]>> read) {
        Check.equal("records that are left", sent.size() - first, (long) read.size());
        for (int i = 0; i < read.size(); i++) {
            int at = (int) first + i;
            Check.equal("offset", (long) at, read.get(i).offset());
            Check.bytes("value of record " + at, sent.get(at).value(), read.get(i).value());
            Check.equal("timestamp of record " + at, sent.get(at).timestamp(), read.get(i).timestamp());
        }
    }

    /** Records of about 1,000 bytes that no codec makes smaller. */
    private static List<ProducerRecord<byte[], byte[]>> records(String topic, int count, long timestamp) {
        var random = new Random(count);
        return IntStream.range(0, count)
                .mapToObj(i -> {
                    byte[] value = new byte[960];
                    random.nextBytes(value);
                    return new ProducerRecord<>(topic, 0, timestamp, Kit.key(i), value);
                })
                .toList();
    }

    private static void awaitEmpty(Kit kit, String topic, long end) throws Exception {
        Kit.await("everything to go", () -> offset(kit, topic, OffsetSpec.earliest()) == end ? true : null);
        Check.equal("latest", end, offset(kit, topic, OffsetSpec.latest()));
        Kit.await("no bytes to be left", () -> sizeOf(kit, topic) == 0 ? true : null);
    }

    private static void set(Kit kit, String topic, String key, String value) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        kit.admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private static long offset(Kit kit, String topic, OffsetSpec spec) throws Exception {
        var partition = new TopicPartition(topic, 0);
        return kit.admin.listOffsets(Map.of(partition, spec)).all().get().get(partition).offset();
    }

    private static long sizeOf(Kit kit, String topic) throws Exception {
        return Administering.sizeOf(kit, topic);
    }
}
