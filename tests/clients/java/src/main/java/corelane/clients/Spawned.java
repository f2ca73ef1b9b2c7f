package corelane.clients;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** This program again as a process that says on stdout how it goes on, and is killed. */
final class Spawned implements AutoCloseable {
    private final Process process;
    /** An empty one is the end. */
    private final BlockingQueue<Optional<String>> lines = new LinkedBlockingQueue<>();

    Spawned(Kit kit, String flag, String... words) throws IOException {
        process = start(kit, flag, words);
        var listener = new Thread(this::listen, "listener");
        listener.setDaemon(true);
        listener.start();
    }

    /** With a flag for its own use and the words that belong to it. */
    static Process start(Kit kit, String flag, String... words) throws IOException {
        String java = ProcessHandle.current().info().command().orElse("java");
        return new ProcessBuilder(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", System.getProperty("java.class.path"),
                        Main.class.getName(), "--bootstrap", kit.bootstrap, flag, String.join(",", words))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    private void listen() {
        try (var out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                lines.add(Optional.of(line));
            }
        } catch (IOException e) {
            e.printStackTrace();
        }
        lines.add(Optional.empty());
    }

    private Optional<String> says() throws InterruptedException {
        // The broker may have to start meanwhile.
        var line = lines.poll(60, TimeUnit.SECONDS);
        Check.that("the process says nothing", line != null);
        return line;
    }

    /** The next line. */
    String next() throws InterruptedException {
        return says().orElseThrow(() -> new AssertionError("the process has ended"));
    }

    /** Ends its input and waits for its own, good end. */
    void finish() throws InterruptedException, IOException {
        process.getOutputStream().close();
        while (says().isPresent()) {}
        Check.equal("exit code of the process", 0, process.waitFor());
    }

    /** SIGKILL. */
    @Override
    public void close() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }
}
