// Answers the payloads of produce-validation.txt with the classes of Kafka's broker and rewrites
// the file: the request check of the Produce version, then an append as leader to an empty log.
//
//   java ProduceAnswers.java produce-validation.txt

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
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
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public final class ProduceAnswers {
    private static final long NOW = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[0]);
        List<String> out = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String[] columns = line.split(" ");
            out.add(line.startsWith("#") ? line
                : String.join(" ", Arrays.copyOf(columns, 4)) + " " + answer(columns[1], columns[2], columns[3]));
        }
        Files.write(file, out);
    }

    private static String answer(String version, String configs, String hex) throws Exception {
        byte[] payload = hex.equals("-") ? new byte[0] : HexFormat.of().parseHex(hex);
        File dir = new File(Files.createTempDirectory("answers").toFile(), "t-0");
        dir.mkdirs();
        UnifiedLog log = open(dir, configs);
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(payload.clone()));
            ProduceRequest.validateRecords(Short.parseShort(version), records);
            LogAppendInfo info = log.appendAsLeader(records, 0);
            FileRecords stored = (FileRecords) log.read(0, Integer.MAX_VALUE, FetchIsolation.LOG_END, true).records;
            ByteBuffer buffer = ByteBuffer.allocate(stored.sizeInBytes());
            stored.readInto(buffer, 0);
            byte[] batch = Arrays.copyOf(buffer.array(), buffer.limit());
            // The leader epoch is stamped, as is the offset, which stays 0 here.
            boolean same = Arrays.equals(batch, 0, 12, payload, 0, Math.min(12, payload.length))
                && Arrays.equals(batch, 16, batch.length, payload, 16, payload.length);
            return "ok " + info.logAppendTime() + " " + (same ? "=" : HexFormat.of().formatHex(batch));
        } catch (RecordValidationException e) {
            String indices = e.recordErrors().stream().map(error -> "" + error.batchIndex)
                .collect(Collectors.joining(","));
            return "error " + Errors.forException(e.invalidException()).code() + " " + indices;
        } catch (Throwable e) {
            return "error " + Errors.forException(e).code() + " -";
        } finally {
            log.close();
            for (File part : dir.listFiles()) {
                part.delete();
            }
            dir.delete();
        }
    }

    private static UnifiedLog open(File dir, String configs) throws Exception {
        Map<String, String> values = new HashMap<>(Map.of("segment.index.bytes", "4096"));
        for (String config : configs.split(",")) {
            if (config.contains("=")) {
                values.put(config.split("=")[0], config.split("=")[1]);
            }
        }
        return UnifiedLog.create(dir, new LogConfig(values), 0, 0, new NoScheduler(), new BrokerTopicStats(),
            new FixedTime(), 3_600_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static final class FixedTime implements Time {
        public long milliseconds() {
            return NOW;
        }

        public long nanoseconds() {
            return NOW * 1_000_000;
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
