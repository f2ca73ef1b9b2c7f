package corelane.clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What scenarios share: topics, clients that are closed at the end, reading back, comparing. */
final class Kit implements AutoCloseable {
    /** For records that are known to be there. */
    static final Duration PATIENCE = Duration.ofSeconds(30);
    /** For the cluster's state: a loaded broker takes its time over 1,000 partitions. */
    static final Duration STATE = Duration.ofSeconds(45);
    static final Duration POLL = Duration.ofMillis(200);

    final Admin admin;
    final String bootstrap;
    private final String scenario;
    private final List<AutoCloseable> open = new ArrayList<>();

    Kit(String bootstrap, String scenario) {
        this.bootstrap = bootstrap;
        this.scenario = scenario;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        open.add(admin);
    }

    /** A name that no other run uses. */
    String freshName() {
        return String.format("%s-java-%08x", scenario, new Random().nextInt());
    }

    String newTopic(int partitions) throws Exception {
        return newTopic(partitions, Map.of());
    }

    String newTopic(int partitions, Map<String, String> configs) throws Exception {
        String topic = freshName();
        create(topic, partitions, configs);
        return topic;
    }

    void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        awaitLeaders(topic, partitions);
    }

    /** Waits until metadata shows this many partitions, each with a leader that serves it. */
    TopicDescription awaitLeaders(String topic, int partitions) throws Exception {
        TopicDescription found = awaitDescription(topic, partitions);
        // A leader may be named a moment before it serves; this call retries until it does.
        admin.listOffsets(found.partitions().stream()
                        .collect(Collectors.toMap(p -> new TopicPartition(topic, p.partition()), p -> OffsetSpec.latest())))
                .all().get();
        return found;
    }

    private TopicDescription awaitDescription(String topic, int partitions) throws Exception {
        return await("leaders of " + topic, () -> {
            TopicDescription description;
            try {
                description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            } catch (ExecutionException e) {
                if (e.getCause() instanceof UnknownTopicOrPartitionException) {
                    return null;
                }
                throw e;
            }
            boolean all = description.partitions().size() == partitions
                    && description.partitions().stream().allMatch(p -> p.leader() != null && p.leader().id() >= 0);
            return all ? description : null;
        });
    }

    /** Asks again until the answer is there. */
    static <T> T await(String what, Callable<T> ask) throws Exception {
        long deadline = System.nanoTime() + STATE.toNanos();
        while (System.nanoTime() < deadline) {
            T answer = ask.call();
            if (answer != null) {
                return answer;
            }
            Thread.sleep(20);
        }
        throw new AssertionError("waited " + STATE.toSeconds() + " s for " + what);
    }

    KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> all = settings(settings);
        var producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
        // A scenario that failed half-way must not wait for records that cannot be sent.
        open.add(() -> producer.close(Duration.ofSeconds(2)));
        return producer;
    }

    /** A consumer without a group, at nobody's offset until it is assigned and moved. */
    KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        var consumer = passingConsumer(settings);
        open.add(consumer);
        return consumer;
    }

    /** One that the caller closes. */
    KafkaConsumer<byte[], byte[]> passingConsumer(Object... settings) {
        Map<String, Object> all = settings(settings);
        all.putIfAbsent("auto.offset.reset", "none");
        all.put("enable.auto.commit", false);
        all.put("allow.auto.create.topics", false);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Everything in the topic from the earliest offset: exactly `count` records, by partition and offset. */
    List<ConsumerRecord<byte[], byte[]>> readBack(String topic, int partitions, int count) throws Exception {
        var all = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
        var consumer = consumer();
        consumer.assign(all);
        consumer.seekToBeginning(all);
        var records = poll(consumer, count);
        long ends = consumer.endOffsets(all).values().stream().mapToLong(Long::longValue).sum();
        long starts = consumer.beginningOffsets(all).values().stream().mapToLong(Long::longValue).sum();
        Check.equal("records between the beginning and end offsets", (long) count, ends - starts);
        records.sort(Comparator.<ConsumerRecord<byte[], byte[]>>comparingInt(ConsumerRecord::partition)
                .thenComparingLong(ConsumerRecord::offset));
        return records;
    }

    /** Polls until `count` records came, and fails if more did or time ran out. */
    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(POLL).forEach(records::add);
        }
        Check.equal("records read", count, records.size());
        return records;
    }

    /** Sends `count` indexed records to partition 0, waits for all, and checks offsets from 0 on. */
    void produce(String topic, int count, Object... settings) throws Exception {
        var sent = IntStream.range(0, count).mapToObj(i -> record(topic, 0, i)).toList();
        Check.equal("acknowledged offsets", Check.range(0, count), send(producer(settings), sent));
    }

    /** Sends without waiting between records; gives the acknowledged offsets in order of sending. */
    static List<Long> send(
            KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        var pending = records.stream().map(producer::send).toList();
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (var one : pending) {
            offsets.add(one.get().offset());
        }
        return offsets;
    }

    /** A line on stdout, at once. */
    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, int index) {
        return new ProducerRecord<>(topic, partition, key(index), value(index));
    }

    static byte[] key(int index) {
        return bytes("key-" + index % 97);
    }

    static byte[] value(int index) {
        return bytes(String.format("value-%06d", index));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private Map<String, Object> settings(Object... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            all.put((String) pairs[i], pairs[i + 1]);
        }
        return all;
    }

    @Override
    public void close() throws Exception {
        for (int i = open.size() - 1; i >= 0; i--) {
            open.get(i).close();
        }
    }
}
