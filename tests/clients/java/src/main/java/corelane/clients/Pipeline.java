package corelane.clients;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Reads a topic and writes each record to another, in transactions with the offsets of what was read. */
final class Pipeline {
    static final int PARTITIONS = 2;
    private static final int RECORDS_PER_ROUND = 10;

    final String output;
    int aborted = 0;
    private final Kit kit;
    private final String input;
    private final int count;
    private int round = 0;

    /** With `count` records in the input. */
    Pipeline(Kit kit, int count) throws Exception {
        this.kit = kit;
        this.count = count;
        input = kit.newTopic(PARTITIONS);
        output = kit.newTopic(PARTITIONS);
        var records = IntStream.range(0, count).mapToObj(i -> Kit.record(input, i % PARTITIONS, i)).toList();
        Kit.send(kit.producer(), records);
    }

    /** Until at least so much of the input is committed. Rounds that `abort` names are aborted. */
    void run(Object[] protocol, long until, IntPredicate abort) throws Exception {
        var producer = Transacting.producer(kit, output);
        try (var consumer = kit.passingConsumer(Grouping.with(protocol, "group.id", input, "auto.offset.reset", "earliest",
                "isolation.level", "read_committed", "max.poll.records", RECORDS_PER_ROUND))) {
            consumer.subscribe(List.of(input));
            while (committed() < until) {
                try {
                    round(consumer, producer, abort);
                } catch (ProducerFencedException | InvalidProducerEpochException e) {
                    throw new AssertionError("nobody else has this id", e);
                } catch (KafkaException e) {
                    System.err.println("a round is aborted for " + e);
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        }
        producer.close();
    }

    private void round(
            KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer, IntPredicate abort) {
        var records = consumer.poll(Kit.POLL);
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (var record : records) {
            producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
            offsets.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (abort.test(round++)) {
            producer.flush();
            producer.abortTransaction();
            aborted++;
            rewind(consumer);
        } else {
            producer.commitTransaction();
        }
    }

    /** Back to what is committed, which is where the next round has to begin. */
    private static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, offset) -> {
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset);
            }
        });
    }

    private long committed() throws Exception {
        return kit.admin.listConsumerGroupOffsets(input).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
    }

    /** Each record of the input is once in the output, and the group is at the end. */
    void check() throws Exception {
        var expected = IntStream.range(0, count).mapToObj(i -> new String(Kit.value(i))).toList();
        Transacting.committed(kit, output, PARTITIONS, expected);
        Check.equal("committed", (long) count, committed());
    }

    /** The broker is killed twice while this goes on. */
    static void underKills(Kit kit) throws Exception {
        var pipeline = new Pipeline(kit, 1_000);
        pipeline.run(Grouping.protocol("classic"), 1_000, round -> {
            // Here the transaction has its records and offsets, and is about to end.
            if (round == 30 || round == 60) {
                System.out.println("kill broker");
                System.out.flush();
            }
            return round % 5 == 4;
        });
        pipeline.check();
    }
}
