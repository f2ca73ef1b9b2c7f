package corelane.clients;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Scenarios about reading, always with partitions assigned by hand. */
final class Consuming {
    private Consuming() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("consume-earliest", Consuming::earliest);
        scenarios.put("consume-latest", Consuming::latest);
        scenarios.put("consume-timestamp", Consuming::timestamp);
        scenarios.put("consume-offset", Consuming::offset);
        scenarios.put("long-poll", Consuming::longPoll);
    }

    private static void earliest(Kit kit) throws Exception {
        var partition = new TopicPartition(kit.newTopic(4), 0);
        kit.produce(partition.topic(), 100);
        var consumer = kit.consumer("auto.offset.reset", "earliest");
        consumer.assign(List.of(partition));
        expect(0, 100, Kit.poll(consumer, 100));
        Check.equal("beginning", Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
        Check.equal("end", Map.of(partition, 100L), consumer.endOffsets(List.of(partition)));
    }

    private static void latest(Kit kit) throws Exception {
        var partition = new TopicPartition(kit.newTopic(4), 0);
        kit.produce(partition.topic(), 50);
        var consumer = kit.consumer("auto.offset.reset", "latest");
        consumer.assign(List.of(partition));
        Check.equal("position", 50L, consumer.position(partition));
        var more = IntStream.range(50, 60).mapToObj(i -> Kit.record(partition.topic(), 0, i)).toList();
        Kit.send(kit.producer(), more);
        expect(50, 60, Kit.poll(consumer, 10));
    }

    private static void timestamp(Kit kit) throws Exception {
        var partition = new TopicPartition(kit.newTopic(4), 0);
        long start = System.currentTimeMillis() - 3_600_000;
        var sent = IntStream.range(0, 100)
                .mapToObj(i -> new ProducerRecord<>(partition.topic(), 0, start + i * 1_000L, Kit.key(i), Kit.value(i)))
                .toList();
        Kit.send(kit.producer("linger.ms", 50), sent);

        var consumer = kit.consumer();
        consumer.assign(List.of(partition));
        Check.equal("offset inside a second", 50L, find(consumer, partition, start + 49_500));
        Check.equal("offset on the second", 50L, find(consumer, partition, start + 50_000));
        Check.equal("offset before all", 0L, find(consumer, partition, start - 1));
        Check.equal("offset after all", null, find(consumer, partition, start + 99_001));
        consumer.seek(partition, find(consumer, partition, start + 49_500));
        var read = Kit.poll(consumer, 50);
        expect(50, 100, read);
        Check.equal("timestamp", start + 50_000, read.get(0).timestamp());
    }

    private static Long find(KafkaConsumer<?, ?> consumer, TopicPartition partition, long timestamp) {
        var found = consumer.offsetsForTimes(new HashMap<>(Map.of(partition, timestamp))).get(partition);
        return found == null ? null : found.offset();
    }

    private static void offset(Kit kit) throws Exception {
        var partition = new TopicPartition(kit.newTopic(4), 0);
        kit.produce(partition.topic(), 100);
        var consumer = kit.consumer();
        consumer.assign(List.of(partition));
        consumer.seek(partition, 37);
        expect(37, 100, Kit.poll(consumer, 63));
        consumer.seek(partition, 5);
        expect(5, 100, Kit.poll(consumer, 95));
        consumer.seek(partition, 1_000);
        Check.fails(OffsetOutOfRangeException.class, "offset 1,000", () -> Kit.poll(consumer, 1));
    }

    private static void longPoll(Kit kit) throws Exception {
        var partition = new TopicPartition(kit.newTopic(1), 0);
        var consumer = kit.consumer("fetch.max.wait.ms", 500, "fetch.min.bytes", 1);
        consumer.assign(List.of(partition));
        consumer.seekToEnd(List.of(partition));
        Check.equal("position", 0L, consumer.position(partition));
        long idleUntil = System.nanoTime() + Duration.ofSeconds(3).toNanos();
        while (System.nanoTime() < idleUntil) {
            Check.equal("records while idle", 0, consumer.poll(Duration.ofMillis(100)).count());
        }
        double fetches = metric(consumer, "fetch-total");
        Check.that("fetch requests while idle: " + fetches, fetches >= 1 && fetches <= 60);
        kit.produce(partition.topic(), 1);
        long deadline = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        var records = consumer.poll(Duration.ofSeconds(10));
        while (records.isEmpty() && System.nanoTime() < deadline) {
            records = consumer.poll(Duration.ofSeconds(1));
        }
        expect(0, 1, records.records(partition));
    }

    private static double metric(KafkaConsumer<?, ?> consumer, String name) {
        return consumer.metrics().entrySet().stream()
                .filter(e -> e.getKey().name().equals(name) && e.getKey().group().equals("consumer-fetch-manager-metrics"))
                .filter(e -> !e.getKey().tags().containsKey("topic"))
                .mapToDouble(e -> (Double) e.getValue().metricValue())
                .findFirst()
                .orElseThrow(() -> new AssertionError("the client has no metric " + name));
    }

    /** The records are those of `Kit.produce` with offsets from..to. */
    static void expect(int from, int to, List<ConsumerRecord<byte[], byte[]>> records) {
        Check.equal("offsets", Check.range(from, to), records.stream().map(ConsumerRecord::offset).toList());
        for (var record : records) {
            Check.bytes("key at " + record.offset(), Kit.key((int) record.offset()), record.key());
            Check.bytes("value at " + record.offset(), Kit.value((int) record.offset()), record.value());
        }
    }
}
