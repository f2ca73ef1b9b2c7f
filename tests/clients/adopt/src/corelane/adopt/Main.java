package corelane.adopt;

import java.time.Duration;
import java.util.List;

/**
 * Writes topics of every kind, and prints all that a consumer can see of topics, so that two brokers
 * can be held against each other line by line.
 *
 * write BOOTSTRAP                          every kind, transactions and a cleaned topic among them
 * write-plain BOOTSTRAP                    what needs no transaction coordinator
 * create BOOTSTRAP TOPIC:PARTITIONS...     empty topics
 * read BOOTSTRAP TOPIC...                  all of them, by both isolation levels
 */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2) {
            System.err.println("usage: write|write-plain|create|read BOOTSTRAP TOPIC...");
            System.exit(2);
        }
        var topics = List.of(arguments).subList(2, arguments.length);
        switch (arguments[0]) {
            case "write" -> new Writer(arguments[1]).everything();
            case "write-plain" -> new Writer(arguments[1]).plain();
            case "create" -> new Writer(arguments[1]).create(topics);
            case "read" -> new Reader(arguments[1]).print(topics, Duration.ofSeconds(60));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.flush();
        // An open transaction must stay open: no clean close of what is still there.
        Runtime.getRuntime().halt(0);
    }
}
