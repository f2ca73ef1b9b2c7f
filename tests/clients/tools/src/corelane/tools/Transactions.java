package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's tools around transactions. */
final class Transactions {
    static final String COMMAND = "TransactionsCommand";

    private Transactions() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("kafka-transactions", Transactions::look);
        scenarios.put("kafka-transactions-abort", Transactions::abort);
        scenarios.put("kafka-transactions-hanging", Hanging::run);
        scenarios.put("corelane-txn", Hanging::corelane);
        scenarios.put("kafka-producer-perf-test-transactional", Transactions::perfTest);
        scenarios.put("kafka-console-consumer-isolation", Transactions::isolation);
    }

    static KafkaProducer<String, String> producer(Cluster cluster, String id) {
        Map<String, Object> settings = Map.of("bootstrap.servers", cluster.bootstrap, "transactional.id", id,
                "transaction.timeout.ms", 50_000);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void begin(KafkaProducer<String, String> producer, String topic, int from, int to) {
        begin(producer, topic, 0, from, to);
    }

    /** Values `from` to `to` to a partition in a transaction that is left open. */
    static void begin(KafkaProducer<String, String> producer, String topic, int partition, int from, int to) {
        producer.beginTransaction();
        for (int i = from; i < to; i++) {
            producer.send(new ProducerRecord<>(topic, partition, null, "value-" + i));
        }
        producer.flush();
    }

    /** The rows that the tool prints, by column; the first column says which row is wanted. */
    static List<Map<String, String>> rows(Cluster cluster, String... arguments) {
        var lines = cluster.run(COMMAND, arguments).well().lines();
        var names = lines.get(0).split("\\s+");
        List<Map<String, String>> rows = new ArrayList<>();
        for (String line : lines.subList(1, lines.size())) {
            var cells = line.split("\\s+");
            rows.add(new java.util.LinkedHashMap<>());
            for (int i = 0; i < names.length; i++) {
                rows.get(rows.size() - 1).put(names[i], i < cells.length ? cells[i] : "");
            }
        }
        return rows;
    }

    static Map<String, String> row(Cluster cluster, String column, String value, String... arguments) {
        var all = rows(cluster, arguments);
        return all.stream().filter(row -> value.equals(row.get(column))).findFirst()
                .orElseThrow(() -> new AssertionError("no " + column + " " + value + " in " + all));
    }

    private static String state(Cluster cluster, String id) {
        return row(cluster, "TransactionalId", id, "describe", "--transactional-id", id).get("TransactionState");
    }

    private static List<String> open(Cluster cluster, String topic) {
        return open(cluster, topic, 0);
    }

    /** The starts of the open transactions in a partition, as describe-producers says it. */
    static List<String> open(Cluster cluster, String topic, int partition) {
        return rows(cluster, "describe-producers", "--topic", topic, "--partition", "" + partition).stream()
                .map(row -> row.get("CurrentTransactionStartOffset"))
                .filter(start -> !start.equals("None"))
                .toList();
    }

    private static void look(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(2);
        try (var producer = producer(cluster, topic)) {
            equal("before the first", "Empty", state(cluster, topic));
            begin(producer, topic, 0, 5);
            producer.send(new ProducerRecord<>(topic, 1, null, "value")).get();
            var listed = row(cluster, "TransactionalId", topic, "list");
            equal("listed", "Ongoing", listed.get("TransactionState"));
            String[] pattern = {"list", "--transactional-id-pattern", topic.substring(0, topic.length() - 1) + "."};
            equal("by a pattern", listed, row(cluster, "TransactionalId", topic, pattern));
            equal("by another pattern", List.of(), rows(cluster, "list", "--transactional-id-pattern", "not-" + topic));
            // Ids that never had a transaction count as older than any time: others' are left out by name.
            String[] old = {"list", "--transactional-id-pattern", topic, "--duration-filter", "3600000"};
            equal("longer than an hour", List.of(), rows(cluster, old));
            row(cluster, "TransactionalId", topic, "list", "--duration-filter", "0");

            var described = row(cluster, "TransactionalId", topic, "describe", "--transactional-id", topic);
            equal("state", "Ongoing", described.get("TransactionState"));
            equal("producer id", listed.get("ProducerId"), described.get("ProducerId"));
            equal("coordinator", listed.get("Coordinator"), described.get("CoordinatorId"));
            equal("timeout", "50000", described.get("TransactionTimeoutMs"));
            that("duration in " + described, Long.parseLong(described.get("TransactionDurationMs")) >= 0);
            var partitions = Stream.of(described.get("TopicPartitions").split(",")).sorted().toList();
            equal("partitions", List.of(topic + "-0", topic + "-1"), partitions);

            var inLog = row(cluster, "ProducerId", listed.get("ProducerId"), "describe-producers", "--topic", topic, "--partition", "0");
            equal("epoch", described.get("ProducerEpoch"), inLog.get("ProducerEpoch"));
            equal("last sequence", "4", inLog.get("LastSequence"));
            equal("start", "0", inLog.get("CurrentTransactionStartOffset"));
            // The coordinator knows of it, so it does not hang.
            equal("hanging", List.of(), rows(cluster, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0"));
            equal("hanging", List.of(), rows(cluster, "find-hanging", "--broker-id", listed.get("Coordinator")));

            producer.commitTransaction();
            Scenarios.await("its end", () -> state(cluster, topic).equals("CompleteCommit") && open(cluster, topic).isEmpty());
            begin(producer, topic, 5, 10);
            equal("the next one's start", List.of("6"), open(cluster, topic));
            producer.abortTransaction();
            Scenarios.await("its end", () -> state(cluster, topic).equals("CompleteAbort") && open(cluster, topic).isEmpty());
        }
        var unknown = cluster.run(COMMAND, "describe", "--transactional-id", "not-" + topic);
        that("an unknown id is refused", unknown.code() != 0);
    }

    /** In one partition by its start, and as a whole by its id. */
    private static void abort(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        var producer = producer(cluster, topic);
        begin(producer, topic, 0, 5);
        var wrong = cluster.run(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "3");
        contains("no transaction there", wrong.out() + wrong.err(), "Could not find any open transactions");
        equal("still open", List.of("0"), open(cluster, topic));
        cluster.run(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0").well();
        equal("open", List.of(), open(cluster, topic));

        String id = topic + "-second";
        var second = producer(cluster, id);
        begin(second, topic, 5, 10);
        cluster.run(COMMAND, "forceTerminateTransaction", "--transactionalId", id).well();
        Scenarios.await("its end", () -> open(cluster, topic).isEmpty());
        that("it cannot be committed", fails(second::commitTransaction));
        producer.close(java.time.Duration.ZERO);
        second.close(java.time.Duration.ZERO);

        try (var third = producer(cluster, topic + "-third")) {
            begin(third, topic, 10, 15);
            third.commitTransaction();
        }
        equal("committed", values(10, 15), consume(cluster, topic, "read_committed", 5));
        equal("all", values(0, 15), consume(cluster, topic, "read_uncommitted", 15));
    }

    static boolean fails(Runnable call) {
        try {
            call.run();
            return false;
        } catch (KafkaException e) {
            return true;
        }
    }

    private static void perfTest(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        // Half a second of records: as fast as it goes, all of them may be one transaction.
        var ended = cluster.run("ProducerPerformance", "--topic", topic, "--num-records", "5000", "--record-size", "100",
                        "--throughput", "10000", "--transactional-id", topic, "--transaction-duration-ms", "20")
                .well();
        contains("its report", ended.out(), "5000 records sent");
        equal("committed", 5_000, consume(cluster, topic, "read_committed", 5_000).size());
        Scenarios.await("its end", () -> state(cluster, topic).equals("CompleteCommit"));
        long end = Scenarios.offset(cluster.offsets(topic).get(0));
        that("several transactions have left their markers: " + end, end > 5_001);
    }

    private static void isolation(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        try (var producer = producer(cluster, topic)) {
            for (int round = 0; round < 3; round++) {
                begin(producer, topic, 10 * round, 10 * round + 10);
                if (round == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            begin(producer, topic, 30, 40);
            equal("all", values(0, 40), consume(cluster, topic, "read_uncommitted", 40));
            equal("committed", Stream.concat(values(0, 10).stream(), values(20, 30).stream()).toList(),
                    consume(cluster, topic, "read_committed", 20));
            // It waits for more, and gets nothing of what is open.
            var waits = cluster.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "4000",
                    "--isolation-level", "read_committed");
            equal("committed, up to the end", 20, waits.lines().size());
            producer.abortTransaction();
        }
    }

    static List<String> values(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> "value-" + i).toList();
    }

    private static List<String> consume(Cluster cluster, String topic, String isolation, int count) {
        return consume(cluster, topic, 0, isolation, count);
    }

    static List<String> consume(Cluster cluster, String topic, int partition, String isolation, int count) {
        return cluster.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "" + partition, "--offset", "earliest",
                        "--max-messages", "" + count, "--timeout-ms", "30000", "--isolation-level", isolation)
                .well()
                .lines();
    }
}
