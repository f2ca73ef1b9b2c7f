package corelane.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;

/** A group whose members come, go and die, several at a time, while records are written all along. */
final class Rolling {
    private static final int PARTITIONS = 8;
    private static final int BATCH = 2 * PARTITIONS;
    private static final int WRITE_EVERY_MS = 50;
    /** Of the classic protocol; with the new one the broker sets them. */
    private static final Object[] PACE = {"session.timeout.ms", 6_000, "heartbeat.interval.ms", 500};

    private final Grouping.Group group;
    private final String name;
    private final Object[] protocol;
    private final List<Remote> remotes = new ArrayList<>();
    private final AtomicBoolean over = new AtomicBoolean();
    private Map<TopicPartition, Long> committed = new HashMap<>();

    private Rolling(Kit kit, String protocol) throws Exception {
        group = new Grouping.Group(kit, PARTITIONS);
        name = protocol;
        this.protocol = settings(protocol);
    }

    static void run(Kit kit, String protocol) throws Exception {
        new Rolling(kit, protocol).run();
    }

    static Object[] settings(String protocol) {
        var settings = Grouping.protocol(protocol);
        return protocol.equals("consumer") ? settings : Grouping.with(settings, PACE);
    }

    private void run() throws Exception {
        var thread = Executors.newSingleThreadExecutor(task -> {
            var writer = new Thread(task, "writer");
            writer.setDaemon(true);
            return writer;
        });
        var producer = group.kit.producer();
        Future<?> writing = thread.submit(() -> {
            while (!over.get()) {
                group.produce(producer, BATCH);
                Thread.sleep(WRITE_EVERY_MS);
            }
            return null;
        });
        try {
            comeAndGo();
            over.set(true);
            writing.get();
            group.readAll();
            watch();
        } finally {
            over.set(true);
            thread.shutdown();
            // At once: one whose join waits for the others would wait in vain while they are not polled.
            group.members.parallelStream().forEach(Grouping.Member::close);
            while (!remotes.isEmpty()) {
                kill(remotes.get(0));
            }
        }
    }

    private void comeAndGo() throws Exception {
        var first = group.join(protocol);
        var second = spawn();
        var third = group.join(protocol);
        settle(2, 3, 3);
        group.join(protocol);
        var fifth = spawn();
        settle(1, 1, 2, 2, 2);
        kill(second);
        group.leave(first);
        settle(2, 3, 3);
        // In the middle of the rebalance that the newcomer brings about.
        group.join(protocol);
        group.poll();
        kill(fifth);
        settle(2, 3, 3);
        group.leave(third);
        group.join(protocol);
        group.join(protocol);
        settle(2, 2, 2, 2);
    }

    private void settle(Integer... shares) throws Exception {
        var expected = List.of(shares);
        group.pollUntil("shares " + expected, () -> {
            watch();
            remotes.forEach(remote -> remote.note(group));
            var owned = Stream.concat(
                            group.members.stream().map(Grouping.Member::partitions), remotes.stream().map(Remote::partitions))
                    .toList();
            var all = owned.stream().flatMap(Set::stream).distinct().count();
            return owned.stream().map(Set::size).sorted().toList().equals(expected) && all == PARTITIONS;
        });
    }

    private Remote spawn() throws Exception {
        var remote = new Remote(group.kit, group.topic, group.id, name);
        remotes.add(remote);
        return remote;
    }

    private void kill(Remote remote) throws Exception {
        remotes.remove(remote);
        remote.kill();
        remote.note(group);
    }

    /** Nothing that is committed goes back. */
    private void watch() throws Exception {
        var now = group.committed();
        committed.forEach((partition, offset) -> {
            if (now.getOrDefault(partition, -1L) < offset) {
                throw new AssertionError("committed of " + partition + " went from " + offset + " to " + now.get(partition));
            }
        });
        committed = now;
    }
}
