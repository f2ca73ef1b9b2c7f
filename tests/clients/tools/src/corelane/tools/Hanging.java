package corelane.tools;

import static corelane.tools.Cluster.contains;
import static corelane.tools.Cluster.equal;
import static corelane.tools.Cluster.that;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceDataCollection;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.TxnOffsetCommitRequest;

/**
 * A transaction that no coordinator knows: records of one, written to a partition that was never added to it.
 * A broker that asks the coordinator before it appends (KIP-890) refuses them. With that switched off it does
 * not, and only the tools can end such a transaction, as after a fault of older brokers.
 */
final class Hanging {
    private static final String VERIFICATION = "transaction.partition.verification.enable";
    /** The last version in which a producer adds partitions itself. */
    private static final short OLD_PROTOCOL = 11;
    private static final String GROUPS = "__consumer_offsets";
    private static final long DAY_MS = 86_400_000;

    private final Cluster cluster;
    private final String topic;
    private final long producerId;
    private final short epoch;

    /** Has a producer's id and epoch from the coordinator, of the transactional id that is named like the topic. */
    private Hanging(Cluster cluster, String topic) {
        this.cluster = cluster;
        this.topic = topic;
        Transactions.producer(cluster, topic).close();
        var row = Transactions.row(cluster, "TransactionalId", topic, "describe", "--transactional-id", topic);
        producerId = Long.parseLong(row.get("ProducerId"));
        epoch = Short.parseShort(row.get("ProducerEpoch"));
    }

    /** Values 0 to 5 in each of the partitions of a new topic, and no coordinator that will end it. */
    static String begin(Cluster cluster, int partitions) throws Exception {
        String topic = cluster.newTopic(partitions);
        var hanging = new Hanging(cluster, topic);
        for (int partition = 0; partition < partitions; partition++) {
            equal("a write without a transaction", Errors.TRANSACTION_ABORTABLE, hanging.write(partition, OLD_PROTOCOL));
            equal("of an older client", Errors.INVALID_TXN_STATE, hanging.write(partition, (short) (OLD_PROTOCOL - 1)));
        }
        equal("nothing of it is there", List.of("0"), ends(cluster, topic));
        for (int partition = 0; partition < partitions; partition++) {
            int index = partition;
            withoutVerification(cluster, () -> hanging.write(index, OLD_PROTOCOL) == Errors.NONE);
        }
        return topic;
    }

    /** Tries until it is done: the setting reaches the leader in its own time. */
    private static void withoutVerification(Cluster cluster, Scenarios.Condition done) throws Exception {
        verify(cluster, false);
        try {
            Scenarios.await("what is not verified", done);
        } finally {
            verify(cluster, true);
        }
    }

    /** The different ends of the topic's partitions. */
    private static List<String> ends(Cluster cluster, String topic) {
        return cluster.offsets(topic).stream().map(line -> line.substring(line.lastIndexOf(':') + 1)).distinct().toList();
    }

    private static void verify(Cluster cluster, boolean on) {
        cluster.run("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                VERIFICATION + "=" + on).well();
    }

    private Errors write(int partition, short version) throws Exception {
        var records = IntStream.range(0, 5)
                .mapToObj(i -> new SimpleRecord(System.currentTimeMillis() - DAY_MS, null, ("value-" + i).getBytes()))
                .toArray(SimpleRecord[]::new);
        var data = new PartitionProduceData().setIndex(partition)
                .setRecords(MemoryRecords.withTransactionalRecords(Compression.NONE, producerId, epoch, 0, records));
        var topics = new TopicProduceDataCollection();
        topics.add(new TopicProduceData().setName(topic).setPartitionData(List.of(data)));
        var body = new ProduceRequestData().setTransactionalId(topic).setAcks((short) -1).setTimeoutMs(30_000)
                .setTopicData(topics);
        var answer = call(leader(topic, partition), ProduceRequest.builder(body, true).build(version));
        var response = new ProduceResponseData(answer, version);
        return Errors.forCode(response.responses().iterator().next().partitionResponses().get(0).errorCode());
    }

    /** Offset 7 of partition 0 for the group that is named like the topic. */
    private Errors commitOffset(short version) throws Exception {
        var offset = new TxnOffsetCommitRequestPartition().setPartitionIndex(0).setCommittedOffset(7).setCommittedMetadata("");
        var body = new TxnOffsetCommitRequestData().setTransactionalId(topic).setGroupId(topic).setProducerId(producerId)
                .setProducerEpoch(epoch)
                .setTopics(List.of(new TxnOffsetCommitRequestTopic().setName(topic).setPartitions(List.of(offset))));
        var answer = call(leader(GROUPS, partitionOf(topic)), new TxnOffsetCommitRequest(body, version));
        return Errors.forCode(new TxnOffsetCommitResponseData(answer, version).topics().get(0).partitions().get(0).errorCode());
    }

    /** Where the group's offsets are. */
    private static int partitionOf(String group) {
        return Math.abs(group.hashCode() % 50);
    }

    private Node leader(String topic, int partition) throws Exception {
        try (var admin = cluster.admin()) {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(partition).leader();
        }
    }

    /** Sends the request and gives the body of the answer. */
    private static Readable call(Node node, AbstractRequest body) throws IOException {
        var request = body.serializeWithHeader(new RequestHeader(body.apiKey(), body.version(), "by-hand", 1));
        try (var socket = new Socket(node.host(), node.port())) {
            socket.setSoTimeout(30_000);
            var out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(request.remaining());
            out.write(request.array(), request.arrayOffset() + request.position(), request.remaining());
            out.flush();
            var in = new DataInputStream(socket.getInputStream());
            var answer = ByteBuffer.wrap(in.readNBytes(in.readInt()));
            ResponseHeader.parse(answer, body.apiKey().responseHeaderVersion(body.version()));
            return new ByteBufferAccessor(answer);
        }
    }

    /** Found and ended by Kafka's own tool, in both forms of its command: records, and offsets of a group. */
    static void run(Cluster cluster) throws Exception {
        records(cluster);
        offsets(cluster);
    }

    private static void offsets(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        try (var admin = cluster.admin()) {
            var partition = new TopicPartition(topic, 0);
            admin.alterConsumerGroupOffsets(topic, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            var hanging = new Hanging(cluster, topic);
            equal("offsets without a transaction", Errors.TRANSACTION_ABORTABLE, hanging.commitOffset((short) 4));
            equal("of an older client", Errors.INVALID_TXN_STATE, hanging.commitOffset((short) 3));
            equal("stable", 3L, stable(admin, partition));
            withoutVerification(cluster, () -> hanging.commitOffset((short) 4) == Errors.NONE);
            equal("stable, while another is pending", -1L, stable(admin, partition));

            String index = "" + partitionOf(topic);
            String[] find = {"find-hanging", "--topic", GROUPS, "--partition", index, "--max-transaction-timeout", "0"};
            var found = Transactions.row(cluster, "ProducerId", "" + hanging.producerId, find);
            abort(cluster, GROUPS, index, "--start-offset", found.get("StartOffset"));
            Scenarios.await("the end of the pending offset", () -> stable(admin, partition) == 3L);
            equal("hanging", List.of(), Transactions.rows(cluster, find));
        }
    }

    /** What the group has committed, or -1 if the broker does not tell yet. */
    private static long stable(Admin admin, TopicPartition partition) throws Exception {
        var found = admin.listConsumerGroupOffsets(partition.topic(), new ListConsumerGroupOffsetsOptions().requireStable(true))
                .partitionsToOffsetAndMetadata().get().get(partition);
        return found == null ? -1 : found.offset();
    }

    private static void records(Cluster cluster) throws Exception {
        String topic = begin(cluster, 2);
        for (int partition = 0; partition < 2; partition++) {
            String index = "" + partition;
            String[] find = {"find-hanging", "--topic", topic, "--partition", index};
            var found = Transactions.row(cluster, "Topic", topic, find);
            equal("partition", index, found.get("Partition"));
            equal("start", "0", found.get("StartOffset"));
            that("among those of the topic", Transactions.rows(cluster, "find-hanging", "--topic", topic).contains(found));
            commitBehind(cluster, topic, partition);
            if (partition == 0) {
                abort(cluster, topic, index, "--start-offset", "0");
            } else {
                abort(cluster, topic, index, "--producer-id", found.get("ProducerId"), "--producer-epoch",
                        found.get("ProducerEpoch"), "--coordinator-epoch", "0");
            }
            freed(cluster, topic, partition);
            equal("hanging", List.of(), Transactions.rows(cluster, find));
        }
    }

    private static void abort(Cluster cluster, String topic, String partition, String... how) {
        var arguments = new ArrayList<>(List.of("abort", "--topic", topic, "--partition", partition));
        arguments.addAll(List.of(how));
        cluster.run(Transactions.COMMAND, arguments.toArray(String[]::new)).well();
    }

    /** Another producer commits values 5 to 10; nobody who wants what is committed can read them. */
    static void commitBehind(Cluster cluster, String topic, int partition) throws Exception {
        try (var other = Transactions.producer(cluster, topic + "-behind-" + partition)) {
            Transactions.begin(other, topic, partition, 5, 10);
            other.commitTransaction();
        }
        Scenarios.await("the marker", () -> end(cluster, topic, partition, IsolationLevel.READ_UNCOMMITTED) == 11);
        equal("end of what is decided", 0L, end(cluster, topic, partition, IsolationLevel.READ_COMMITTED));
    }

    /** What is behind it can be read, and nothing of it. */
    static void freed(Cluster cluster, String topic, int partition) throws Exception {
        Scenarios.await("the end to be decided", () -> end(cluster, topic, partition, IsolationLevel.READ_COMMITTED) == 12);
        equal("committed", Transactions.values(5, 10), Transactions.consume(cluster, topic, partition, "read_committed", 5));
        equal("open", List.of(), Transactions.open(cluster, topic, partition));
    }

    private static long end(Cluster cluster, String topic, int partition, IsolationLevel isolation) throws Exception {
        try (var admin = cluster.admin()) {
            var asked = new TopicPartition(topic, partition);
            return admin.listOffsets(Map.of(asked, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
                    .partitionResult(asked).get().offset();
        }
    }

    /** Corelane's own command, on transactions that producers have open and on one that hangs. */
    static void corelane(Cluster cluster) throws Exception {
        String topic = cluster.newTopic(1);
        try (var producer = Transactions.producer(cluster, topic)) {
            Transactions.begin(producer, topic, 0, 0, 5);
            var listed = corelane(cluster, "list", "--state", "ongoing").well().out();
            contains("listed", listed, topic + "  ongoing  producer ");
            contains("listed", corelane(cluster, "list").well().out(), topic + "  ongoing  producer ");
            that("not complete", !corelane(cluster, "list", "--state", "completecommit").well().out().contains(topic));
            var described = corelane(cluster, "describe", topic).well().out();
            contains("described", described, topic + "  ongoing  producer ");
            contains("its timeout", described, "  timeout 50000 ms  ");
            contains("its partition", described, "\n  " + topic + "-0\n");
            commitBehind(cluster, topic, 0);

            contains("aborted", corelane(cluster, "abort", topic).well().out(), topic);
            freed(cluster, topic, 0);
            that("its producer is fenced", Transactions.fails(producer::commitTransaction));
            that("none is ongoing", !corelane(cluster, "list", "--state", "ongoing").well().out().contains(topic + "  "));
        }
        var unknown = corelane(cluster, "abort", "not-" + topic);
        equal("exit code for an unknown id", 1, unknown.code());
        contains("an unknown id", unknown.err(), "no transactional id not-" + topic);

        String hanging = begin(cluster, 1);
        commitBehind(cluster, hanging, 0);
        var nowhere = corelane(cluster, "abort", "--partition", hanging + ":0", "--start-offset", "3");
        equal("exit code for a start that is none", 1, nowhere.code());
        contains("a start that is none", nowhere.err(), "no transaction is open in " + hanging + "-0 since 3");
        // To fence its id is of no use: the coordinator knows nothing of the partition.
        corelane(cluster, "abort", hanging).well();
        equal("still open", List.of("0"), Transactions.open(cluster, hanging, 0));
        corelane(cluster, "abort", "--partition", hanging + ":0", "--start-offset", "0").well();
        freed(cluster, hanging, 0);
    }

    private static Tool.Ended corelane(Cluster cluster, String... arguments) throws Exception {
        String binary = System.getenv("CORELANE_BIN");
        that("needs CORELANE_BIN, the path of the corelane binary", binary != null);
        var command = Stream.of(Stream.of(binary, "txn"), Arrays.stream(arguments), Stream.of("--bootstrap", cluster.bootstrap))
                .flatMap(words -> words).toList();
        var process = new ProcessBuilder(command).redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null"))).start();
        // Both are short, so neither fills its pipe while the other is read.
        var out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        var err = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
        Cluster.STDERR.println("$ " + String.join(" ", command) + " -> " + process.waitFor());
        return new Tool.Ended(process.exitValue(), out, err);
    }
}
