package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/** One scenario a tool; those of data directories and of kafka-dump-log have files of their own. */
final class Scenarios {
    private Scenarios() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("kafka-topics", Scenarios::topics);
        scenarios.put("kafka-configs", Scenarios::configs);
        scenarios.put("kafka-get-offsets", Scenarios::getOffsets);
        scenarios.put("kafka-producer-perf-test", Scenarios::producerPerfTest);
        scenarios.put("kafka-delete-records", Scenarios::deleteRecords);
        LogDirs.addTo(scenarios);
        scenarios.put("kafka-cluster", Scenarios::cluster);
        scenarios.put("kafka-storage", Scenarios::storage);
        scenarios.put("kafka-console-producer", Scenarios::consoleProducer);
        scenarios.put("kafka-console-consumer", Scenarios::consoleConsumer);
    }

    private static void topics(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(3, "--config", "retention.ms=3600000");
        that("listed", cluster.run("TopicCommand", "--list").well().lines().contains(topic));

        String described = describe(cluster, topic);
        contains("describe", described, "PartitionCount: 3");
        contains("describe", described, "ReplicationFactor: 1");
        contains("describe", described, "retention.ms=3600000");
        for (int partition = 0; partition < 3; partition++) {
            var line = Pattern.compile("Partition: " + partition + "\\s+Leader: (\\d+)\\s+Replicas: (\\d+)\\s+Isr: (\\d+)")
                    .matcher(described);
            that("line of partition " + partition + " in: " + described, line.find());
            equal("replicas", line.group(1), line.group(2));
            equal("isr", line.group(1), line.group(3));
        }

        var again = cluster.run("TopicCommand", "--create", "--topic", topic);
        that("creating it again ends with an error", again.code() != 0);
        contains("creating it again", again.out() + again.err(), "already exists");
        cluster.run("TopicCommand", "--create", "--if-not-exists", "--topic", topic).well();

        cluster.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "5").well();
        await("5 partitions", () -> describe(cluster, topic).contains("PartitionCount: 5"));
        var fewer = cluster.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "2");
        that("fewer partitions are refused", fewer.code() != 0);

        equal("under-replicated partitions", List.of(),
                cluster.run("TopicCommand", "--describe", "--topic", topic, "--under-replicated-partitions").well().lines());
        equal("unavailable partitions", List.of(),
                cluster.run("TopicCommand", "--describe", "--topic", topic, "--unavailable-partitions").well().lines());

        cluster.run("TopicCommand", "--delete", "--topic", topic).well();
        await("the topic to be gone", () -> !cluster.run("TopicCommand", "--list").well().lines().contains(topic));
        var gone = cluster.run("TopicCommand", "--describe", "--topic", topic);
        that("describing it then ends with an error", gone.code() != 0);
    }

    static String describe(Cluster cluster, String topic) {
        return cluster.run("TopicCommand", "--describe", "--topic", topic).well().out();
    }

    private static void configs(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        String[] describe = {"--describe", "--entity-type", "topics", "--entity-name", topic};
        cluster.run("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic,
                "--add-config", "retention.ms=123456789,cleanup.policy=[compact,delete]").well();
        await("the topic's configs", () -> {
            String out = cluster.run("ConfigCommand", describe).well().out();
            return out.contains("retention.ms=123456789") && out.contains("cleanup.policy=compact,delete")
                    && out.contains("DYNAMIC_TOPIC_CONFIG:retention.ms=123456789");
        });
        cluster.run("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic,
                "--delete-config", "retention.ms").well();
        await("the default again", () -> !cluster.run("ConfigCommand", describe).well().out().contains("retention.ms="));
        String all = cluster.run("ConfigCommand", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
                .well().out();
        contains("--all", all, "retention.ms=604800000");
        contains("--all", all, "max.message.bytes=1048588");
        contains("--all", all, "cleanup.policy=compact,delete");

        var unknown = cluster.run("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic,
                "--add-config", "no.such.key=1");
        that("an unknown key is refused", unknown.code() != 0);

        brokerConfigs(cluster, Integer.toString(leader(cluster, topic)));
    }

    private static void brokerConfigs(Cluster cluster, String node) throws Exception {
        String all = cluster.run("ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", node)
                .well().out();
        contains("broker " + node, all, "log.retention.hours=168");
        contains("broker " + node, all, "message.max.bytes=1048588");

        String[] describe = {"--describe", "--entity-type", "brokers", "--entity-default"};
        // The value is the default, so nothing changes for whoever else uses this broker.
        cluster.run("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-default",
                "--add-config", "log.segment.delete.delay.ms=60000").well();
        await("the cluster-wide default", () ->
                cluster.run("ConfigCommand", describe).well().out().contains("log.segment.delete.delay.ms=60000"));
        cluster.run("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-default",
                "--delete-config", "log.segment.delete.delay.ms").well();
        await("it to be gone", () ->
                !cluster.run("ConfigCommand", describe).well().out().contains("log.segment.delete.delay.ms="));
    }

    private static int leader(Cluster cluster, String topic) {
        var leader = Pattern.compile("Partition: 0\\s+Leader: (\\d+)").matcher(describe(cluster, topic));
        that("a leader", leader.find());
        return Integer.parseInt(leader.group(1));
    }

    private static void getOffsets(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(2);
        long before = System.currentTimeMillis();
        cluster.produceLines(topic, 50);
        var latest = cluster.offsets(topic);
        equal("records in both partitions", 50L, latest.stream().mapToLong(Scenarios::offset).sum());
        equal("--time latest", latest, cluster.offsets(topic, "--time", "latest"));
        equal("--time earliest", List.of(topic + ":0:0", topic + ":1:0"), cluster.offsets(topic, "--time", "earliest"));
        for (String line : cluster.offsets(topic, "--time", "" + before)) {
            equal("first offset from " + before, 0L, offset(line));
        }
        var newest = cluster.offsets(topic, "--time", "max-timestamp");
        equal("lines for max-timestamp", 2, newest.size());
        for (int i = 0; i < 2; i++) {
            long offset = offset(newest.get(i));
            that("offset of the newest record: " + offset, offset >= 0 && offset < offset(latest.get(i)));
        }
        equal("one partition", List.of(latest.get(1)), cluster.offsets(topic, "--partitions", "1"));
        equal("after all", List.of(), cluster.offsets(topic, "--time", "" + (System.currentTimeMillis() + 3_600_000)));
        var unknown = cluster.run("GetOffsetShell", "--topic", topic + "-no");
        that("an unknown topic ends with an error", unknown.code() != 0);
    }

    static long offset(String line) {
        return Long.parseLong(line.substring(line.lastIndexOf(':') + 1));
    }

    private static void producerPerfTest(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(4);
        for (String acks : List.of("all", "1")) {
            var ended = cluster.run("ProducerPerformance", "--topic", topic, "--num-records", "20000",
                            "--record-size", "100", "--throughput", "-1", "--command-property", "acks=" + acks)
                    .well();
            contains("its report", ended.out(), "20000 records sent");
        }
        equal("records in the topic", 40_000L, cluster.offsets(topic).stream().mapToLong(Scenarios::offset).sum());
    }

    private static void deleteRecords(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        cluster.produceLines(topic, 10);
        deleteBefore(cluster, topic, 4, "low_watermark: 4");
        equal("earliest", List.of(topic + ":0:4"), cluster.offsets(topic, "--time", "earliest"));
        equal("latest", List.of(topic + ":0:10"), cluster.offsets(topic));
        deleteBefore(cluster, topic, -1, "low_watermark: 10");
        equal("earliest", List.of(topic + ":0:10"), cluster.offsets(topic, "--time", "earliest"));
        deleteBefore(cluster, topic, 11, "error");
    }

    private static void deleteBefore(Cluster cluster, String topic, long offset, String says) throws Exception {
        Path file = Files.createTempFile("delete-records", ".json");
        try {
            Files.writeString(file, String.format(
                    "{\"version\": 1, \"partitions\": [{\"topic\": \"%s\", \"partition\": 0, \"offset\": %d}]}", topic, offset));
            var ended = cluster.run("DeleteRecordsCommand", "--offset-json-file", file.toString()).well();
            contains("its report", ended.out(), topic + "-0");
            contains("its report", ended.out(), says);
        } finally {
            Files.delete(file);
        }
    }

    private static void cluster(Cluster cluster) {
        var id = Tool.run("ClusterTool", "cluster-id", "--bootstrap-server", cluster.bootstrap).well();
        that("a cluster id in: " + id.out(), Pattern.compile("Cluster ID: [A-Za-z0-9_-]{22}").matcher(id.out()).find());
        var endpoints = Tool.run("ClusterTool", "list-endpoints", "--bootstrap-server", cluster.bootstrap).well();
        contains("endpoints", endpoints.out(), cluster.bootstrap.substring(cluster.bootstrap.lastIndexOf(':') + 1));
    }

    /** What `kafka-storage info` reads from the data directory is what the broker says of itself. */
    private static void storage(Cluster cluster) throws Exception {
        that("needs --data-dir", !cluster.dataDirs.isEmpty());
        Path file = Files.createTempFile("server", ".properties");
        try {
            Files.writeString(file, "process.roles=broker,controller\nnode.id=1\nlog.dirs=" + cluster.dataDirs
                    + "\nlisteners=PLAINTEXT://:1,CONTROLLER://:2\ncontroller.listener.names=CONTROLLER"
                    + "\ncontroller.quorum.bootstrap.servers=localhost:2\n");
            String info = Tool.run("kafka.tools.StorageTool", "info", "-c", file.toString()).well().out();
            for (String dir : cluster.dataDirs.split(",")) {
                contains("info", info, dir);
            }
            var told = Tool.run("ClusterTool", "cluster-id", "--bootstrap-server", cluster.bootstrap).well().out();
            contains("info", info, "cluster.id=" + told.strip().replaceFirst("Cluster ID: ", ""));
            that("problems in: " + info, !info.contains("Found problem"));
        } finally {
            Files.delete(file);
        }
    }

    private static void consoleProducer(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        cluster.produceLines(topic, 20);
        cluster.runWith("h1:a,h2:b\tplain key\tplain value\n", "ConsoleProducer", "--topic", topic, "--sync",
                        "--compression-codec", "zstd", "--request-required-acks", "1",
                        "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true")
                .well();
        var lines = consume(cluster, topic, "20", 1,
                "--formatter-property", "print.headers=true", "--formatter-property", "print.key=true");
        equal("the record with headers", List.of("h1:a,h2:b\tplain key\tplain value"), lines);
        equal("records in the topic", List.of(topic + ":0:21"), cluster.offsets(topic));
    }

    private static void consoleConsumer(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        cluster.produceLines(topic, 20);
        equal("from earliest", IntStream.range(0, 20).mapToObj(i -> "value-" + i).toList(),
                consume(cluster, topic, "earliest", 20));
        equal("from offset 7", List.of("Offset:7\tkey-7\tvalue-7", "Offset:8\tkey-8\tvalue-8"),
                consume(cluster, topic, "7", 2,
                        "--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"));
    }

    private static List<String> consume(Cluster cluster, String topic, String from, int count, String... arguments) {
        String[] all = new String[arguments.length + 10];
        String[] first = {"--topic", topic, "--partition", "0", "--offset", from, "--max-messages", "" + count,
                "--timeout-ms", "30000"};
        System.arraycopy(first, 0, all, 0, 10);
        System.arraycopy(arguments, 0, all, 10, arguments.length);
        return cluster.run("consumer.ConsoleConsumer", all).well().lines();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.holds()) {
            that("waited 30 s for " + what, System.nanoTime() < deadline);
            Thread.sleep(50);
        }
    }
}
