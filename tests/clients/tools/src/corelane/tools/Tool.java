package corelane.tools;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs one of Kafka's command-line tools by its main class, in this process but as the shell would:
 * arguments in, standard output and exit code out. One JVM for all saves their start-up time.
 */
final class Tool {
    /** What a tool printed and how it ended. */
    record Ended(int code, String out, String err) {
        /** Fails unless the tool ended well. */
        Ended well() {
            if (code != 0) {
                throw new AssertionError("exit code " + code + ": " + (err + " " + out).strip());
            }
            return this;
        }

        List<String> lines() {
            return out.lines().map(String::strip).filter(line -> !line.isEmpty()).toList();
        }
    }

    /** Thrown in place of ending the process, out of the tool's main. */
    private static final class Exited extends Error {}

    private Tool() {}

    static Ended run(String tool, String... arguments) {
        return runWith("", tool, arguments);
    }

    /** Runs `org.apache.kafka.tools.<tool>`, or a whole class name, with this standard input. */
    static synchronized Ended runWith(String in, String tool, String... arguments) {
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        InputStream formerIn = System.in;
        var out = new ByteArrayOutputStream();
        var err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(in.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        var ended = new AtomicReference<Ended>();
        Exit.Procedure exit = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            // Only the first counts: some tools catch what is thrown here and exit once more.
            ended.compareAndSet(null, ended(code, out, err));
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            int code = call(tool, arguments);
            // As at the end of a JVM; the console producer sends its last batch there.
            hooks.forEach(Runnable::run);
            ended.compareAndSet(null, ended(code, out, err));
        } finally {
            System.setOut(formerOut);
            System.setErr(formerErr);
            System.setIn(formerIn);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        System.err.println("$ " + tool + " " + String.join(" ", arguments) + " -> " + ended.get().code());
        return ended.get();
    }

    private static Ended ended(int code, ByteArrayOutputStream out, ByteArrayOutputStream err) {
        return new Ended(code, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
    }

    private static int call(String tool, String[] arguments) {
        try {
            Class.forName(tool.startsWith("kafka.") ? tool : "org.apache.kafka.tools." + tool)
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException e) {
            // As the JVM does with an exception out of main. Of an exit the code is known already.
            e.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("no such tool: " + tool, e);
        }
    }
}
