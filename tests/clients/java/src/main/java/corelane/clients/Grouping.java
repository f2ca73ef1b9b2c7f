package corelane.clients;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** Scenarios about consumers that share a group. */
final class Grouping {
    private static final int PARTITIONS = 4;
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static final Object[] RANGE = {"partition.assignment.strategy", ASSIGNORS + "RangeAssignor"};
    private static final Object[] STICKY = {"partition.assignment.strategy", ASSIGNORS + "CooperativeStickyAssignor"};
    private static final Object[] CONSUMER = {"group.protocol", "consumer"};

    private Grouping() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("group-classic", kit -> life(kit, RANGE));
        scenarios.put("group-cooperative", kit -> life(kit, STICKY));
        scenarios.put("group-consumer", kit -> life(kit, CONSUMER));
        scenarios.put("group-rolling", kit -> Rolling.run(kit, "classic"));
        scenarios.put("group-rolling-cooperative", kit -> Rolling.run(kit, "cooperative"));
        scenarios.put("group-rolling-consumer", kit -> Rolling.run(kit, "consumer"));
        scenarios.put("group-handover", Grouping::handover);
        scenarios.put("group-static", Grouping::fixed);
        scenarios.put("group-static-consumer", Grouping::fixedConsumer);
        scenarios.put("group-regex", Grouping::regex);
        scenarios.put("group-migration", Grouping::migration);
    }

    /** A consumer of the group, what it was told of its partitions, and how to leave. */
    static final class Member {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> events = new ArrayList<>();
        private boolean uncommitted;

        private Member(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        Set<Integer> partitions() {
            return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
        }

        /** Leaves the group. */
        void close() {
            consumer.close();
        }

        /** Goes without a word, as a process that is killed. */
        void vanish() {
            consumer.close(CloseOptions.groupMembershipOperation(GroupMembershipOperation.REMAIN_IN_GROUP)
                    .withTimeout(Duration.ZERO));
        }
    }

    /** A group with its topic, its members, and what they have read and committed. */
    static final class Group {
        final Kit kit;
        final String id;
        final String topic;
        final List<Member> members = new ArrayList<>();
        final Map<Integer, TreeSet<Long>> seen = new TreeMap<>();
        private final int partitions;
        private int produced = 0;

        Group(Kit kit) throws Exception {
            this(kit, PARTITIONS);
        }

        Group(Kit kit, int partitions) throws Exception {
            this.kit = kit;
            this.partitions = partitions;
            id = kit.freshName();
            topic = kit.newTopic(partitions);
            IntStream.range(0, partitions).forEach(p -> seen.put(p, new TreeSet<>()));
        }

        Member join(Object... settings) {
            var member = member(settings);
            member.consumer.subscribe(List.of(topic), listener(member));
            return member;
        }

        Member member(Object... settings) {
            var member = new Member(consumer(kit, id, settings));
            members.add(member);
            return member;
        }

        static KafkaConsumer<byte[], byte[]> consumer(Kit kit, String group, Object... settings) {
            var all = new ArrayList<Object>(List.of("group.id", group, "auto.offset.reset", "earliest"));
            all.addAll(List.of(settings));
            return kit.consumer(all.toArray());
        }

        static ConsumerRebalanceListener listener(Member member) {
            return new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(java.util.Collection<TopicPartition> partitions) {
                    if (!partitions.isEmpty()) {
                        member.events.add("revoked " + partitions.size());
                    }
                }

                @Override
                public void onPartitionsAssigned(java.util.Collection<TopicPartition> partitions) {
                    if (!partitions.isEmpty()) {
                        member.events.add("assigned " + partitions.size());
                    }
                }
            };
        }

        void leave(Member member) {
            members.remove(member);
            member.close();
        }

        void vanish(Member member) {
            members.remove(member);
            member.vanish();
        }

        /** `count` more records, evenly over the partitions. */
        void produce(int count) throws Exception {
            produce(kit.producer(), count);
        }

        void produce(KafkaProducer<byte[], byte[]> producer, int count) throws Exception {
            var first = produced;
            var records = IntStream.range(first, first + count).mapToObj(i -> Kit.record(topic, i % partitions, i)).toList();
            Kit.send(producer, records);
            produced += count;
        }

        /** Every member polls once, checks what it gets and commits it. */
        void poll() {
            for (var member : members) {
                var records = member.consumer.poll(Duration.ofMillis(50));
                for (var record : records) {
                    note(record.partition(), record.offset(), record.value());
                }
                member.uncommitted |= !records.isEmpty();
                if (member.uncommitted) {
                    member.uncommitted = !commit(member.consumer);
                }
            }
        }

        void note(int partition, long offset, byte[] value) {
            int index = (int) offset * partitions + partition;
            Check.bytes("value at " + partition + ":" + offset, Kit.value(index), value);
            seen.get(partition).add(offset);
        }

        /** Whether it was done; during a rebalance it is refused, and has to be said again for what stays. */
        static boolean commit(KafkaConsumer<byte[], byte[]> consumer) {
            try {
                consumer.commitSync();
                return true;
            } catch (RebalanceInProgressException | CommitFailedException e) {
                return false;
            }
        }

        /** Polls until the condition holds. */
        void pollUntil(String what, java.util.concurrent.Callable<Boolean> holds) throws Exception {
            Kit.await(what, () -> {
                poll();
                return holds.call() ? true : null;
            });
        }

        /** Polls until the members share the partitions like this, in any order. */
        void settle(Integer... shares) throws Exception {
            var expected = List.of(shares).stream().sorted().toList();
            pollUntil("shares " + expected, () -> {
                var all = members.stream().flatMap(m -> m.partitions().stream()).toList();
                return shares().equals(expected) && Set.copyOf(all).size() == partitions;
            });
        }

        List<Integer> shares() {
            return members.stream().map(m -> m.partitions().size()).sorted().toList();
        }

        /** Polls until everything that was produced was seen, and is committed. */
        void readAll() throws Exception {
            var expected = Check.range(0, produced / partitions);
            pollUntil("all records", () -> seen.values().stream().allMatch(offsets -> List.copyOf(offsets).equals(expected)));
            Check.equal("committed", (long) produced / partitions * partitions,
                    committed().values().stream().mapToLong(Long::longValue).sum());
        }

        Map<TopicPartition, Long> committed() throws Exception {
            return kit.admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get().entrySet().stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, e -> e.getValue().offset()));
        }
    }

    /** Members come and go one after the other; everything is read, and nothing twice that was committed. */
    private static void life(Kit kit, Object[] protocol) throws Exception {
        var group = new Group(kit);
        group.produce(200);
        var first = group.join(protocol);
        group.settle(4);
        group.readAll();

        var second = group.join(protocol);
        group.settle(2, 2);
        group.produce(200);
        group.readAll();

        var third = group.join(protocol);
        group.settle(1, 1, 2);
        group.produce(200);
        group.leave(second);
        group.settle(2, 2);
        group.readAll();

        group.leave(first);
        group.leave(third);
        group.seen.values().forEach(TreeSet::clear);
        group.produce(40);
        group.join(protocol);
        group.pollUntil("the new records", () -> group.seen.values().stream().mapToInt(Set::size).sum() >= 40);
        for (var offsets : group.seen.values()) {
            Check.equal("a new member goes on where the group was", Check.range(150, 160), List.copyOf(offsets));
        }
    }

    /** With cooperative assignors a member keeps what it goes on to own. */
    private static void handover(Kit kit) throws Exception {
        for (Object[] protocol : List.of(STICKY, CONSUMER)) {
            var group = new Group(kit);
            var first = group.join(protocol);
            group.settle(4);
            Check.equal("what the first was told", List.of("assigned 4"), first.events);
            group.join(protocol);
            group.settle(2, 2);
            Check.equal("what the first was told", List.of("assigned 4", "revoked 2"), first.events);
            group.members.get(1).close();
            group.members.remove(1);
            group.settle(4);
            Check.equal("what the first was told", List.of("assigned 4", "revoked 2", "assigned 2"), first.events);
        }
    }

    /** A static member that comes back within its session has its partitions, and nobody else notices. */
    private static void fixed(Kit kit) throws Exception {
        var group = new Group(kit);
        var first = group.join(with(RANGE, "group.instance.id", "a"));
        var second = group.join(with(RANGE, "group.instance.id", "b"));
        group.settle(2, 2);
        group.produce(80);
        group.readAll();
        var before = second.partitions();
        int events = first.events.size();
        group.vanish(second);
        group.produce(80);
        var again = group.join(with(RANGE, "group.instance.id", "b"));
        group.settle(2, 2);
        group.readAll();
        Check.equal("partitions of the one that came back", before, again.partitions());
        Check.equal("rebalances that the other saw", events, first.events.size());
    }

    /** The same with the consumer protocol, where the id is not given away while its owner lives. */
    private static void fixedConsumer(Kit kit) throws Exception {
        var group = new Group(kit);
        var first = group.join(with(CONSUMER, "group.instance.id", "a"));
        var second = group.join(with(CONSUMER, "group.instance.id", "b"));
        group.settle(2, 2);
        group.produce(80);
        group.readAll();
        var before = second.partitions();
        int events = first.events.size();
        var thief = group.member(with(CONSUMER, "group.instance.id", "b"));
        group.members.remove(thief);
        thief.consumer.subscribe(List.of(group.topic));
        Check.fails(UnreleasedInstanceIdException.class, "an id in use", () -> {
            group.pollUntil("the refusal", () -> !thief.consumer.poll(Duration.ofMillis(50)).isEmpty());
            return null;
        });
        thief.close();
        // A static member that closes leaves for a while only.
        group.leave(second);
        var again = group.join(with(CONSUMER, "group.instance.id", "b"));
        group.settle(2, 2);
        group.produce(80);
        group.readAll();
        Check.equal("partitions of the one that came back", before, again.partitions());
        Check.equal("rebalances that the other saw", events, first.events.size());
    }

    /** A pattern that the broker resolves: topics that match come in, also later ones. */
    private static void regex(Kit kit) throws Exception {
        String prefix = kit.freshName();
        String group = kit.freshName();
        kit.create(prefix + "-a", 1, Map.of());
        kit.create("x-" + prefix, 1, Map.of());
        var consumer = kit.consumer("group.id", group, "group.protocol", "consumer", "auto.offset.reset", "earliest",
                "metadata.max.age.ms", 500);
        consumer.subscribe(new SubscriptionPattern(prefix + "-[ab]"));
        awaitAssigned(consumer, Set.of(prefix + "-a"));
        kit.create(prefix + "-b", 2, Map.of());
        kit.create(prefix + "-c", 1, Map.of());
        awaitAssigned(consumer, Set.of(prefix + "-a", prefix + "-b"));
        Check.equal("partitions", 3, consumer.assignment().size());
    }

    private static void awaitAssigned(KafkaConsumer<?, ?> consumer, Set<String> topics) throws Exception {
        Kit.await("assignment of " + topics, () -> {
            consumer.poll(Duration.ofMillis(100));
            var assigned = consumer.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet());
            return assigned.equals(topics) ? true : null;
        });
    }

    /** A classic group changes to the consumer protocol and back, member by member, while in use. */
    private static void migration(Kit kit) throws Exception {
        var group = new Group(kit);
        var first = group.join(STICKY);
        var second = group.join(STICKY);
        group.settle(2, 2);
        group.produce(80);
        group.readAll();

        group.leave(first);
        var third = group.join(CONSUMER);
        group.settle(2, 2);
        group.produce(80);
        group.readAll();
        group.leave(second);
        var fourth = group.join(CONSUMER);
        group.settle(2, 2);
        group.produce(80);
        group.readAll();

        group.leave(third);
        group.join(STICKY);
        group.settle(2, 2);
        group.produce(80);
        group.readAll();
        group.leave(fourth);
        group.settle(4);
        group.produce(80);
        group.readAll();
    }

    /** By its name in the scenarios. */
    static Object[] protocol(String name) {
        return switch (name) {
            case "classic" -> RANGE;
            case "cooperative" -> STICKY;
            case "consumer" -> CONSUMER;
            default -> throw new IllegalArgumentException("no protocol is called " + name);
        };
    }

    static Object[] with(Object[] settings, Object... more) {
        var all = new ArrayList<Object>(List.of(settings));
        all.addAll(List.of(more));
        return all.toArray();
    }
}
