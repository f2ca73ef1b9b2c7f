// Writes the table of group records that shards/coord/tests/records.rs compares with: one line a record,
// its name, key and value in hex, as Apache Kafka's own helpers and serde make them.
//
// See README.md beside it.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue.ClassicProtocol;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.ResolvedRegularExpression;

public class RecordGroups {
    static final Uuid A = new Uuid(0x0101010101010101L, 0x0101010101010101L);
    static final Uuid B = new Uuid(0x0202020202020202L, 0x0202020202020202L);
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    static void line(String name, CoordinatorRecord record) {
        HexFormat hex = HexFormat.of();
        byte[] value = SERDE.serializeValue(record);
        System.out.println(name + "\t" + hex.formatHex(SERDE.serializeKey(record)) + "\t"
            + (value == null ? "-" : hex.formatHex(value)));
    }

    public static void main(String[] args) {
        System.out.println("# Group records as Apache Kafka 4.4.0's GroupCoordinatorRecordHelpers make them. "
            + "Columns: name, key, value (- for none), in hex.");
        line("offset", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("g", "t", 3,
            new OffsetAndMetadata(77L, OptionalInt.of(5), "meta", 1000L, OptionalLong.empty(), A)));
        line("offset-plain", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("g", "t", 3,
            new OffsetAndMetadata(77L, OptionalInt.empty(), "", 1000L, OptionalLong.empty(), Uuid.ZERO_UUID)));
        line("offset-expiring", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("g", "t", 3,
            new OffsetAndMetadata(77L, OptionalInt.empty(), "", 1000L, OptionalLong.of(2000L), Uuid.ZERO_UUID)));
        line("offset-gone", GroupCoordinatorRecordHelpers.newOffsetCommitTombstoneRecord("g", "t", 3));

        ClassicGroup classic = new ClassicGroup(new LogContext(), "g", ClassicGroupState.STABLE, Time.SYSTEM, 4,
            Optional.of("consumer"), Optional.of("range"), Optional.of("m1"), Optional.of(1000L));
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestProtocol().setName("range").setMetadata(new byte[] {1, 2}));
        classic.add(new ClassicGroupMember("m1", Optional.of("i1"), "client", "/127.0.0.1", 60000, 10000,
            "consumer", protocols, new byte[] {3, 4, 5}));
        line("classic", GroupCoordinatorRecordHelpers.newGroupMetadataRecord(classic,
            Map.of("m1", new byte[] {3, 4, 5})));
        line("classic-gone", GroupCoordinatorRecordHelpers.newGroupMetadataTombstoneRecord("g"));

        ConsumerGroupMember member = new ConsumerGroupMember.Builder("m1")
            .setInstanceId("i1").setRackId("r1").setClientId("client").setClientHost("/127.0.0.1")
            .setRebalanceTimeoutMs(60000).setServerAssignorName("uniform")
            .setSubscribedTopicNames(List.of("t")).setSubscribedTopicRegex("t.*")
            .setMemberEpoch(7).setPreviousMemberEpoch(6).setState(MemberState.UNREVOKED_PARTITIONS)
            .setAssignedPartitions(Map.of(A, new TreeMap<>(Map.of(1, 5, 2, 7))))
            .setPartitionsPendingRevocation(Map.of(B, new TreeMap<>(Map.of(0, 3))))
            .build();
        line("member", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord("g", member));
        ConsumerGroupMember old = new ConsumerGroupMember.Builder("m2")
            .setClientId("client").setClientHost("/127.0.0.1").setRebalanceTimeoutMs(1)
            .setSubscribedTopicNames(List.of("t"))
            .setClassicMemberMetadata(new ClassicMemberMetadata().setSessionTimeoutMs(10000)
                .setSupportedProtocols(List.of(new ClassicProtocol().setName("range").setMetadata(new byte[] {1, 2}))))
            .build();
        line("member-classic", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord("g", old));
        line("member-gone", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionTombstoneRecord("g", "m1"));
        line("epoch", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord("g", 7, -123456789L));
        line("epoch-zero", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord("g", 7, 0L));
        line("epoch-gone", GroupCoordinatorRecordHelpers.newConsumerGroupEpochTombstoneRecord("g"));
        line("partitions-gone", GroupCoordinatorRecordHelpers.newConsumerGroupSubscriptionMetadataTombstoneRecord("g"));
        line("target", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord("g", "m1",
            Map.of(A, new java.util.TreeSet<>(Set.of(1, 2)))));
        line("target-gone", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentTombstoneRecord("g", "m1"));
        line("target-epoch", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataRecord("g", 7, 1000L));
        line("target-epoch-gone", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataTombstoneRecord("g"));
        line("current", GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentRecord("g", member));
        line("current-gone", GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentTombstoneRecord("g", "m1"));
        line("regex", GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionRecord("g", "t.*",
            new ResolvedRegularExpression(Set.of("t"), 12L, 1000L)));
        line("regex-gone", GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionTombstone("g", "t.*"));
        hash();
    }

    static void hash() {
        System.out.println("hash\t" + topicHash("t", A, List.of(List.of(), List.of())) + "\t"
            + org.apache.kafka.coordinator.group.Utils.computeGroupHash(Map.of(
                "t", topicHash("t", A, List.of(List.of(), List.of())))));
        long t = topicHash("tänk", A, List.of(List.of("b", "a"), List.of("c")));
        long u = topicHash("u", B, List.of(List.of()));
        System.out.println("hash-racks\t" + t + "\t"
            + org.apache.kafka.coordinator.group.Utils.computeGroupHash(Map.of("tänk", t, "u", u)));
        List<List<String>> many = new ArrayList<>();
        for (int i = 0; i < 300; i++) many.add(List.of("rack-" + (i % 3)));
        long m = topicHash("many", A, many);
        System.out.println("hash-many\t" + m + "\t"
            + org.apache.kafka.coordinator.group.Utils.computeGroupHash(Map.of("many", m)));
    }

    static long topicHash(String name, Uuid id, List<List<String>> racks) {
        org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.TopicMetadata topic =
            (org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.TopicMetadata)
            java.lang.reflect.Proxy.newProxyInstance(RecordGroups.class.getClassLoader(),
                new Class<?>[] {org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.TopicMetadata.class},
                (proxy, method, args) -> switch (method.getName()) {
                    case "id" -> id;
                    case "name" -> name;
                    case "partitionCount" -> racks.size();
                    case "partitionRacks" -> new ArrayList<>(racks.get((Integer) args[0]));
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage image =
            (org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage)
            java.lang.reflect.Proxy.newProxyInstance(RecordGroups.class.getClassLoader(),
                new Class<?>[] {org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.class},
                (proxy, method, args) -> switch (method.getName()) {
                    case "topicMetadata" -> Optional.of(topic);
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        return org.apache.kafka.coordinator.group.Utils.computeTopicHash(name, image);
    }
}
