package corelane.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;

/** Scenarios about compacted topics. The runner's broker looks for something to compact often. */
final class Compacting {
    private static final int KEYS = 50;
    private static final int GONE = 5;
    /** The least that a segment may have is 1 MiB: two rounds over the keys. */
    private static final int VALUE_BYTES = 10 * 1024;

    private Compacting() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("compact", Compacting::compact);
        scenarios.put("compact-delete", Compacting::compactAndDelete);
    }

    private static void compact(Kit kit) throws Exception {
        String topic = kit.newTopic(1, Map.of(
                "cleanup.policy", "compact",
                "segment.bytes", "1048576",
                "min.cleanable.dirty.ratio", "0.01",
                "delete.retention.ms", "1000"));
        var producer = kit.producer("linger.ms", 5);
        Check.fails(InvalidRecordException.class, "a record without a key",
                () -> producer.send(new ProducerRecord<>(topic, 0, null, Kit.bytes("v"))).get());

        var latest = new TreeMap<String, Sent>();
        for (int round = 0; round < 6; round++) {
            sendRound(producer, topic, "key-", round, latest);
        }
        List<ProducerRecord<byte[], byte[]>> tombstones = new ArrayList<>();
        for (int i = 0; i < GONE; i++) {
            tombstones.add(new ProducerRecord<>(topic, 0, Kit.bytes("key-" + i), null));
        }
        var offsets = Kit.send(producer, tombstones);
        for (int i = 0; i < GONE; i++) {
            latest.put("key-" + i, new Sent(offsets.get(i), null));
        }
        // What follows closes the segment of the tombstones.
        int filler = 0;
        for (; filler < 3; filler++) {
            sendRound(producer, topic, "filler-" + filler + "-", 0, new HashMap<>());
        }
        var first = Kit.await("only the latest values", () -> {
            var read = ofKeys(readAll(kit, topic));
            return byKey(read).size() == read.size() ? read : null;
        });
        // The passes may be so far apart that the tombstones are gone already.
        var seen = byKey(first);
        for (var expected : latest.entrySet()) {
            var sent = expected.getValue();
            if (sent.value != null || seen.containsKey(expected.getKey())) {
                Check.equal(expected.getKey(), sent, seen.get(expected.getKey()));
            }
        }
        checkEveryStart(kit, topic);

        // New records make another pass worth it; one that finds the horizon passed drops the tombstones.
        var values = new TreeMap<>(latest);
        values.values().removeIf(sent -> sent.value == null);
        int next = filler;
        var more = new int[] {next};
        var second = Kit.await("the tombstones to go", () -> {
            sendRound(producer, topic, "filler-" + more[0]++ + "-", 0, new HashMap<>());
            sendRound(producer, topic, "filler-" + more[0]++ + "-", 0, new HashMap<>());
            var read = ofKeys(readAll(kit, topic));
            return read.size() == KEYS - GONE ? read : null;
        });
        Check.equal("keys and offsets without tombstones", values, byKey(second));
    }

    private static void compactAndDelete(Kit kit) throws Exception {
        String topic = kit.newTopic(1, Map.of(
                "cleanup.policy", "compact,delete",
                "segment.bytes", "1048576",
                "min.cleanable.dirty.ratio", "0.01",
                "retention.ms", "3600000"));
        var producer = kit.producer("linger.ms", 5);
        long old = System.currentTimeMillis() - 2 * 3_600_000;
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 3 * KEYS; i++) {
            sent.add(new ProducerRecord<>(topic, 0, old, Kit.bytes("old-" + i), value(i)));
        }
        Kit.send(producer, sent);
        var latest = new TreeMap<String, Sent>();
        for (int round = 0; round < 4; round++) {
            sendRound(producer, topic, "key-", round, latest);
        }
        // Closes the segments of the above; it is looked at no further.
        for (int i = 0; i < 3; i++) {
            sendRound(producer, topic, "filler-" + i + "-", 0, new HashMap<>());
        }
        var read = Kit.await("old records to go by age, others by key", () -> {
            List<ConsumerRecord<byte[], byte[]>> all;
            try {
                all = readAll(kit, topic);
            } catch (OffsetOutOfRangeException startMovedMeanwhile) {
                return null;
            }
            boolean expired = all.stream().noneMatch(record -> new String(record.key()).equals("old-0"));
            var keys = ofKeys(all);
            return expired && keys.size() == KEYS ? keys : null;
        });
        Check.equal("keys and offsets", latest, byKey(read));
        long start = kit.admin.listOffsets(Map.of(new TopicPartition(topic, 0), OffsetSpec.earliest()))
                .all().get().get(new TopicPartition(topic, 0)).offset();
        Check.that("the log starts at " + start, start > 0);
    }

    /** A record's offset and value, null for a tombstone; a value is compared by its text. */
    private record Sent(long offset, String value) {}

    private static byte[] value(int index) {
        byte[] value = new byte[VALUE_BYTES];
        java.util.Arrays.fill(value, (byte) 'x');
        byte[] head = Kit.value(index);
        System.arraycopy(head, 0, value, 0, head.length);
        return value;
    }

    private static void sendRound(KafkaProducer<byte[], byte[]> producer, String topic, String prefix, int round,
            Map<String, Sent> latest) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < KEYS; i++) {
            records.add(new ProducerRecord<>(topic, 0, Kit.bytes(prefix + i), value(round * KEYS + i)));
        }
        var offsets = Kit.send(producer, records);
        for (int i = 0; i < KEYS; i++) {
            latest.put(prefix + i, new Sent(offsets.get(i), new String(records.get(i).value())));
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> readAll(Kit kit, String topic) {
        return readFrom(kit, topic, -1);
    }

    /** All from an offset on, or from the beginning (-1), in growing offsets up to the end. */
    private static List<ConsumerRecord<byte[], byte[]>> readFrom(Kit kit, String topic, long from) {
        var partition = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (var consumer = kit.passingConsumer()) {
            consumer.assign(List.of(partition));
            if (from < 0) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, from);
            }
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.nanoTime() + Kit.PATIENCE.toNanos();
            while (consumer.position(partition) < end) {
                Check.that("stuck at " + consumer.position(partition) + " of " + end, System.nanoTime() < deadline);
                consumer.poll(Kit.POLL).forEach(records::add);
            }
        }
        for (int i = 1; i < records.size(); i++) {
            Check.that("offsets grow", records.get(i - 1).offset() < records.get(i).offset());
        }
        return records;
    }

    private static List<ConsumerRecord<byte[], byte[]>> ofKeys(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().filter(Compacting::isOfKeys).toList();
    }

    private static boolean isOfKeys(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.key()).startsWith("key-");
    }

    private static TreeMap<String, Sent> byKey(List<ConsumerRecord<byte[], byte[]>> records) {
        var all = new TreeMap<String, Sent>();
        for (var record : records) {
            String value = record.value() == null ? null : new String(record.value());
            all.put(new String(record.key()), new Sent(record.offset(), value));
        }
        return all;
    }

    /** A consumer that starts in a hole goes on with the next record that is left. */
    private static void checkEveryStart(Kit kit, String topic) {
        var left = readAll(kit, topic).stream().filter(record -> record.value() != null && isOfKeys(record)).toList();
        long last = left.get(left.size() - 1).offset();
        for (long from = 0; from < last; from += 61) {
            long start = from;
            var expected = left.stream().filter(record -> record.offset() >= start).toList();
            var read = readFrom(kit, topic, from).stream().filter(record -> record.value() != null && isOfKeys(record)).toList();
            Check.equal("offsets from " + from, expected.stream().map(ConsumerRecord::offset).toList(),
                    read.stream().map(ConsumerRecord::offset).toList());
        }
    }
}
