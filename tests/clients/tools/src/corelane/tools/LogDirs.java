package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** Where partitions lie, and moving them: kafka-log-dirs and kafka-reassign-partitions. */
final class LogDirs {
    /** Bytes in a second: a move of some MB then lasts longer than looking at it takes. */
    private static final String SLOW = "100000";
    private static final int RECORDS = 6_000;

    private LogDirs() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("kafka-log-dirs", LogDirs::logDirs);
        scenarios.put("kafka-reassign-partitions", LogDirs::reassign);
        scenarios.put("kafka-reassign-log-dirs", LogDirs::reassignLogDirs);
    }

    private static void logDirs(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(4);
        cluster.produceLines(topic, 100);
        var sizes = new TreeMap<String, Long>();
        for (var broker : describe(cluster, "--topic-list", topic)) {
            var paths = new TreeSet<String>();
            for (var dir : broker.get("logDirs")) {
                that("an error in " + dir, dir.get("error").isNull());
                that("told once", paths.add(dir.get("logDir").asText()));
                for (var partition : dir.get("partitions")) {
                    sizes.merge(partition.get("partition").asText(), partition.get("size").asLong(), Long::sum);
                    equal("offset lag", 0L, partition.get("offsetLag").asLong());
                    equal("future", false, partition.get("isFuture").asBoolean());
                }
            }
        }
        equal("partitions", List.copyOf(IntStream.range(0, 4).mapToObj(p -> topic + "-" + p).toList()),
                List.copyOf(sizes.keySet()));
        that("sizes: " + sizes, sizes.values().stream().mapToLong(Long::longValue).sum() > 100);
    }

    /** Moves partitions to other brokers and directories, as far as there are others. */
    private static void reassign(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(2);
        cluster.produceLines(topic, 100);
        var brokers = describe(cluster);
        var last = brokers.get(brokers.size() - 1);
        int broker = last.get("broker").asInt();
        var dirs = last.get("logDirs");
        Path file = Files.createTempFile("reassign", ".json");
        Path topics = Files.createTempFile("topics", ".json");
        try {
            Files.writeString(topics, "{\"version\":1,\"topics\":[{\"topic\":\"" + topic + "\"}]}");
            String proposed = reassignPartitions(cluster, "--generate", "--topics-to-move-json-file", topics.toString(),
                    "--broker-list", "" + broker).well().out();
            contains("generate", proposed, "Proposed partition reassignment configuration");
            var parts = new java.util.ArrayList<String>();
            for (int partition = 0; partition < 2; partition++) {
                String dir = dirs.get(partition % dirs.size()).get("logDir").asText();
                parts.add(String.format("{\"topic\":\"%s\",\"partition\":%d,\"replicas\":[%d],\"log_dirs\":[\"%s\"]}",
                        topic, partition, broker, dir));
            }
            Files.writeString(file, "{\"version\":1,\"partitions\":[" + String.join(",", parts) + "]}");
            String[] verify = {"--verify", "--reassignment-json-file", file.toString()};
            String started = reassignPartitions(cluster, "--execute", "--reassignment-json-file", file.toString(),
                    "--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000").well().out();
            contains("execute", started, "Successfully started partition reassignments for " + topic + "-0," + topic + "-1");
            Scenarios.await("both moves", () -> {
                String out = reassignPartitions(cluster, verify).well().out();
                return out.contains("Reassignment of partition " + topic + "-0 is completed")
                        && out.contains("Reassignment of partition " + topic + "-1 is completed")
                        && out.contains("Reassignment of replica " + topic + "-0-" + broker + " completed successfully")
                        && out.contains("Reassignment of replica " + topic + "-1-" + broker + " completed successfully");
            });
            contains("list", reassignPartitions(cluster, "--list").well().out(), "No partition reassignments found.");
            that("the leader is the new broker", Pattern.compile("Partition: 0\\s+Leader: " + broker + "\\s")
                    .matcher(Scenarios.describe(cluster, topic)).find());
            long records = cluster.offsets(topic).stream()
                    .mapToLong(line -> Long.parseLong(line.substring(line.lastIndexOf(':') + 1))).sum();
            equal("records", 100L, records);
            Files.writeString(file, "{\"version\":1,\"partitions\":[{\"topic\":\"" + topic
                    + "\",\"partition\":0,\"replicas\":[424242]}]}");
            var unknown = reassignPartitions(cluster, "--execute", "--reassignment-json-file", file.toString());
            that("an unknown broker is refused", unknown.code() != 0);
        } finally {
            Files.delete(file);
            Files.delete(topics);
        }
    }

    private static Tool.Ended reassignPartitions(Cluster cluster, String... arguments) {
        return cluster.run("reassign.ReassignPartitionsCommand", arguments);
    }

    /** Between two directories of the partition's own broker: called off once, then done. */
    private static void reassignLogDirs(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1, "--config", "segment.bytes=1048576");
        cluster.run("ProducerPerformance", "--topic", topic, "--num-records", "" + RECORDS, "--record-size", "1000",
                        "--throughput", "-1", "--command-property", "acks=all")
                .well();
        var line = Pattern.compile("Partition: 0\\s+Leader: (\\d+)\\s").matcher(Scenarios.describe(cluster, topic));
        that("a leader", line.find());
        int broker = Integer.parseInt(line.group(1));
        var before = places(cluster, broker, topic);
        that("two data directories: " + before, before.size() >= 2);
        String home = only(before, "here");
        String other = only(before, "absent");

        Path file = Files.createTempFile("reassign", ".json");
        try {
            Files.writeString(file, String.format("{\"version\":1,\"partitions\":[{\"topic\":\"%s\",\"partition\":0,"
                    + "\"replicas\":[%d],\"log_dirs\":[\"%s\"]}]}", topic, broker, other));
            String replica = topic + "-0-" + broker;
            String[] verify = {"--verify", "--reassignment-json-file", file.toString()};

            String started = reassignPartitions(cluster, "--execute", "--reassignment-json-file", file.toString(),
                    "--replica-alter-log-dirs-throttle", SLOW).well().out();
            contains("execute", started, startedMove(other, topic, broker));
            var during = places(cluster, broker, topic);
            equal("here during the move", "here", during.get(home));
            equal("there during the move", "copy", during.get(other));
            contains("verify", reassignPartitions(cluster, "--verify", "--preserve-throttles", "--reassignment-json-file",
                    file.toString()).well().out(), "Reassignment of replica " + replica + " is still in progress.");
            String cancelled = reassignPartitions(cluster, "--cancel", "--reassignment-json-file", file.toString()).well().out();
            // It is a move back to where the partition still is.
            contains("cancel", cancelled, startedMove(home, topic, broker));
            Scenarios.await("the move to be off", () -> places(cluster, broker, topic).equals(before));
            contains("verify", reassignPartitions(cluster, verify).well().out(),
                    "Partition " + topic + "-0 on broker " + broker + " is not being moved from log dir " + home + " to " + other);

            reassignPartitions(cluster, "--execute", "--reassignment-json-file", file.toString()).well();
            Scenarios.await("the move", () -> reassignPartitions(cluster, verify).well().out()
                    .contains("Reassignment of replica " + replica + " completed successfully."));
            var after = places(cluster, broker, topic);
            equal("where it was", "absent", after.get(home));
            equal("where it is", "here", after.get(other));
        } finally {
            Files.delete(file);
        }
        equal("end offset", List.of(topic + ":0:" + RECORDS), cluster.offsets(topic));
        var offsets = cluster.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest",
                        "--max-messages", "" + RECORDS, "--timeout-ms", "20000", "--formatter-property", "print.offset=true",
                        "--formatter-property", "print.value=false")
                .well().lines();
        equal("offsets read", IntStream.range(0, RECORDS).mapToObj(i -> "Offset:" + i).toList(), offsets);
    }

    private static String startedMove(String dir, String topic, int broker) {
        return "Successfully started moving log directory to " + dir + " for replica " + topic + "-0 with broker " + broker;
    }

    /** Of each data directory of a broker: `here`, `copy` or `absent`, by what it has of partition 0. */
    private static Map<String, String> places(Cluster cluster, int broker, String topic) throws Exception {
        var places = new TreeMap<String, String>();
        for (var described : describe(cluster, "--topic-list", topic, "--broker-list", "" + broker)) {
            equal("broker", broker, described.get("broker").asInt());
            for (var dir : described.get("logDirs")) {
                that("an error in " + dir, dir.get("error").isNull());
                String place = "absent";
                for (var partition : dir.get("partitions")) {
                    equal("partition", topic + "-0", partition.get("partition").asText());
                    place = partition.get("isFuture").asBoolean() ? "copy" : "here";
                }
                places.put(dir.get("logDir").asText(), place);
            }
        }
        return places;
    }

    private static String only(Map<String, String> places, String place) {
        return places.entrySet().stream().filter(entry -> entry.getValue().equals(place)).map(Map.Entry::getKey)
                .findFirst()
                .orElseThrow(() -> new AssertionError("none is " + place + " of " + places));
    }

    /** The brokers of what `kafka-log-dirs --describe` prints. */
    private static JsonNode describe(Cluster cluster, String... arguments) throws Exception {
        var all = Stream.concat(Stream.of("--describe"), Arrays.stream(arguments)).toArray(String[]::new);
        String json = cluster.run("LogDirsCommand", all).well().lines().stream()
                .filter(line -> line.startsWith("{"))
                .findFirst()
                .orElseThrow(() -> new AssertionError("no JSON"));
        return new ObjectMapper().readTree(json).get("brokers");
    }
}
