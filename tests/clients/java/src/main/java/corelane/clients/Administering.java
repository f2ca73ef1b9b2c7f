package corelane.clients;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Scenarios about topics and the cluster. */
final class Administering {
    private Administering() {}

    static void addTo(Map<String, Main.Scenario> scenarios) {
        scenarios.put("delete-recreate", Administering::deleteRecreate);
        scenarios.put("unknown-topic", Administering::unknownTopic);
        scenarios.put("admin", Administering::admin);
    }

    static void createTopic(Kit kit) throws Exception {
        String topic = kit.newTopic(4, Map.of("retention.ms", "3600000"));
        var ids = kit.awaitLeaders(topic, 4).partitions().stream().map(p -> p.partition()).toList();
        Check.equal("partition ids", List.of(0, 1, 2, 3), ids);
        Check.equal("retention.ms", "3600000", config(kit, topic, "retention.ms").value());
        Check.fails(TopicExistsException.class, "creating it again",
                () -> kit.admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get());
    }

    private static void deleteRecreate(Kit kit) throws Exception {
        String topic = kit.newTopic(4);
        kit.produce(topic, 10);
        kit.admin.deleteTopics(List.of(topic)).all().get();
        Kit.await("the topic to be gone", () -> kit.admin.listTopics().names().get().contains(topic) ? null : true);
        Kit.await("the name to be free", () -> {
            try {
                kit.create(topic, 4, Map.of());
                return true;
            } catch (java.util.concurrent.ExecutionException e) {
                if (e.getCause() instanceof TopicExistsException) {
                    return null;
                }
                throw e;
            }
        });
        Check.equal("beginning", 0L, offset(kit, topic, OffsetSpec.earliest()));
        Check.equal("end", 0L, offset(kit, topic, OffsetSpec.latest()));
        kit.produce(topic, 1);
        Check.same(Producing.records(topic, 1), kit.readBack(topic, 4, 1));
    }

    private static void unknownTopic(Kit kit) throws Exception {
        String topic = kit.freshName();
        Check.fails(UnknownTopicOrPartitionException.class, "describe",
                () -> kit.admin.describeTopics(List.of(topic)).allTopicNames().get());
        Check.fails(UnknownTopicOrPartitionException.class, "delete",
                () -> kit.admin.deleteTopics(List.of(topic)).all().get());
        var partitions = kit.consumer().partitionsFor(topic);
        Check.that("partitions of an unknown topic: " + partitions, partitions == null || partitions.isEmpty());
        Check.that("the topic was created", !kit.admin.listTopics().names().get().contains(topic));
    }

    private static void admin(Kit kit) throws Exception {
        var cluster = kit.admin.describeCluster();
        Check.that("a cluster id", !cluster.clusterId().get().isBlank());
        Collection<Node> nodes = cluster.nodes().get();
        Check.that("a node", !nodes.isEmpty());
        Check.that("the controller among " + nodes, nodes.contains(cluster.controller().get()));

        String topic = kit.newTopic(4);
        Check.that("the topic listed", kit.admin.listTopics().names().get().contains(topic));
        for (var partition : kit.awaitLeaders(topic, 4).partitions()) {
            Check.that("leader of " + partition, nodes.contains(partition.leader()));
            Check.equal("replicas", List.of(partition.leader()), partition.replicas());
            Check.equal("isr", List.of(partition.leader()), partition.isr());
        }
        configs(kit, topic);

        kit.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all().get();
        kit.awaitLeaders(topic, 6);

        kit.produce(topic, 10);
        var first = new TopicPartition(topic, 0);
        var deleted = kit.admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4))).lowWatermarks();
        Check.equal("low watermark", 4L, deleted.get(first).get().lowWatermark());
        Check.equal("earliest", 4L, offset(kit, topic, OffsetSpec.earliest()));
        Check.equal("latest", 10L, offset(kit, topic, OffsetSpec.latest()));

        var described = logDirs(kit).stream()
                .flatMap(dir -> dir.replicaInfos().keySet().stream())
                .filter(partition -> partition.topic().equals(topic))
                .map(TopicPartition::partition)
                .sorted()
                .toList();
        Check.equal("partitions in log directories", IntStream.range(0, 6).boxed().toList(), described);
    }

    private static void configs(Kit kit, String topic) throws Exception {
        Check.equal("max.message.bytes", "1048588", config(kit, topic, "max.message.bytes").value());
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var retention = new ConfigEntry("retention.ms", "123456789");
        kit.admin.incrementalAlterConfigs(
                        Map.of(resource, List.of(new AlterConfigOp(retention, AlterConfigOp.OpType.SET)))).all().get();
        Kit.await("retention.ms to be set", () -> {
            var entry = config(kit, topic, "retention.ms");
            return entry.value().equals("123456789")
                    && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG ? true : null;
        });
        kit.admin.incrementalAlterConfigs(
                        Map.of(resource, List.of(new AlterConfigOp(retention, AlterConfigOp.OpType.DELETE)))).all().get();
        Kit.await("retention.ms to be the default again", () -> {
            var entry = config(kit, topic, "retention.ms");
            return entry.value().equals("604800000") && entry.isDefault() ? true : null;
        });
    }

    private static ConfigEntry config(Kit kit, String topic, String key) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return kit.admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key);
    }

    private static long offset(Kit kit, String topic, OffsetSpec spec) throws Exception {
        var partition = new TopicPartition(topic, 0);
        return kit.admin.listOffsets(Map.of(partition, spec)).all().get().get(partition).offset();
    }

    /** Bytes that the topic takes in the brokers' log directories. */
    static long sizeOf(Kit kit, String topic) throws Exception {
        return logDirs(kit).stream()
                .flatMap(dir -> dir.replicaInfos().entrySet().stream())
                .filter(entry -> entry.getKey().topic().equals(topic))
                .mapToLong(entry -> entry.getValue().size())
                .sum();
    }

    private static List<LogDirDescription> logDirs(Kit kit) throws Exception {
        var brokers = kit.admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        return kit.admin.describeLogDirs(brokers).allDescriptions().get().values().stream()
                .flatMap(dirs -> dirs.values().stream())
                .toList();
    }
}
