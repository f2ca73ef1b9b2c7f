package corelane.clients;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The java family's program: runs each scenario and prints one line for it. */
public final class Main {
    private static final int SCENARIO_SECONDS = 100;

    /** A scenario throws when it fails. */
    interface Scenario {
        void run(Kit kit) throws Exception;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        Producing.addTo(scenarios);
        Consuming.addTo(scenarios);
        Administering.addTo(scenarios);
        Retaining.addTo(scenarios);
        Compacting.addTo(scenarios);
        Timing.addTo(scenarios);
        Moving.addTo(scenarios);
        Grouping.addTo(scenarios);
        GroupAdmin.addTo(scenarios);
        Transacting.addTo(scenarios);

        String bootstrap = null;
        List<String> names = new ArrayList<>(scenarios.keySet());
        for (int i = 0; i < arguments.length; i++) {
            switch (arguments[i]) {
                case "--list" -> {
                    names.forEach(System.out::println);
                    return;
                }
                case "--bootstrap" -> bootstrap = arguments[++i];
                // For the program's own use: topic, group and protocol of a member to be killed.
                case "--member" -> {
                    Remote.serve(bootstrap, arguments[++i].split(","));
                    return;
                }
                // The same: input, output and number of records of a pipeline.
                case "--pipeline" -> System.exit(Pipeline.serve(bootstrap, arguments[++i].split(",")));
                // The same: application, its folder, input and output of a word count.
                case "--word-count" -> {
                    WordCount.serve(bootstrap, arguments[++i].split(","));
                    return;
                }
                case "--only" -> names = List.of(arguments[++i]);
                case "--data-dir" -> i++;
                default -> usage(arguments[i]);
            }
        }
        if (bootstrap == null || !scenarios.keySet().containsAll(names)) {
            usage(bootstrap == null ? "--bootstrap is missing" : "no scenario " + names);
        }
        boolean failed = false;
        for (String name : names) {
            failed |= !run(name, scenarios.get(name), bootstrap);
        }
        System.exit(failed ? 1 : 0);
    }

    private static boolean run(String name, Scenario scenario, String bootstrap) {
        ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread worker = new Thread(task, name);
            worker.setDaemon(true);
            return worker;
        });
        var result = thread.submit(() -> {
            try (Kit kit = new Kit(bootstrap, name)) {
                scenario.run(kit);
            }
            return null;
        });
        String failure = null;
        try {
            result.get(SCENARIO_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            failure = "not finished after " + SCENARIO_SECONDS + " s";
        } catch (ExecutionException e) {
            e.getCause().printStackTrace();
            failure = e.getCause().toString();
        } catch (InterruptedException e) {
            failure = "interrupted";
        }
        thread.shutdownNow();
        System.out.println(failure == null
                ? "ok " + name
                : "not ok " + name + ": " + failure.replaceAll("\\s+", " "));
        return failure == null;
    }

    private static void usage(String problem) {
        System.err.println(problem + "; usage: run --bootstrap HOST:PORT [--only SCENARIO] [--list] [--data-dir DIR[,DIR]]");
        System.exit(2);
    }
}
