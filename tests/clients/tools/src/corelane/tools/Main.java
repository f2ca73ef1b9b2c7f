package corelane.tools;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The tools family's program: runs each tool's scenario and prints one line for it. */
public final class Main {
    private static final int SCENARIO_SECONDS = 60;

    /** A scenario throws when it fails. */
    interface Scenario {
        void run(Cluster cluster) throws Exception;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        Scenarios.addTo(scenarios);
        Groups.addTo(scenarios);
        Transactions.addTo(scenarios);
        scenarios.put("kafka-dump-log", DumpLog::run);
        scenarios.put("kafka-dump-log-compacted", DumpLog::runCompacted);

        String bootstrap = null;
        String dataDirs = "";
        List<String> names = new ArrayList<>(scenarios.keySet());
        for (int i = 0; i < arguments.length; i++) {
            switch (arguments[i]) {
                case "--list" -> {
                    names.forEach(System.out::println);
                    return;
                }
                case "--bootstrap" -> bootstrap = arguments[++i];
                case "--only" -> names = List.of(arguments[++i]);
                case "--data-dir" -> dataDirs = arguments[++i];
                default -> usage(arguments[i]);
            }
        }
        if (bootstrap == null || !scenarios.keySet().containsAll(names)) {
            usage(bootstrap == null ? "--bootstrap is missing" : "no scenario " + names);
        }
        boolean failed = false;
        for (String name : names) {
            var cluster = new Cluster(bootstrap, dataDirs, name);
            String failure = run(name, scenarios.get(name), cluster);
            failed |= failure != null;
            Cluster.STDOUT.println(failure == null
                    ? "ok " + name
                    : "not ok " + name + ": " + failure.replaceAll("\\s+", " "));
        }
        System.exit(failed ? 1 : 0);
    }

    /** Why it failed, or null. */
    private static String run(String name, Scenario scenario, Cluster cluster) throws InterruptedException {
        ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread worker = new Thread(task, name);
            worker.setDaemon(true);
            return worker;
        });
        var result = thread.submit(() -> {
            scenario.run(cluster);
            return null;
        });
        try {
            result.get(SCENARIO_SECONDS, TimeUnit.SECONDS);
            return null;
        } catch (TimeoutException e) {
            return "not finished after " + SCENARIO_SECONDS + " s";
        } catch (ExecutionException e) {
            e.getCause().printStackTrace(Cluster.STDERR);
            return e.getCause().toString();
        } finally {
            thread.shutdownNow();
        }
    }

    private static void usage(String problem) {
        System.err.println(problem + "; usage: run --bootstrap HOST:PORT [--only SCENARIO] [--list] [--data-dir DIR[,DIR]]");
        System.exit(2);
    }
}
