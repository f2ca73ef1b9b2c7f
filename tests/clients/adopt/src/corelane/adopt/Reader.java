package corelane.adopt;

import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints everything of topics that a consumer sees, in a fixed order. */
final class Reader {
    private final String bootstrap;

    Reader(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void print(List<String> topics, Duration within) {
        var out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16));
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            for (String topic : topics) {
                print(out, topic, isolation, within);
            }
        }
        out.flush();
    }

    int count(String topic) {
        try (var consumer = consumer("read_uncommitted")) {
            int count = 0;
            for (var records : all(consumer, topic, Duration.ofSeconds(60))) {
                count++;
            }
            return count;
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "enable.auto.commit", false,
                        "auto.offset.reset", "none", "max.partition.fetch.bytes", 200_000),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void print(PrintStream out, String topic, String isolation, Duration within) {
        try (var consumer = consumer(isolation)) {
            var records = all(consumer, topic, within);
            var partitions = partitions(consumer, topic);
            for (var partition : partitions) {
                out.printf("%s %s from %d to %d%n", isolation, partition,
                        consumer.beginningOffsets(List.of(partition)).get(partition),
                        consumer.endOffsets(List.of(partition)).get(partition));
                for (long time = 1_699_999_900_000L; time < 1_700_000_100_000L; time += 7_919) {
                    var found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                    out.printf("%s %s at %d: %s%n", isolation, partition, time,
                            found == null ? "none" : found.offset() + " " + found.timestamp());
                }
            }
            for (var record : records) {
                out.println(isolation + " " + line(record));
            }
        }
    }

    private static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .sorted(Comparator.comparingInt(TopicPartition::partition))
                .toList();
    }

    private static List<ConsumerRecord<byte[], byte[]>> all(KafkaConsumer<byte[], byte[]> consumer, String topic, Duration within) {
        var partitions = partitions(consumer, topic);
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        var ends = consumer.endOffsets(partitions);
        var records = new ArrayList<ConsumerRecord<byte[], byte[]>>();
        long deadline = System.nanoTime() + within.toNanos();
        while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + " does not come to its end");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        Collections.sort(records, Comparator.comparingInt((ConsumerRecord<byte[], byte[]> r) -> r.partition()).thenComparingLong(ConsumerRecord::offset));
        return records;
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        var headers = new StringBuilder();
        record.headers().forEach(header -> headers.append(' ').append(header.key()).append('=').append(bytes(header.value())));
        return String.format("%s-%d %d %s %d epoch %s key %s value %s%s", record.topic(), record.partition(), record.offset(),
                record.timestampType(), record.timestamp(), record.leaderEpoch().map(String::valueOf).orElse("none"),
                bytes(record.key()), record.value() == null ? "null" : record.value().length + ":" + Arrays.hashCode(record.value()), headers);
    }

    private static String bytes(byte[] bytes) {
        return bytes == null ? "null" : HexFormat.of().formatHex(bytes);
    }
}
