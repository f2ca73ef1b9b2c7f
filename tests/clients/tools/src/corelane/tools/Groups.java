package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka's tools for consumer groups. */
final class Groups {
    private static final String COMMAND = "consumer.group.ConsumerGroupCommand";

    private Groups() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("kafka-console-consumer-group", Groups::consoleConsumer);
        scenarios.put("kafka-consumer-groups", Groups::describe);
        scenarios.put("kafka-consumer-groups-reset", Groups::reset);
        scenarios.put("kafka-consumer-groups-delete", Groups::delete);
        scenarios.put("kafka-groups", Groups::groups);
        scenarios.put("kafka-verifiable-consumer", Groups::verifiableConsumer);
        scenarios.put("kafka-consumer-perf-test", Groups::perfTest);
        scenarios.put("kafka-features", Groups::features);
        scenarios.put("kafka-dump-log-offsets", Groups::dumpOffsets);
    }

    /** A group reads, stops, and goes on where it was; with both protocols. */
    private static void consoleConsumer(Cluster cluster) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = cluster.newTopic(1);
            cluster.produceLines(topic, 20);
            equal("the first part", values(0, 12), consume(cluster, topic, topic, protocol, 12));
            equal("the second part", values(12, 20), consume(cluster, topic, topic, protocol, 8));
            equal("committed", Map.of(0, 20L), current(cluster, topic));
        }
    }

    private static List<String> values(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> "value-" + i).toList();
    }

    private static List<String> consume(Cluster cluster, String topic, String group, String protocol, int count) {
        return cluster.run("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning",
                        "--max-messages", "" + count, "--timeout-ms", "30000",
                        "--command-property", "group.protocol=" + protocol)
                .well()
                .lines();
    }

    /** A group with two partitions read by it, of which nobody is a member. */
    private static String groupThatHasRead(Cluster cluster, String topic, int count) {
        cluster.produceLines(topic, count);
        equal("records", count, consume(cluster, topic, topic, "classic", count).size());
        return topic;
    }

    private static List<String> command(Cluster cluster, String... arguments) {
        return cluster.run(COMMAND, arguments).well().lines();
    }

    /** Current offsets by partition, as --describe tells them. */
    private static Map<Integer, Long> current(Cluster cluster, String group) {
        Map<Integer, Long> offsets = new TreeMap<>();
        for (String line : command(cluster, "--describe", "--group", group)) {
            String[] cells = line.split("\\s+");
            if (cells[0].equals(group) && !cells[3].equals("-")) {
                offsets.put(Integer.parseInt(cells[2]), Long.parseLong(cells[3]));
            }
        }
        return offsets;
    }

    private static void describe(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(2);
        String group = groupThatHasRead(cluster, topic, 20);
        cluster.produceLines(topic, 10);
        that("listed", command(cluster, "--list").contains(group));
        var states = String.join("\n", command(cluster, "--list", "--state"));
        that("listed as empty: " + states, Pattern.compile(group + "\\s+Empty").matcher(states).find());
        that("listed by another state", command(cluster, "--list", "--state", "Stable").stream().noneMatch(l -> l.startsWith(group)));
        var types = String.join("\n", command(cluster, "--list", "--type"));
        that("listed as classic: " + types, Pattern.compile(group + "\\s+Classic").matcher(types).find());

        var ended = cluster.run(COMMAND, "--describe", "--group", group).well();
        contains("describe", ended.out() + ended.err(), "has no active members");
        long lag = 0;
        for (String line : ended.lines()) {
            String[] cells = line.split("\\s+");
            if (cells[0].equals(group)) {
                equal("lag of " + line, Long.parseLong(cells[4]) - Long.parseLong(cells[3]), Long.parseLong(cells[5]));
                lag += Long.parseLong(cells[5]);
            }
        }
        equal("lag", 10L, lag);

        for (String protocol : List.of("classic", "consumer")) {
            try (var member = new Member(cluster, group, topic, protocol)) {
                var members = String.join("\n", command(cluster, "--describe", "--group", group, "--members", "--verbose"));
                var line = Pattern.compile(group + "\\s+\\S+\\s+/127.0.0.1\\s+the-member\\s+2\\s").matcher(members);
                that("a member with two partitions in: " + members, line.find());
                var state = String.join("\n", command(cluster, "--describe", "--group", group, "--state"));
                that("stable with one member: " + state, Pattern.compile("Stable\\s+1").matcher(state).find());
                var offsets = String.join("\n", command(cluster, "--describe", "--group", group));
                that("offsets with their member: " + offsets,
                        Pattern.compile(topic + "\\s+0\\s+\\d+\\s+\\d+\\s+0\\s+\\S+\\s+/127.0.0.1\\s+the-member").matcher(offsets).find());
            }
        }
        var unknown = cluster.run(COMMAND, "--describe", "--group", "not-" + group);
        contains("an unknown group", unknown.out() + unknown.err(), "not found");
    }

    /** A consumer that polls in the background until it is closed; it has everything when it is made. */
    private static final class Member implements AutoCloseable {
        private final Thread thread;
        private volatile boolean stop = false;
        private volatile boolean ready = false;

        Member(Cluster cluster, String group, String topic, String protocol) throws Exception {
            Map<String, Object> settings = Map.of("bootstrap.servers", cluster.bootstrap, "group.id", group,
                    "group.protocol", protocol, "client.id", "the-member", "auto.offset.reset", "earliest");
            thread = new Thread(() -> {
                try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                    consumer.subscribe(List.of(topic));
                    while (!stop) {
                        consumer.poll(Duration.ofMillis(100));
                        consumer.commitSync();
                        ready = !consumer.assignment().isEmpty()
                                && consumer.assignment().stream().allMatch(p -> consumer.currentLag(p).orElse(1) == 0);
                    }
                }
            });
            thread.start();
            Scenarios.await("a member", () -> ready);
        }

        @Override
        public void close() throws InterruptedException {
            stop = true;
            thread.join();
        }
    }

    /** Every way to say where to, first only shown and then done. */
    private static void reset(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        String group = groupThatHasRead(cluster, topic, 20);
        long before = System.currentTimeMillis();
        cluster.produceLines(topic, 10);
        equal("shown only", 5L, reset(cluster, group, topic, "--to-offset", "5", "--dry-run"));
        equal("nothing done", Map.of(0, 20L), current(cluster, group));
        var date = java.time.Instant.ofEpochMilli(before).toString().replace("Z", "");
        for (var goal : List.of(
                List.of("5", "--to-offset", "5"), List.of("7", "--shift-by", "2"), List.of("4", "--shift-by", "-3"),
                List.of("0", "--to-earliest"), List.of("30", "--to-latest"), List.of("30", "--to-current"),
                List.of("20", "--to-datetime", date), List.of("0", "--by-duration", "PT1H"),
                List.of("30", "--to-offset", "1000"), List.of("0", "--shift-by", "-1000"))) {
            var arguments = new ArrayList<>(goal.subList(1, goal.size()));
            arguments.add("--execute");
            long expected = Long.parseLong(goal.get(0));
            equal(goal + " says", expected, reset(cluster, group, topic, arguments.toArray(String[]::new)));
            equal(goal + " does", Map.of(0, expected), current(cluster, group));
        }
        var exported = cluster.run(COMMAND, "--reset-offsets", "--group", group, "--all-topics", "--to-offset", "9", "--export", "--dry-run").well();
        var file = Files.createTempFile("offsets", ".csv");
        try {
            var lines = exported.lines().stream().filter(line -> line.contains(",")).toList();
            equal("exported", 1, lines.size());
            Files.write(file, lines);
            cluster.run(COMMAND, "--reset-offsets", "--group", group, "--from-file", file.toString(), "--execute").well();
        } finally {
            Files.delete(file);
        }
        equal("from the file", Map.of(0, 9L), current(cluster, group));
        equal("what is read then", values(9, 12), consume(cluster, topic, group, "consumer", 3));
        try (var member = new Member(cluster, group, topic, "consumer")) {
            var refused = cluster.run(COMMAND, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute");
            contains("a group in use", refused.out() + refused.err(), "inactive");
        }
    }

    /** The new offset that the tool names. */
    private static long reset(Cluster cluster, String group, String topic, String... arguments) {
        var all = new ArrayList<>(List.of("--reset-offsets", "--group", group, "--topic", topic));
        all.addAll(Arrays.asList(arguments));
        var lines = command(cluster, all.toArray(String[]::new));
        var line = lines.stream().filter(l -> l.startsWith(group)).findFirst().orElseThrow(() -> new AssertionError("no line in " + lines));
        return Long.parseLong(line.split("\\s+")[3]);
    }

    private static void delete(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        String group = groupThatHasRead(cluster, topic, 20);
        try (var member = new Member(cluster, group, topic, "classic")) {
            var offsets = cluster.run(COMMAND, "--delete-offsets", "--group", group, "--topic", topic);
            contains("offsets that are in use", offsets.out() + offsets.err(), "Error");
            var whole = cluster.run(COMMAND, "--delete", "--group", group);
            contains("a group in use", whole.out() + whole.err(), "not empty");
        }
        var done = command(cluster, "--delete-offsets", "--group", group, "--topic", topic);
        contains("deleting offsets", String.join("\n", done), "Successful");
        equal("offsets", Map.of(), current(cluster, group));
        consume(cluster, topic, group, "consumer", 20);
        contains("deleting", String.join("\n", command(cluster, "--delete", "--group", group)), "was successful");
        that("not listed", !command(cluster, "--list").contains(group));
    }

    private static void groups(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        String group = groupThatHasRead(cluster, topic, 20);
        consume(cluster, topic, group + "-new", "consumer", 20);
        var listed = cluster.run("GroupsCommand", "--list").well().out();
        that("both groups in: " + listed, Pattern.compile(group + "\\s+Classic\\s+consumer").matcher(listed).find()
                && Pattern.compile(group + "-new\\s+Consumer\\s+consumer").matcher(listed).find());
        var only = cluster.run("GroupsCommand", "--list", "--group-type", "consumer").well().out();
        that("only one of them in: " + only, only.contains(group + "-new") && !Pattern.compile(group + "\\s").matcher(only).find());
    }

    /** It says everything that it goes through as JSON. */
    private static void verifiableConsumer(Cluster cluster) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = cluster.newTopic(4);
            cluster.produceLines(topic, 50);
            var out = cluster.run("VerifiableConsumer", "--topic", topic, "--group-id", topic, "--max-messages", "50",
                            "--group-protocol", protocol, "--reset-policy", "earliest")
                    .well().out();
            for (String event : List.of("partitions_assigned", "records_consumed", "offsets_committed", "shutdown_complete")) {
                contains(protocol, out, "\"name\":\"" + event + "\"");
            }
            that("no failure in: " + out, !out.contains("\"success\":false"));
            equal("committed", 50L, current(cluster, topic).values().stream().mapToLong(Long::longValue).sum());
        }
    }

    private static void perfTest(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(2);
        cluster.produceLines(topic, 5_000);
        var lines = cluster.run("ConsumerPerformance", "--topic", topic, "--num-records", "5000", "--timeout", "30000").well().lines();
        var figures = lines.get(lines.size() - 1).split(",\\s*");
        equal("records", "5000", figures[4]);
    }

    /** The topic of offsets, read by the tool that knows its records. */
    private static void dumpOffsets(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        cluster.produceLines(topic, 20);
        for (String protocol : List.of("classic", "consumer")) {
            String group = topic + "-" + protocol;
            consume(cluster, topic, group, protocol, 20);
            var partition = cluster.folder("__consumer_offsets-" + Math.abs(group.hashCode()) % 50);
            var copy = Files.createTempDirectory("dump-log");
            try {
                var out = new StringBuilder();
                for (var log : DumpLog.ending(DumpLog.copyOf(partition, copy), ".log")) {
                    out.append(Tool.run("DumpLogSegments", "--offsets-decoder", "--files", log.toString()).well().out());
                }
                var text = out.toString();
                that("its offsets in: " + text, Pattern.compile("\"group\":\"" + group + "\",\"topic\":\"" + topic
                        + "\",\"partition\":0.*\"offset\":20").matcher(text).find());
                contains("its members", text, protocol.equals("classic") ? "\"protocolType\":\"consumer\"" : "\"subscribedTopicNames\":[\"" + topic + "\"]");
                that("no complaint in: " + text, !text.toLowerCase().contains("error"));
            } finally {
                try (var files = Files.walk(copy)) {
                    for (var path : files.sorted(java.util.Comparator.reverseOrder()).toList()) {
                        Files.delete(path);
                    }
                }
            }
        }
    }

    private static void features(Cluster cluster) throws Exception {
        String group = "group.version";
        var described = cluster.run("FeatureCommand", "describe").well().out();
        that(group + " in: " + described, Pattern.compile("Feature: " + group + "\\s+SupportedMinVersion: 0\\s+SupportedMaxVersion: 1\\s+FinalizedVersionLevel: 1").matcher(described).find());
        var dry = cluster.run("FeatureCommand", "downgrade", "--feature", group + "=0", "--dry-run");
        contains("a dry run", dry.out() + dry.err(), "can be");
        var above = cluster.run("FeatureCommand", "upgrade", "--feature", group + "=7");
        that("a level that does not exist is refused", above.code() != 0);
    }
}
