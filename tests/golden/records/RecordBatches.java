// Writes record batches with Kafka's own classes, and lists the batches of files as Kafka reads them.
//
//   java RecordBatches.java write DIR        java-<codec>.bin for every codec
//   java RecordBatches.java list FILE...     the listing that shards/wire/tests/records reproduces

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.zip.CRC32C;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

public final class RecordBatches {
    private static final long NOW = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (CompressionType codec : CompressionType.values()) {
                Files.write(Path.of(args[1], "java-" + codec.name + ".bin"), write(codec));
            }
            return;
        }
        for (int i = 1; i < args.length; i++) {
            Path file = Path.of(args[i]);
            System.out.print("file " + file.getFileName() + "\n" + list(Files.readAllBytes(file)));
        }
    }

    private static byte[] write(CompressionType codec) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        boolean plain = codec == CompressionType.NONE;
        out.writeBytes(small(builder(codec, TimestampType.CREATE_TIME, 0, -1, -1, -1, false, 0)));
        out.writeBytes(small(builder(codec, TimestampType.CREATE_TIME, 5, 4000, 7, Integer.MAX_VALUE - 2, false, 3)));
        out.writeBytes(small(builder(codec, TimestampType.LOG_APPEND_TIME, 10, 4000, 8, 0, true, 3)));
        out.writeBytes(large(builder(codec, TimestampType.CREATE_TIME, 20, -1, -1, -1, false, 4), plain ? 40 : 2000));
        if (plain) {
            out.writeBytes(bytes(MemoryRecords.withEndTransactionMarker(
                60, NOW + 1, 4, 4000, (short) 8, new EndTransactionMarker(ControlRecordType.COMMIT, 55)).buffer()));
            out.writeBytes(bytes(MemoryRecords.withEndTransactionMarker(
                61, NOW + 2, 4, 4001, (short) 0, new EndTransactionMarker(ControlRecordType.ABORT, -1)).buffer()));
            ByteBuffer empty = ByteBuffer.allocate(61);
            DefaultRecordBatch.writeEmptyHeader(
                empty, (byte) 2, 4000, (short) 8, 5, 62, 70, 4, TimestampType.CREATE_TIME, NOW + 9, false, false);
            out.writeBytes(bytes(empty.flip()));
        }
        return out.toByteArray();
    }

    private static MemoryRecordsBuilder builder(CompressionType codec, TimestampType time, long baseOffset,
            long producer, int epoch, int sequence, boolean transactional, int leaderEpoch) {
        return new MemoryRecordsBuilder(ByteBuffer.allocate(1024), (byte) 2, Compression.of(codec).build(), time,
            baseOffset, NOW + 777, producer, (short) epoch, sequence, transactional, false, leaderEpoch, 16 << 20);
    }

    private static byte[] small(MemoryRecordsBuilder batch) {
        batch.append(NOW, utf8("k0"), utf8("v0"));
        batch.append(NOW + 1, null, utf8("no key"));
        batch.append(NOW - 5, utf8("tombstone"), null);
        batch.append(NOW + 300_000, utf8(""), utf8(""), new Header[0]);
        batch.append(NOW + 2, utf8("headers"), utf8("x"), new Header[] {
            new RecordHeader("h", utf8("1")), new RecordHeader("h", utf8("2")),
            new RecordHeader("ключ", utf8("значение")), new RecordHeader("", null),
            new RecordHeader("empty", utf8("")),
        });
        return bytes(batch.build().buffer());
    }

    private static byte[] large(MemoryRecordsBuilder batch, int records) {
        for (int i = 0; i < records; i++) {
            batch.append(NOW + i * 7L, utf8("key-" + i % 97), utf8("value " + i + " " + "abcdefgh".repeat(i % 30)));
        }
        return bytes(batch.build().buffer());
    }

    private static String list(byte[] file) {
        StringBuilder out = new StringBuilder();
        for (MutableRecordBatch any : MemoryRecords.readableRecords(ByteBuffer.wrap(file)).batches()) {
            DefaultRecordBatch batch = (DefaultRecordBatch) any;
            batch.ensureValid();
            out.append(String.join(" ", "batch", "" + batch.baseOffset(), "" + batch.lastOffset(),
                "" + batch.countOrNull(), "" + batch.producerId(), "" + batch.producerEpoch(),
                "" + batch.baseSequence(), "" + batch.lastSequence(), batch.compressionType().name,
                "" + (batch.timestampType() == TimestampType.LOG_APPEND_TIME), "" + batch.isTransactional(),
                "" + batch.isControlBatch(), "" + batch.baseTimestamp(), "" + batch.maxTimestamp(),
                "" + batch.partitionLeaderEpoch())).append('\n');
            StringBuilder lines = new StringBuilder();
            int count = 0;
            for (Record record : batch) {
                lines.append("record ").append(record.offset()).append(' ').append(record.timestamp());
                lines.append(' ').append(hex(bytes(record.key()))).append(' ').append(hex(bytes(record.value())));
                for (Header header : record.headers()) {
                    lines.append(' ').append(hex(utf8(header.key()))).append('=').append(hex(header.value()));
                }
                lines.append('\n');
                count++;
            }
            if (count <= 6) {
                out.append(lines);
            } else {
                CRC32C crc = new CRC32C();
                crc.update(utf8(lines.toString()));
                out.append("records ").append(count).append(" crc32c ").append(crc.getValue()).append('\n');
            }
        }
        return out.toString();
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    }
}
