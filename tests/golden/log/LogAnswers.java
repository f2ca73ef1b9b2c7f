// Answers the scripts of this folder with the classes of Kafka's broker and rewrites them:
// "OPERATION = ANSWER" a line.
//
//   java LogAnswers.java producers producers.txt
//   java LogAnswers.java epochs epochs.txt

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public final class LogAnswers {
    private static final int EXPIRATION_MS = 60_000;
    private static final FixedTime TIME = new FixedTime();

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[1]);
        File dir = new File(Files.createTempDirectory("answers").toFile(), "t-0");
        dir.mkdirs();
        Answers answers = args[0].equals("producers") ? new Producers(dir) : new Epochs(dir);
        List<String> out = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String operation = line.split(" = ")[0];
            out.add(line.startsWith("#") ? line : operation + " = " + answers.to(operation.split(" ")));
        }
        Files.write(file, out);
        System.exit(0);
    }

    private interface Answers {
        String to(String[] operation) throws Exception;
    }

    /** One log, all producers of it. */
    private static final class Producers implements Answers {
        private final File dir;
        private final UnifiedLog log;

        Producers(File dir) throws Exception {
            this.dir = dir;
            log = UnifiedLog.create(dir, new LogConfig(Map.of()), 0, 0, new NoScheduler(), new BrokerTopicStats(),
                TIME, 3_600_000, new ProducerStateManagerConfig(EXPIRATION_MS, false), 600_000,
                new LogDirFailureChannel(1), true, Optional.empty());
        }

        public String to(String[] o) throws Exception {
            String answer = switch (o[0]) {
                case "data" -> append(data(o), AppendOrigin.CLIENT, (short) 0);
                case "end" -> append(marker(o), AppendOrigin.COORDINATOR, Short.parseShort(o[5]));
                case "high-watermark" -> {
                    log.updateHighWatermark(Math.min(log.highWatermark() + Long.parseLong(o[1]), log.logEndOffset()));
                    yield "" + log.highWatermark();
                }
                case "expire" -> {
                    log.producerStateManager().removeExpiredProducers(Long.parseLong(o[1]));
                    yield "" + log.producerStateManager().producerIdCount();
                }
                case "snapshot" -> snapshot();
                default -> throw new IllegalArgumentException(o[0]);
            };
            return answer + " | " + log.lastStableOffset() + " "
                + log.producerStateManager().firstUnstableOffset().map(offset -> offset.messageOffset).orElse(-1L);
        }

        private static MemoryRecords data(String[] o) {
            SimpleRecord[] records = new SimpleRecord[Integer.parseInt(o[4])];
            for (int i = 0; i < records.length; i++) {
                records[i] = new SimpleRecord(Long.parseLong(o[6]), null, new byte[] {1});
            }
            int sequence = Integer.parseInt(o[3]);
            long producer = Long.parseLong(o[1]);
            return MemoryRecords.withRecords((byte) 2, 0, Compression.NONE, TimestampType.CREATE_TIME, producer,
                Short.parseShort(o[2]), sequence, 0, o[5].equals("1"), records);
        }

        private static MemoryRecords marker(String[] o) {
            ControlRecordType type = o[4].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            return MemoryRecords.withEndTransactionMarker(Long.parseLong(o[6]), Long.parseLong(o[1]),
                Short.parseShort(o[2]), new EndTransactionMarker(type, Integer.parseInt(o[3])));
        }

        private String append(MemoryRecords records, AppendOrigin origin, short transactionVersion) {
            long end = log.logEndOffset();
            try {
                LogAppendInfo info = log.appendAsLeader(
                    records, 0, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, transactionVersion);
                return log.logEndOffset() > end ? "ok " + info.firstOffset()
                    : "duplicate " + info.firstOffset() + " " + info.lastOffset() + " " + info.logAppendTime();
            } catch (Exception e) {
                return "error " + Errors.forException(e).code();
            }
        }

        private String snapshot() throws Exception {
            log.takeProducerSnapshot();
            Path file = dir.toPath().resolve(String.format("%020d.snapshot", log.logEndOffset()));
            return Files.exists(file) ? HexFormat.of().formatHex(Files.readAllBytes(file)) : "-";
        }
    }

    private static final class Epochs implements Answers {
        private final LeaderEpochFileCache cache;

        Epochs(File dir) throws Exception {
            LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(
                LeaderEpochCheckpointFile.newFile(dir), new LogDirFailureChannel(1));
            cache = new LeaderEpochFileCache(new TopicPartition("t", 0), file, new NoScheduler());
        }

        public String to(String[] o) {
            long second = o.length > 2 ? Long.parseLong(o[2]) : 0;
            switch (o[0]) {
                case "assign" -> cache.assign(Integer.parseInt(o[1]), second);
                case "truncate-end" -> cache.truncateFromEndAsyncFlush(Long.parseLong(o[1]));
                case "truncate-start" -> cache.truncateFromStartAsyncFlush(Long.parseLong(o[1]));
                case "end-of" -> {
                    Map.Entry<Integer, Long> end = cache.endOffsetFor(Integer.parseInt(o[1]), second);
                    return end.getKey() + " " + end.getValue();
                }
                case "epoch-of" -> {
                    return "" + cache.epochForOffset(Long.parseLong(o[1])).orElse(-1);
                }
                default -> throw new IllegalArgumentException(o[0]);
            }
            return cache.epochEntries().stream().map(entry -> entry.epoch() + ":" + entry.startOffset())
                .collect(Collectors.joining(" "));
        }
    }

    private static final class FixedTime implements Time {
        public long milliseconds() {
            return 1_000_000;
        }

        public long nanoseconds() {
            return milliseconds() * 1_000_000;
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }

        public <T> T waitForFuture(CompletableFuture<T> future, long deadline)
                throws InterruptedException, ExecutionException {
            return future.get();
        }
    }

    private static final class NoScheduler implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public void resizeThreadPool(int size) { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return new Never();
        }
    }

    private static final class Never extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        public int compareTo(Delayed other) {
            return 0;
        }
    }
}
