package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/**
 * kafka-dump-log over a partition's files, copied while the broker runs: the log of each segment
 * record by record, its indexes against the log, and the producer snapshots.
 *
 * The active segment's log may end in zeros that the broker has set aside for more records; they
 * are cut from the copy, since the tool (rightly) reads none of them as a batch. Closed segments
 * are dumped as they are.
 */
final class DumpLog {
    private static final int RECORDS_PER_CODEC = 10_000;
    private static final int KEYS = 1_000;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    /** What the tool prints when something is wrong. */
    private static final Pattern COMPLAINT = Pattern.compile(
            "(?i)mismatch|non-consecutive|corrupt|out of order|invalid|exception|error|isvalid: false|could not");
    /**
     * The tool in 4.4 starts from offset -1 in every file, so it finds a gap before the first
     * record of each segment but the first. This one, when it is the only one, is no complaint.
     */
    private static final Pattern FIRST_OF_LATER_SEGMENT =
            Pattern.compile("Non-consecutive offsets in .*\\R\\s+-1 is followed by \\d+\\R(?!\\s+-?\\d+ is followed by)");

    /** Holes, of which the tool tells as well. */
    private static final Pattern HOLES = Pattern.compile("Non-consecutive offsets in .*\\R(\\s+-?\\d+ is followed by \\d+\\R?)+");

    private DumpLog() {}

    static void run(Cluster cluster) throws Exception {
        that("needs --data-dir", !cluster.dataDirs.isEmpty());
        // 1 MiB is the smallest segment; a small index interval makes for many index entries.
        String topic = cluster.newTopic(1, "--config", "segment.bytes=1048576", "--config", "index.interval.bytes=512");
        for (String codec : CODECS) {
            cluster.run("ProducerPerformance", "--topic", topic, "--num-records", "" + RECORDS_PER_CODEC,
                            "--record-size", "100", "--throughput", "-1", "--record-key-range", "1000", "--key-distribution", "random",
                            "--command-property", "compression.type=" + codec, "acks=all", "batch.size=4000")
                    .well();
        }
        int count = RECORDS_PER_CODEC * CODECS.size();
        equal("end offset", List.of(topic + ":0:" + count), cluster.offsets(topic));

        Path copy = Files.createTempDirectory("dump-log");
        try {
            Path partition = cluster.folder(topic + "-0");
            awaitClosed(partition);
            check(copyOf(partition, copy), count);
        } finally {
            try (var files = Files.walk(copy)) {
                for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(path);
                }
            }
        }
    }

    /** The same over segments that compaction has left. */
    static void runCompacted(Cluster cluster) throws Exception {
        that("needs --data-dir", !cluster.dataDirs.isEmpty());
        String topic = cluster.newTopic(1, "--config", "segment.bytes=1048576", "--config", "index.interval.bytes=512",
                "--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01");
        // The last ones fill a segment by themselves, so that those before are closed.
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd", "none")) {
            cluster.run("ProducerPerformance", "--topic", topic, "--num-records", "" + RECORDS_PER_CODEC,
                            "--record-size", "100", "--throughput", "-1", "--record-key-range", "" + KEYS, "--key-distribution", "random",
                            "--command-property", "compression.type=" + codec, "acks=all", "batch.size=4000")
                    .well();
        }
        Path copy = Files.createTempDirectory("dump-log");
        try {
            Path partition = cluster.folder(topic + "-0");
            awaitCompacted(partition);
            checkCompacted(copyOf(partition, copy));
        } finally {
            try (var files = Files.walk(copy)) {
                for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(path);
                }
            }
        }
    }

    /** Until the closed segments hold little more than a record for each key. */
    private static void awaitCompacted(Path partition) throws Exception {
        long deadline = System.nanoTime() + 45_000_000_000L;
        while (true) {
            long bytes = 0;
            try (var files = Files.list(partition)) {
                var logs = ending(files.sorted().toList(), ".log");
                for (Path log : logs.subList(0, logs.size() - 1)) {
                    bytes += Files.size(log);
                }
                if (logs.size() > 1 && bytes < KEYS * 200) {
                    return;
                }
            } catch (java.nio.file.NoSuchFileException e) {
                // Replaced while it was looked at.
            }
            that("waited 45 s for compaction; closed segments have " + bytes + " bytes", System.nanoTime() < deadline);
            Thread.sleep(100);
        }
    }

    private static void checkCompacted(List<Path> files) throws IOException {
        var logs = ending(files, ".log");
        var closed = logs.subList(0, logs.size() - 1);
        var seen = new java.util.HashSet<String>();
        long last = -1;
        int indexes = 0;
        for (Path log : closed) {
            String out = dump(HOLES, log, "--deep-iteration", "--print-data-log");
            var record = Pattern.compile("(?m)^\\| offset: (\\d+) .* key: (\\S+) payload: ").matcher(out);
            while (record.find()) {
                long offset = Long.parseLong(record.group(1));
                that(offset + " follows on " + last + " in " + log, offset > last);
                last = offset;
                that("key " + record.group(2) + " is there twice", seen.add(record.group(2)));
            }
            for (String suffix : List.of(".index", ".timeindex")) {
                Path index = beside(log, suffix);
                // A segment of which little is left needs none; the tool checks no empty one.
                if (Files.size(index) > 0) {
                    contains("sanity of " + index, dump(index, "--index-sanity-check"), "passed sanity check");
                    indexes++;
                }
                // The time of a batch that is kept empty has no record, of which the tool complains
                // with Apache Kafka's own files as well.
                if (suffix.equals(".index")) {
                    dump(index);
                }
            }
        }
        that("an index with entries", indexes > 0);
        that("keys that are left: " + seen.size(), seen.size() > KEYS / 2 && seen.size() <= KEYS);
    }

    private static void check(List<Path> files, int count) throws IOException {
        var logs = ending(files, ".log");
        that("several segments: " + logs, logs.size() >= 3);
        that("producer snapshots", !ending(files, ".snapshot").isEmpty());

        long next = 0;
        var codecs = new ArrayList<String>();
        for (Path log : logs) {
            String out = dump(log, "--deep-iteration", "--print-data-log");
            var starts = Pattern.compile("Log starting offset: (\\d+)").matcher(out);
            that("a starting offset of " + log, starts.find());
            equal("starting offset of " + log, next, Long.parseLong(starts.group(1)));
            var record = Pattern.compile("(?m)^\\| offset: (\\d+) .*payload: ").matcher(out);
            while (record.find()) {
                equal("offset in " + log, next++, Long.parseLong(record.group(1)));
            }
            Pattern.compile("compresscodec: (\\w+)").matcher(out).results()
                    .map(result -> result.group(1)).distinct().filter(codec -> !codecs.contains(codec)).forEach(codecs::add);
        }
        equal("records in all segments", (long) count, next);
        equal("codecs in order", CODECS, codecs);

        checkIndexes(logs, ".index", "offset: ");
        checkIndexes(logs, ".timeindex", "timestamp: ");
        for (Path snapshot : ending(files, ".snapshot")) {
            contains("producers in " + snapshot, dump(snapshot), "producerId: ");
        }
        checkTextFiles(files.get(0).getParent());
    }

    /** The two files that no tool shows, by the classes with which Kafka itself reads them. */
    private static void checkTextFiles(Path partition) throws IOException {
        var failures = new LogDirFailureChannel(1);
        var metadata = new PartitionMetadataFile(PartitionMetadataFile.newFile(partition.toFile()), failures).read();
        that("a topic id in " + metadata, !metadata.topicId().equals(Uuid.ZERO_UUID));
        var file = LeaderEpochCheckpointFile.newFile(partition.toFile());
        var epochs = new LeaderEpochCheckpointFile(file, failures).read();
        equal("leader epochs", 1, epochs.size());
        equal("start of the first epoch", 0L, epochs.get(0).startOffset());
    }

    /**
     * Each against its log, and the closed segments' for sanity. The open one's may have a zero tail
     * or be in the broker's memory only: it can be built from the log at any time.
     */
    private static void checkIndexes(List<Path> logs, String suffix, String entry) {
        Path open = logs.get(logs.size() - 1);
        for (Path log : logs) {
            Path index = beside(log, suffix);
            if (log.equals(open) && !Files.exists(index)) {
                continue;
            }
            that("entries in " + index, dump(index).lines().filter(line -> line.startsWith(entry)).count() > 1);
            if (!log.equals(open)) {
                contains("sanity of " + index, dump(index, "--index-sanity-check"), "passed sanity check");
            }
        }
    }

    private static String dump(Path file, String... arguments) {
        return dump(FIRST_OF_LATER_SEGMENT, file, arguments);
    }

    private static String dump(Pattern expected, Path file, String... arguments) {
        String[] all = new String[arguments.length + 2];
        all[0] = "--files";
        all[1] = file.toString();
        System.arraycopy(arguments, 0, all, 2, arguments.length);
        var ended = Tool.run("DumpLogSegments", all).well();
        String text = ended.out() + ended.err();
        var complaint = COMPLAINT.matcher(expected.matcher(text).replaceAll("").replaceAll("payload: .*", ""));
        if (complaint.find()) {
            var around = text.lines().filter(line -> COMPLAINT.matcher(line).find()).limit(3).toList();
            throw new AssertionError("dump of " + file + ": " + around);
        }
        return text;
    }

    /** The files of the partition, copied; sorted by name and so by offset. */
    static List<Path> copyOf(Path partition, Path to) throws IOException {
        try (var files = Files.list(partition)) {
            // What is half written goes or takes another name at any moment.
            var whole = files.filter(file -> !file.toString().matches(".*\\.(tmp|cleaned|swap|deleted)"));
            for (Path file : whole.toList()) {
                Files.copy(file, to.resolve(file.getFileName()));
            }
        }
        try (var files = Files.list(to)) {
            var copies = files.sorted().toList();
            var logs = ending(copies, ".log");
            cutZeroTail(logs.get(logs.size() - 1));
            return copies;
        }
    }

    /** A segment is closed behind the requests: its tail cut and its indexes written soon after. */
    private static void awaitClosed(Path partition) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            List<Path> open = new ArrayList<>();
            try (var files = Files.list(partition)) {
                var logs = ending(files.sorted().toList(), ".log");
                for (Path log : logs.subList(0, logs.size() - 1)) {
                    boolean indexed = Files.exists(beside(log, ".index")) && Files.exists(beside(log, ".timeindex"));
                    if (!indexed || endOfBatches(log) != Files.size(log)) {
                        open.add(log);
                    }
                }
            }
            if (open.isEmpty()) {
                return;
            }
            that("waited 30 s for segments to be closed: " + open, System.nanoTime() < deadline);
            Thread.sleep(100);
        }
    }

    private static Path beside(Path log, String suffix) {
        return log.resolveSibling(log.getFileName().toString().replace(".log", suffix));
    }

    private static void cutZeroTail(Path log) throws IOException {
        long end = endOfBatches(log);
        byte[] bytes = Files.readAllBytes(log);
        for (int i = (int) end; i < bytes.length; i++) {
            that("the tail of " + log + " is not zero at " + i, bytes[i] == 0);
        }
        try (var file = new RandomAccessFile(log.toFile(), "rw")) {
            file.setLength(end);
        }
    }

    /** Where the last batch ends: its offset (8 bytes) and length (4 bytes) lead each; length 0 is no batch. */
    private static long endOfBatches(Path log) throws IOException {
        var bytes = ByteBuffer.wrap(Files.readAllBytes(log));
        int position = 0;
        while (position + 12 <= bytes.limit() && bytes.getInt(position + 8) != 0) {
            position += 12 + bytes.getInt(position + 8);
        }
        return Math.min(position, bytes.limit());
    }

    static List<Path> ending(List<Path> files, String suffix) {
        return files.stream().filter(file -> file.toString().endsWith(suffix)).toList();
    }
}
