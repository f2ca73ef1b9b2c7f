package corelane.clients;

import java.io.IOException;
import java.io.OutputStream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
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
    private static final int KILLS = 4;
    private static final int BROKER_KILLED_IN = 1;
    private static final int KILLED_WITHIN_ROUNDS = 12;
    private static final int KILLED_WITHIN_MS = 30;
    private static final int STARTED_WITHIN_MS = 1_500;
    /** Enough for all the rounds that one who is killed may be waited for, however fast it is. */
    private static final int RECORDS_PER_LIFE = 300;
    /** Who comes again finds its partitions without waiting for the end of the session of who was killed. */
    private static final Object[] STATIC = {"group.instance.id", "worker"};

    final Kit kit;
    final String input;
    final String output;
    final int count;
    int aborted = 0;
    private int round = 0;

    Pipeline(Kit kit, String input, String output, int count) {
        this.kit = kit;
        this.input = input;
        this.output = output;
        this.count = count;
    }

    /** With `count` records in the input. */
    static Pipeline filled(Kit kit, int count) throws Exception {
        String input = kit.newTopic(PARTITIONS);
        var records = IntStream.range(0, count).mapToObj(i -> Kit.record(input, i % PARTITIONS, i)).toList();
        Kit.send(kit.producer(), records);
        return new Pipeline(kit, input, kit.newTopic(PARTITIONS), count);
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
        var pipeline = filled(kit, 1_000);
        pipeline.run(Grouping.protocol("classic"), 1_000, round -> {
            // Here the transaction has its records and offsets, and is about to end.
            if (round == 30 || round == 60) {
                Kit.say("kill broker");
            }
            return round % 5 == 4;
        });
        pipeline.check();
    }

    /**
     * The life of one that is to be killed, see below; gives its exit code. At its end it waits for that of its
     * input, so that one that is to be killed is there to be.
     */
    static int serve(String bootstrap, String[] words) {
        try (var kit = new Kit(bootstrap, "pipeline")) {
            var pipeline = new Pipeline(kit, words[0], words[1], Integer.parseInt(words[2]));
            pipeline.run(Grouping.with(Grouping.protocol("classic"), STATIC), pipeline.count, round -> {
                Kit.say("round " + round);
                return round % 5 == 4;
            });
            System.in.transferTo(OutputStream.nullOutputStream());
            return 0;
        } catch (Throwable e) {
            e.printStackTrace();
            return 1;
        }
    }

    private Spawned spawn(int until) throws IOException {
        return new Spawned(kit, "--pipeline", input, output, "" + until);
    }

    /** As a process it is killed again and again, and the broker with it and without. */
    static void killed(Kit kit) throws Exception {
        var pipeline = filled(kit, (KILLS + 1) * RECORDS_PER_LIFE);
        long seed = new Random().nextLong();
        System.err.println("kills by seed " + seed);
        var chance = new Random(seed);
        // The broker is killed while the process lives, or together with it.
        boolean alone = chance.nextBoolean();
        for (int life = 0; life < KILLS; life++) {
            try (var process = pipeline.spawn((life + 1) * RECORDS_PER_LIFE)) {
                if (life == BROKER_KILLED_IN && alone) {
                    go(process, 1 + chance.nextInt(KILLED_WITHIN_ROUNDS));
                    Kit.say("kill broker");
                }
                int rounds = chance.nextInt(KILLED_WITHIN_ROUNDS + 1);
                go(process, rounds);
                // The moment that the kill comes at is what is tried here; nothing waits for it.
                Thread.sleep(chance.nextInt(rounds == 0 ? STARTED_WITHIN_MS : KILLED_WITHIN_MS));
                if (life == BROKER_KILLED_IN && !alone) {
                    Kit.say("kill broker");
                }
            }
        }
        try (var process = pipeline.spawn(pipeline.count)) {
            process.finish();
        }
        pipeline.check();
    }

    private static void go(Spawned process, int rounds) throws InterruptedException {
        for (int i = 0; i < rounds; i++) {
            process.next();
        }
    }
}
