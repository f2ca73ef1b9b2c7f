package corelane.clients;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.FutureTask;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** A Kafka Streams application that counts words exactly once, as a process that is killed while lines come. */
final class WordCount {
    private static final int PARTITIONS = 2;
    private static final int WORDS = 25;
    private static final int WORDS_PER_LINE = 4;
    private static final int LINES = 10;
    private static final int WRITE_EVERY_MS = 20;
    /** Words that are counted between two kills, at least. */
    private static final long STEP = 100;
    private static final String STORE = "counts";

    private final Kit kit;
    private final String app;
    private final String input;
    private final String output;
    private final Map<String, Long> expected = new HashMap<>();
    private final AtomicBoolean over = new AtomicBoolean();

    private WordCount(Kit kit) throws Exception {
        this.kit = kit;
        app = kit.freshName();
        input = kit.newTopic(PARTITIONS);
        output = kit.newTopic(PARTITIONS);
    }

    /** The application. It goes on until it is killed. */
    static void serve(String bootstrap, String[] words) throws InterruptedException {
        String app = words[0];
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, app);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // Every count comes out, so that none can be missing or there twice without being seen.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.mainConsumerPrefix("group.instance.id"), "app");

        var builder = new StreamsBuilder();
        builder.<String, String>stream(words[2])
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as(STORE))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(words[3]);
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setGlobalStateRestoreListener(new SayRestored());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        Thread.currentThread().join();
    }

    private static final class SayRestored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            Kit.say("restored " + count);
        }
    }

    static void run(Kit kit) throws Exception {
        var count = new WordCount(kit);
        Path folder = Files.createTempDirectory("word-count-");
        var writing = new FutureTask<>(count::write);
        var writer = new Thread(writing, "writer");
        writer.setDaemon(true);
        try {
            writer.start();
            for (boolean brokerToo : List.of(true, false)) {
                try (var application = count.start(folder.toString())) {
                    count.awaitStep();
                    if (brokerToo) {
                        Kit.say("kill broker");
                        count.awaitStep();
                    }
                }
            }
            try (var application = count.start(folder.toString())) {
                count.awaitStep();
                count.over.set(true);
                writing.get();
                count.check();
                restored(application);
            }
        } finally {
            count.over.set(true);
            remove(folder);
        }
    }

    private Spawned start(String folder) throws IOException {
        return new Spawned(kit, "--word-count", app, folder, input, output);
    }

    /** Waits until some of the state came back from the changelog: its folder is not trusted after a kill. */
    private static void restored(Spawned application) throws InterruptedException {
        while (application.next().equals("restored 0")) {}
    }

    /** Writes lines until it is told to stop, and counts what is in them. */
    private Void write() throws Exception {
        var producer = kit.producer();
        var chance = new Random();
        for (int line = 0; !over.get(); ) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int i = 0; i < LINES; i++, line++) {
                var words = chance.ints(WORDS_PER_LINE, 0, WORDS).mapToObj(word -> "word-" + word).toList();
                words.forEach(word -> expected.merge(word, 1L, Long::sum));
                records.add(new ProducerRecord<>(input, line % PARTITIONS, null, Kit.bytes(String.join(" ", words))));
            }
            Kit.send(producer, records);
            Thread.sleep(WRITE_EVERY_MS);
        }
        return null;
    }

    /** Until the application has counted some more words. */
    private void awaitStep() throws Exception {
        long before = committed();
        Kit.await("words counted after " + before, () -> committed() >= before + STEP ? true : null);
    }

    private long committed() throws Exception {
        return kit.admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get().entrySet().stream()
                .filter(entry -> entry.getKey().topic().equals(app + "-" + STORE + "-repartition"))
                .mapToLong(entry -> entry.getValue().offset())
                .sum();
    }

    /** Each word was counted from one on without a gap, and the changelog says the same in the end. */
    private void check() throws Exception {
        long total = expected.values().stream().mapToLong(Long::longValue).sum();
        var counts = Kit.await(total + " counts", () -> {
            var seen = read(output, value -> Long.parseLong(new String(value)));
            seen.forEach((word, values) -> Check.equal("counts of " + word, Check.range(1, values.size() + 1), values));
            return seen.values().stream().mapToLong(List::size).sum() >= total ? last(seen) : null;
        });
        Check.equal("final counts", expected, counts);
        var changelog = last(read(app + "-" + STORE + "-changelog", value -> new LongDeserializer().deserialize("", value)));
        Check.equal("final counts in the changelog", expected, changelog);
        Check.equal("sum in the changelog", total, changelog.values().stream().mapToLong(Long::longValue).sum());
    }

    private static Map<String, Long> last(Map<String, List<Long>> values) {
        return values.entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().get(entry.getValue().size() - 1)));
    }

    /** What is committed in a topic, in order for each word. */
    private Map<String, List<Long>> read(String topic, Function<byte[], Long> value) throws Exception {
        Map<String, List<Long>> seen = new HashMap<>();
        Transacting.read(kit, topic, PARTITIONS, "read_committed", record ->
                seen.computeIfAbsent(new String(record.key()), word -> new ArrayList<>()).add(value.apply(record.value())));
        return seen;
    }

    private static void remove(Path folder) throws IOException {
        try (var files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}
