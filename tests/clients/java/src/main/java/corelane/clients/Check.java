package corelane.clients;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.LongStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Comparisons that say what was compared. */
final class Check {
    private Check() {}

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(String what, Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError(what + ": expected " + brief(expected) + ", got " + brief(actual));
        }
    }

    static void bytes(String what, byte[] expected, byte[] actual) {
        if (!Arrays.equals(expected, actual)) {
            throw new AssertionError(what + ": expected " + brief(Arrays.toString(expected))
                    + ", got " + brief(Arrays.toString(actual)));
        }
    }

    static List<Long> range(long from, long to) {
        return LongStream.range(from, to).boxed().toList();
    }

    /** The records read are those sent to one partition, in order, at offsets from 0 on. */
    static void same(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> read) {
        equal("count", sent.size(), read.size());
        for (int i = 0; i < sent.size(); i++) {
            var expected = sent.get(i);
            var actual = read.get(i);
            equal("offset of record " + i, (long) i, actual.offset());
            bytes("key of record " + i, expected.key(), actual.key());
            bytes("value of record " + i, expected.value(), actual.value());
            equal("headers of record " + i, expected.headers(), actual.headers());
        }
    }

    /** Fails unless the call fails with this error, directly or as the cause. */
    static void fails(Class<? extends Exception> error, String what, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Exception e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            if (error.isInstance(cause)) {
                return;
            }
            throw new AssertionError(what + ": expected " + error.getSimpleName() + ", got " + cause, e);
        }
        throw new AssertionError(what + ": expected " + error.getSimpleName() + ", got no error");
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() > 200 ? text.substring(0, 200) + "…" : text;
    }
}
