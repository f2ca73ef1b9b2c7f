package corelane.clients;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Scenarios about offsets by timestamp. What is right follows from the records as a consumer reads
 * them: the first with at least the timestamp, the first with the largest of all.
 */
final class Timing {
    private static final long HOUR_MS = 3_600_000;
    private static final long YEAR_MS = 8_766 * HOUR_MS;
    /** Timestamps of the future are refused otherwise. */
    private static final Map<String, String> ANY_TIME = Map.of("message.timestamp.after.max.ms", "" + Long.MAX_VALUE);
    private static final Map<String, String> ANY_TIME_SMALL_SEGMENTS = Map.of(
            "message.timestamp.after.max.ms", "" + Long.MAX_VALUE,
            "segment.bytes", "1048576",
            "index.interval.bytes", "1000",
            "retention.ms", "-1");
    /** How many different timestamps of a log are looked up, each with those beside it. */
    private static final int LOOK_UPS = 60;

    private static final ListAnswer NOTHING = new ListAnswer(-1, -1);

    private Timing() {}

    /** An offset and the timestamp of its record. */
    private record ListAnswer(long offset, long timestamp) {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("offsets-for-times", Timing::outOfOrder);
        scenarios.put("times-in-batches", Timing::inBatches);
        scenarios.put("times-log-append", Timing::logAppend);
        scenarios.put("times-and-delete-records", Timing::afterDeleteRecords);
    }

    private static void outOfOrder(Kit kit) throws Exception {
        long now = System.currentTimeMillis();
        // A few by hand, each a batch of its own: before, after, twice the same, ties of the largest.
        String few = kit.newTopic(1, ANY_TIME);
        long[] times = {500, 100, 900, 300, 900, 0, 200, 900, 700};
        var producer = kit.producer();
        for (int i = 0; i < times.length; i++) {
            producer.send(at(few, i, now + times[i], 10)).get();
        }
        agrees(kit, few);
        // Many over several segments: in steps forward, one in 20 hours back, one in 300 years ahead.
        String many = kit.newTopic(1, ANY_TIME_SMALL_SEGMENTS);
        var random = new Random(7);
        var sent = new ArrayList<ProducerRecord<byte[], byte[]>>();
        for (int i = 0; i < 4_000; i++) {
            long time = now + i * 100L;
            if (random.nextInt(20) == 0) {
                time -= random.nextInt(100) * HOUR_MS;
            } else if (random.nextInt(300) == 0) {
                time += (1 + random.nextInt(3)) * YEAR_MS;
            }
            sent.add(at(many, i, time, 960));
        }
        Check.equal("acknowledged offsets", Check.range(0, 4_000), Kit.send(kit.producer("linger.ms", 5), sent));
        var read = agrees(kit, many);
        for (int i = 0; i < read.size(); i++) {
            Check.equal("timestamp of record " + i, sent.get(i).timestamp(), read.get(i).timestamp());
        }
    }

    /** The same and different timestamps within one batch of every codec. */
    private static void inBatches(Kit kit) throws Exception {
        long start = System.currentTimeMillis() - HOUR_MS;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = kit.newTopic(1, ANY_TIME);
            var producer = kit.producer("compression.type", codec, "linger.ms", 60_000, "batch.size", 1 << 20);
            long[][] batches = {
                {5, 5, 5, 5, 5, 5}, {5, 5, 7, 7, 6, 7}, {1, 9, 2, 9, 9, 3}, {9, 9, 9}, {8, 9, 0}, {4}
            };
            int index = 0;
            for (long[] batch : batches) {
                for (long time : batch) {
                    producer.send(at(topic, index++, start + time * 10, 100));
                }
                // With this linger nothing else sends, so that each is one batch.
                producer.flush();
            }
            var read = agrees(kit, topic);
            Check.equal("records with " + codec, index, read.size());
            Check.equal("largest with " + codec, new ListAnswer(13, start + 90), ask(kit, topic, OffsetSpec.maxTimestamp()));
        }
    }

    private static void logAppend(Kit kit) throws Exception {
        long before = System.currentTimeMillis();
        for (String codec : List.of("none", "lz4")) {
            String topic = kit.newTopic(1, Map.of("message.timestamp.type", "LogAppendTime"));
            var producer = kit.producer("compression.type", codec, "linger.ms", 60_000, "batch.size", 1 << 20);
            for (int batch = 0; batch < 4; batch++) {
                for (int i = 0; i < 10; i++) {
                    // What the producer says is of no account.
                    producer.send(at(topic, batch * 10 + i, 1_000_000L - i, 100));
                }
                producer.flush();
                // The next batch has another time.
                long last = System.currentTimeMillis();
                Kit.await("the clock", () -> System.currentTimeMillis() > last + 1 ? true : null);
            }
            var read = agrees(kit, topic);
            for (var record : read) {
                Check.that("the broker's time at " + record.offset(), record.timestamp() >= before);
                long first = record.offset() / 10 * 10;
                Check.equal("found by the time of " + record.offset(), new ListAnswer(first, record.timestamp()),
                        ask(kit, topic, OffsetSpec.forTimestamp(record.timestamp())));
            }
            Check.equal("largest", new ListAnswer(30, read.get(39).timestamp()), ask(kit, topic, OffsetSpec.maxTimestamp()));
        }
    }

    private static void afterDeleteRecords(Kit kit) throws Exception {
        String topic = kit.newTopic(1, ANY_TIME);
        var partition = new TopicPartition(topic, 0);
        Check.equal("largest of nothing", NOTHING, ask(kit, topic, OffsetSpec.maxTimestamp()));
        Check.equal("by time of nothing", NOTHING, ask(kit, topic, OffsetSpec.forTimestamp(0)));
        long now = System.currentTimeMillis();
        long[][] batches = {{10, 80, 20}, {30}, {90, 40, 90}, {50}, {60, 50}};
        var producer = kit.producer("linger.ms", 60_000, "batch.size", 1 << 20);
        int index = 0;
        for (long[] batch : batches) {
            for (long time : batch) {
                producer.send(at(topic, index++, now + time, 10));
            }
            producer.flush();
        }
        agrees(kit, topic);
        // Into the first batch, the largest one's, behind that record, and so on to the end. By time only
        // what is left is found; the largest is that of the files, deleted or not.
        var largest = new ListAnswer(4, now + 90);
        for (int start : new int[] {2, 4, 5, 7, 8, 9}) {
            kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(start))).all().get();
            var left = agreesByTime(kit, topic);
            Check.equal("earliest", (long) start, left.get(0).offset());
            Check.equal("largest from " + start, largest, ask(kit, topic, OffsetSpec.maxTimestamp()));
        }
        kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all().get();
        Check.equal("by time of nothing left", NOTHING, ask(kit, topic, OffsetSpec.forTimestamp(0)));
        Check.equal("largest of nothing left", largest, ask(kit, topic, OffsetSpec.maxTimestamp()));
    }

    private static ProducerRecord<byte[], byte[]> at(String topic, int index, long timestamp, int bytes) {
        byte[] value = new byte[bytes];
        new Random(index).nextBytes(value);
        return new ProducerRecord<>(topic, 0, timestamp, Kit.key(index), value);
    }

    /** Every look-up says what follows from the records; gives those. */
    private static List<ConsumerRecord<byte[], byte[]>> agrees(Kit kit, String topic) throws Exception {
        var read = agreesByTime(kit, topic);
        var largest = read.stream()
                .max(Comparator.<ConsumerRecord<byte[], byte[]>>comparingLong(ConsumerRecord::timestamp)
                        .thenComparingLong(record -> -record.offset()))
                .orElseThrow();
        Check.equal("largest", new ListAnswer(largest.offset(), largest.timestamp()),
                ask(kit, topic, OffsetSpec.maxTimestamp()));
        return read;
    }

    private static List<ConsumerRecord<byte[], byte[]>> agreesByTime(Kit kit, String topic) throws Exception {
        var partition = new TopicPartition(topic, 0);
        long start = ask(kit, topic, OffsetSpec.earliest()).offset();
        long end = ask(kit, topic, OffsetSpec.latest()).offset();
        var read = kit.readBack(topic, 1, (int) (end - start));
        var times = new TreeSet<Long>();
        read.forEach(record -> times.add(record.timestamp()));
        var asked = new TreeSet<>(List.of(0L, times.first() - 1, times.last() + 1, Long.MAX_VALUE));
        var inOrder = List.copyOf(times);
        int step = Math.max(1, inOrder.size() / LOOK_UPS);
        for (int i = 0; i < inOrder.size(); i += step) {
            asked.addAll(List.of(inOrder.get(i) - 1, inOrder.get(i), inOrder.get(i) + 1));
        }
        // Those of the future, too.
        asked.addAll(inOrder.subList(Math.max(0, inOrder.size() - 5), inOrder.size()));
        var consumer = kit.consumer();
        for (long time : asked) {
            var expected = read.stream().filter(record -> record.timestamp() >= time).findFirst()
                    .map(record -> new ListAnswer(record.offset(), record.timestamp())).orElse(NOTHING);
            Check.equal("offset at " + time, expected, ask(kit, topic, OffsetSpec.forTimestamp(time)));
            var found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
            var heard = found == null ? NOTHING : new ListAnswer(found.offset(), found.timestamp());
            Check.equal("what the consumer hears at " + time, expected, heard);
        }
        return read;
    }

    private static ListAnswer ask(Kit kit, String topic, OffsetSpec spec) throws Exception {
        var partition = new TopicPartition(topic, 0);
        ListOffsetsResultInfo info = kit.admin.listOffsets(Map.of(partition, spec)).all().get().get(partition);
        return new ListAnswer(info.offset(), info.timestamp());
    }
}
