import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;

/**
 * Upstream's DLedgerClient under load, told by lines on stdin what to do; every line is answered with one line of JSON. One JVM
 * for all groups, so that the client is warm whoever serves it; nothing is appended twice.
 *
 * <pre>
 * append GROUP PEERS SECONDS SIZE THREADS   one client, each thread waits for each answer
 * leave PEERS                               ends the client
 * </pre>
 */
public final class LedgerLoad {
    private static final double NS = 1e9;
    private static final double LED_S_MAX = 60;
    private static final int PAUSE_MS = 100;
    private static final int OK = DLedgerResponseCode.SUCCESS.getCode();

    private final Map<String, DLedgerClient> clients = new HashMap<>();

    private LedgerLoad() { }

    /** Answers to one thread, in microseconds. */
    private static final class Times {
        private int[] us = new int[1 << 14];
        private int count;
        private int refused;

        void add(long ns) {
            if (count == us.length) {
                us = Arrays.copyOf(us, 2 * count);
            }
            us[count++] = (int) Math.min(ns / 1000, Integer.MAX_VALUE);
        }
    }

    /** One whose group has a leader. */
    private DLedgerClient client(String group, String peers, byte[] body) throws Exception {
        DLedgerClient client = clients.get(peers);
        if (client == null) {
            client = new DLedgerClient(group, peers);
            client.startup();
            clients.put(peers, client);
        }
        long began = System.nanoTime();
        while (client.append(body).getCode() != OK) {
            if (System.nanoTime() - began > LED_S_MAX * NS) {
                throw new IllegalStateException("nobody takes an entry for " + LED_S_MAX + " s");
            }
            Thread.sleep(PAUSE_MS);
        }
        return client;
    }

    private String append(String group, String peers, double seconds, int size, int threads) throws Exception {
        byte[] body = new byte[size];
        DLedgerClient client = client(group, peers, body);
        Times[] all = IntStream.range(0, threads).mapToObj(number -> new Times()).toArray(Times[]::new);
        AtomicReference<String> refusal = new AtomicReference<>("");
        Thread[] running = new Thread[threads];
        long began = System.nanoTime();
        for (int k = 0; k < threads; k++) {
            Times times = all[k];
            running[k] = new Thread(() -> {
                for (long asked = System.nanoTime(); asked - began < seconds * NS; asked = System.nanoTime()) {
                    AppendEntryResponse answer = client.append(body);
                    if (answer.getCode() == OK) {
                        times.add(System.nanoTime() - asked);
                    } else {
                        times.refused++;
                        refusal.set("code " + answer.getCode());
                    }
                }
            });
            running[k].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double took = (System.nanoTime() - began) / NS;
        int[] us = Arrays.stream(all).flatMapToInt(times -> Arrays.stream(times.us, 0, times.count)).sorted().toArray();
        int refused = Arrays.stream(all).mapToInt(times -> times.refused).sum();
        double middle = us.length == 0 ? 0 : us[us.length / 2] / 1e3;
        double high = us.length == 0 ? 0 : us[(int) (us.length * 0.99)] / 1e3;
        String form = "{\"entries\":%d,\"refused\":%d,\"seconds\":%.4f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"last_refusal\":\"%s\"}";
        return String.format(Locale.ROOT, form, us.length, refused, took, middle, high, refusal.get());
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "append":
                return append(words[1], words[2], Double.parseDouble(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "leave":
                clients.remove(words[1]).shutdown();
                return "{}";
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    public static void main(String[] arguments) throws Exception {
        LedgerLoad load = new LedgerLoad();
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        for (String line = told.readLine(); line != null; line = told.readLine()) {
            try {
                System.out.println(load.answer(line.split(" ")));
            } catch (Exception error) {
                System.out.println("{\"error\":\"" + error.toString().replaceAll("[^A-Za-z0-9_ .:,-]", " ") + "\"}");
            }
        }
        System.exit(0);
    }
}
