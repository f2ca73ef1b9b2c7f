package corelane.clients;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetMetadataTooLarge;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Scenarios about groups as an administrator sees them. */
final class GroupAdmin {
    private GroupAdmin() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("group-admin", GroupAdmin::groups);
        scenarios.put("group-offsets", GroupAdmin::offsets);
        scenarios.put("group-configs", GroupAdmin::configs);
        scenarios.put("offsets-topic", GroupAdmin::offsetsTopic);
    }

    /** List with filters, describe, remove members, delete; of both protocols. */
    private static void groups(Kit kit) throws Exception {
        for (GroupType type : List.of(GroupType.CLASSIC, GroupType.CONSUMER)) {
            var group = new Grouping.Group(kit);
            group.produce(40);
            group.join("group.protocol", type.toString().toLowerCase(), "client.id", "me");
            group.settle(4);
            group.readAll();

            var listed = listing(kit, group.id, new ListGroupsOptions());
            Check.equal("type", type, listed.type().orElseThrow());
            Check.equal("protocol", "consumer", listed.protocol());
            Check.equal("state", GroupState.STABLE, listed.groupState().orElseThrow());
            Check.that("filtered by its state", listing(kit, group.id, new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))) != null);
            Check.that("filtered by another state", listing(kit, group.id, new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))) == null);
            Check.that("filtered by its type", listing(kit, group.id, new ListGroupsOptions().withTypes(Set.of(type))) != null);
            Check.that("filtered by another type", listing(kit, group.id, new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))) == null);

            var described = describe(kit, group.id);
            Check.equal("state", GroupState.STABLE, described.groupState());
            Check.equal("type", type, described.type());
            Check.equal("members", 1, described.members().size());
            var member = described.members().iterator().next();
            Check.equal("client", "me", member.clientId());
            Check.equal("host", "/127.0.0.1", member.host());
            Check.equal("assignment", 4, member.assignment().topicPartitions().size());
            Check.equal("operations", Set.of(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE,
                    AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS), described.authorizedOperations());
            var nodes = kit.admin.describeCluster().nodes().get();
            Check.that("the coordinator is a node", nodes.contains(described.coordinator()));

            Check.fails(GroupNotEmptyException.class, "deleting a group in use",
                    () -> kit.admin.deleteConsumerGroups(List.of(group.id)).all().get());
            group.leave(group.members.get(0));
            Check.equal("state", GroupState.EMPTY, describe(kit, group.id).groupState());
            kit.admin.deleteConsumerGroups(List.of(group.id)).all().get();
            Check.fails(GroupIdNotFoundException.class, "describing a deleted group", () -> describe(kit, group.id));
            Check.fails(GroupIdNotFoundException.class, "deleting it again",
                    () -> kit.admin.deleteConsumerGroups(List.of(group.id)).all().get());
            Check.that("not listed", listing(kit, group.id, new ListGroupsOptions()) == null);
            Check.equal("committed", Map.of(), group.committed());
        }
        var group = new Grouping.Group(kit);
        group.join("group.protocol", "classic", "group.instance.id", "fixed");
        group.settle(4);
        group.vanish(group.members.get(0));
        kit.admin.removeMembersFromConsumerGroup(group.id,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("fixed")))).all().get();
        Check.equal("members", 0, describe(kit, group.id).members().size());
    }

    private static GroupListing listing(Kit kit, String group, ListGroupsOptions options) throws Exception {
        return kit.admin.listGroups(options).all().get().stream().filter(g -> g.groupId().equals(group)).findFirst().orElse(null);
    }

    private static ConsumerGroupDescription describe(Kit kit, String group) throws Exception {
        return kit.admin.describeConsumerGroups(List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true))
                .all().get().get(group);
    }

    /** Committed offsets are set, read, and deleted from outside. */
    private static void offsets(Kit kit) throws Exception {
        var group = new Grouping.Group(kit);
        group.produce(40);
        group.join("group.protocol", "consumer");
        group.settle(4);
        group.readAll();
        var zero = new TopicPartition(group.topic, 0);
        Check.fails(UnknownMemberIdException.class, "setting offsets of a group in use",
                () -> kit.admin.alterConsumerGroupOffsets(group.id, Map.of(zero, new OffsetAndMetadata(1))).all().get());
        Check.fails(GroupSubscribedToTopicException.class, "deleting offsets of a topic that is read",
                () -> kit.admin.deleteConsumerGroupOffsets(group.id, Set.of(zero)).all().get());
        group.leave(group.members.get(0));

        kit.admin.alterConsumerGroupOffsets(group.id, Map.of(zero, new OffsetAndMetadata(3, java.util.Optional.of(0), "why"))).all().get();
        var found = kit.admin.listConsumerGroupOffsets(group.id).partitionsToOffsetAndMetadata().get().get(zero);
        Check.equal("offset", 3L, found.offset());
        Check.equal("metadata", "why", found.metadata());
        Check.equal("leader epoch", java.util.Optional.of(0), found.leaderEpoch());
        Check.fails(OffsetMetadataTooLarge.class, "metadata of 5,000 characters",
                () -> kit.admin.alterConsumerGroupOffsets(group.id, Map.of(zero, new OffsetAndMetadata(3, "x".repeat(5_000)))).all().get());

        var again = group.join("group.protocol", "consumer");
        group.seen.get(0).clear();
        group.pollUntil("records from the offset that was set", () -> group.seen.get(0).size() >= 7);
        Check.equal("records of partition 0", Check.range(3, 10), List.copyOf(group.seen.get(0)));
        group.leave(again);

        kit.admin.deleteConsumerGroupOffsets(group.id, Set.of(zero)).all().get();
        var left = group.committed().keySet().stream().map(TopicPartition::partition).collect(Collectors.toSet());
        Check.equal("partitions with offsets", Set.of(1, 2, 3), left);

        // Several groups at once, one of which has nothing.
        String nobody = kit.freshName();
        var specs = Map.of(group.id, new ListConsumerGroupOffsetsSpec(), nobody, new ListConsumerGroupOffsetsSpec());
        var all = kit.admin.listConsumerGroupOffsets(specs).all().get();
        Check.equal("offsets of the group", 3, all.get(group.id).size());
        Check.equal("offsets of nobody", 0, all.get(nobody).size());

        // The group's offsets of a topic go with the topic.
        kit.admin.deleteTopics(List.of(group.topic)).all().get();
        Kit.await("the offsets to go", () -> group.committed().isEmpty() ? true : null);
    }

    /** Settings of one group, and the feature that the consumer protocol needs. */
    private static void configs(Kit kit) throws Exception {
        String group = kit.freshName();
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        String node = kit.admin.describeCluster().nodes().get().iterator().next().idString();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        Check.equal("session timeout", entry(kit, broker, "group.consumer.session.timeout.ms").value(),
                entry(kit, resource, "consumer.session.timeout.ms").value());
        set(kit, resource, "consumer.session.timeout.ms", "50000");
        Kit.await("the new value", () -> entry(kit, resource, "consumer.session.timeout.ms").value().equals("50000") ? true : null);
        Check.equal("source", ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, entry(kit, resource, "consumer.session.timeout.ms").source());
        Check.fails(InvalidConfigurationException.class, "a timeout above the limit",
                () -> set(kit, resource, "consumer.session.timeout.ms", "70000"));
        var listed = kit.admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get();
        Check.that("the group is listed", listed.contains(resource));

        set(kit, resource, "consumer.heartbeat.interval.ms", "6000");
        var consumer = kit.consumer("group.id", group, "group.protocol", "consumer", "auto.offset.reset", "earliest");
        consumer.subscribe(List.of(kit.newTopic(1)));
        Kit.await("an assignment", () -> {
            consumer.poll(Duration.ofMillis(100));
            return consumer.assignment().isEmpty() ? null : true;
        });
        var features = kit.admin.describeFeatures().featureMetadata().get();
        Check.equal("group.version", (short) 1, features.finalizedFeatures().get("group.version").maxVersionLevel());
        var update = Map.of("group.version", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE));
        kit.admin.updateFeatures(update, new UpdateFeaturesOptions().validateOnly(true)).all().get();
    }

    private static ConfigEntry entry(Kit kit, ConfigResource resource, String key) throws Exception {
        Config config = kit.admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return config.get(key);
    }

    private static Object set(Kit kit, ConfigResource resource, String key, String value) throws Exception {
        var op = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        return kit.admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get();
    }

    /** The topic of offsets: internal, compacted, 50 partitions; anybody may read it and nobody write. */
    private static void offsetsTopic(Kit kit) throws Exception {
        String topic = "__consumer_offsets";
        var group = new Grouping.Group(kit);
        group.produce(40);
        group.join();
        group.settle(4);
        group.readAll();
        var described = kit.awaitLeaders(topic, 50);
        Check.that("internal", described.isInternal());
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = kit.admin.describeConfigs(List.of(resource)).all().get().get(resource);
        var values = new HashMap<String, String>();
        for (String key : List.of("cleanup.policy", "segment.bytes", "compression.type")) {
            values.put(key, config.get(key).value());
        }
        Check.equal("settings", Map.of("cleanup.policy", "compact", "segment.bytes", "104857600", "compression.type", "producer"), values);
        Check.fails(InvalidTopicException.class, "producing to it", () -> kit.producer().send(Kit.record(topic, 0, 1)).get());

        var partition = new TopicPartition(topic, Math.floorMod(Math.abs(group.id.hashCode()), 50));
        var consumer = kit.consumer();
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        Kit.await("the group's record", () -> {
            for (var record : consumer.poll(Duration.ofMillis(100))) {
                if (new String(record.key(), java.nio.charset.StandardCharsets.UTF_8).contains(group.id)) {
                    return true;
                }
            }
            return null;
        });
    }
}
