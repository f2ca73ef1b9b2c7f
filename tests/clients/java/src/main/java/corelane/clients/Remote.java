package corelane.clients;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A member of a group as a process of its own, which leaves only by being killed. */
final class Remote {
    private final Process process;
    private final Thread listener = new Thread(this::listen, "remote");
    private final Queue<String[]> read = new ConcurrentLinkedQueue<>();
    private volatile Set<Integer> partitions = Set.of();
    private volatile boolean killed = false;

    Remote(Kit kit, String topic, String group, String protocol) throws IOException {
        process = Spawned.start(kit, "--member", topic, group, protocol);
        listener.setDaemon(true);
        listener.start();
    }

    /** Says on stdout what it reads, before it commits that, and what it has. */
    static void serve(String bootstrap, String[] member) {
        try (var kit = new Kit(bootstrap, "member")) {
            var consumer = Grouping.Group.consumer(kit, member[1], Rolling.settings(member[2]));
            consumer.subscribe(List.of(member[0]));
            boolean uncommitted = false;
            // An error: nobody listens any more.
            while (!System.out.checkError()) {
                uncommitted = say(consumer, uncommitted);
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    /** Reads, commits, and returns whether that has to be done again. */
    private static boolean say(KafkaConsumer<byte[], byte[]> consumer, boolean uncommitted) {
        var records = consumer.poll(Duration.ofMillis(100));
        for (var record : records) {
            System.out.println("read " + record.partition() + " " + record.offset() + " "
                    + new String(record.value(), StandardCharsets.UTF_8));
        }
        System.out.flush();
        boolean refused = (uncommitted || !records.isEmpty()) && !Grouping.Group.commit(consumer);
        System.out.println("has " + consumer.assignment().stream()
                .map(TopicPartition::partition).map(String::valueOf).collect(Collectors.joining(" ")));
        return refused;
    }

    private void listen() {
        try (var lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("has")) {
                    partitions = Arrays.stream(words).skip(1).map(Integer::valueOf).collect(Collectors.toSet());
                } else {
                    read.add(words);
                }
            }
        } catch (IOException e) {
            e.printStackTrace();
        }
        partitions = Set.of();
    }

    Set<Integer> partitions() {
        return partitions;
    }

    /** Notes what it has said so far. */
    void note(Grouping.Group group) {
        if (!killed && !process.isAlive()) {
            throw new AssertionError("a member's process has ended");
        }
        for (String[] words = read.poll(); words != null; words = read.poll()) {
            // The last line of one that was killed may be cut.
            if (words.length == 4 && words[3].length() == Kit.value(0).length) {
                group.note(Integer.parseInt(words[1]), Long.parseLong(words[2]), Kit.bytes(words[3]));
            }
        }
    }

    /** SIGKILL. */
    void kill() throws InterruptedException {
        killed = true;
        process.destroyForcibly().waitFor();
        listener.join();
    }
}
