package corelane.tools;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;

/** The broker under test, and the tool calls that several scenarios make. */
final class Cluster {
    /** The real ones: while a tool runs, System.out and System.err are its own. */
    static final PrintStream STDOUT = System.out;
    static final PrintStream STDERR = System.err;

    final String bootstrap;
    /** The broker's data directories, separated by commas. */
    final String dataDirs;
    private final String scenario;

    Cluster(String bootstrap, String dataDirs, String scenario) {
        this.bootstrap = bootstrap;
        this.dataDirs = dataDirs;
        this.scenario = scenario;
    }

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    /** Runs a tool with `--bootstrap-server` in front of the other arguments. */
    Tool.Ended run(String tool, String... arguments) {
        return runWith("", tool, arguments);
    }

    Tool.Ended runWith(String in, String tool, String... arguments) {
        return Tool.runWith(in, tool, Stream.concat(Stream.of("--bootstrap-server", bootstrap), Arrays.stream(arguments))
                .toArray(String[]::new));
    }

    /** A fresh topic that answers; more arguments go to kafka-topics. */
    String newTopic(int partitions, String... arguments) throws InterruptedException {
        String topic = String.format("%s-tools-%08x", scenario, new Random().nextInt());
        run("TopicCommand", Stream.concat(
                        Stream.of("--create", "--topic", topic, "--partitions", "" + partitions, "--replication-factor", "1"),
                        Arrays.stream(arguments))
                .toArray(String[]::new)).well();
        // A leader may be named a moment before it serves; offsets come when it does.
        for (int tries = 0; offsets(topic).size() != partitions; tries++) {
            if (tries == 300) {
                throw new AssertionError("no leaders of " + topic);
            }
            Thread.sleep(50);
        }
        return topic;
    }

    /** kafka-get-offsets' lines for a topic, or none while it cannot tell. */
    List<String> offsets(String topic, String... arguments) {
        var ended = run("GetOffsetShell", Stream.concat(Stream.of("--topic", topic), Arrays.stream(arguments))
                .toArray(String[]::new));
        return ended.code() == 0 ? ended.lines().stream().filter(line -> line.startsWith(topic + ":")).toList() : List.of();
    }

    /** `count` lines `key-<i>` TAB `value-<i>` through kafka-console-producer. */
    void produceLines(String topic, int count) {
        var lines = new StringBuilder();
        for (int i = 0; i < count; i++) {
            lines.append("key-").append(i).append('\t').append("value-").append(i).append('\n');
        }
        runWith(lines.toString(), "ConsoleProducer", "--topic", topic,
                        "--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
                .well();
    }

    /** The folder of a partition that exists, in one of the data directories. */
    Path folder(String partition) {
        that("needs --data-dir", !dataDirs.isEmpty());
        return Arrays.stream(dataDirs.split(",")).map(dir -> Path.of(dir, partition)).filter(Files::isDirectory)
                .findFirst()
                .orElseThrow(() -> new AssertionError("no " + partition + " in " + dataDirs));
    }

    static void equal(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    static void contains(String what, String text, String part) {
        if (!text.contains(part)) {
            throw new AssertionError(what + ": no '" + part + "' in: " + text);
        }
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
