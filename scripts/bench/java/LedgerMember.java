import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.Semaphore;

/**
 * A member of a DLedger group with upstream's defaults: its files are synced every 10 ms, by a thread that no answer waits for.
 *
 * <pre>
 * GROUP PEERS ID FOLDER                                            serves
 * GROUP PEERS ID FOLDER OUTCOME WARM_UP_S SECONDS SIZE IN_FLIGHT   also appends by itself once it leads, as a broker in Raft mode
 *                                                                  does, and writes what came of it to the file OUTCOME
 * </pre>
 */
public final class LedgerMember {
    private static final double NS = 1e9;
    private static final int LOOK_AGAIN_MS = 10;

    private final DLedgerServer server;
    private final DLedgerConfig config;
    private int[] us = new int[1 << 20];
    private int count;
    private int refused;

    private LedgerMember(DLedgerConfig config) {
        this.config = config;
        server = new DLedgerServer(config);
        server.startup();
    }

    private synchronized void answered(int code, long ns) {
        if (code != DLedgerResponseCode.SUCCESS.getCode()) {
            refused++;
            return;
        }
        if (count == us.length) {
            us = Arrays.copyOf(us, 2 * count);
        }
        us[count++] = (int) Math.min(ns / 1000, Integer.MAX_VALUE);
    }

    private double append(double seconds, byte[] body, int inFlight) throws Exception {
        count = refused = 0;
        Semaphore room = new Semaphore(inFlight);
        long began = System.nanoTime();
        while (System.nanoTime() - began < seconds * NS) {
            room.acquire();
            long asked = System.nanoTime();
            AppendEntryRequest request = new AppendEntryRequest();
            request.setGroup(config.getGroup());
            request.setRemoteId(config.getSelfId());
            request.setBody(body);
            server.handleAppend(request).whenComplete((answer, error) -> {
                answered(error == null ? answer.getCode() : DLedgerResponseCode.INTERNAL_ERROR.getCode(), System.nanoTime() - asked);
                room.release();
            });
        }
        room.acquire(inFlight);
        return (System.nanoTime() - began) / NS;
    }

    private static double cpuSeconds() {
        return ProcessHandle.current().info().totalCpuDuration().orElseThrow().toNanos() / NS;
    }

    private void load(Path outcome, double warmUp, double seconds, byte[] body, int inFlight) throws Exception {
        while (!server.isLeader()) {
            Thread.sleep(LOOK_AGAIN_MS);
        }
        append(warmUp, body, inFlight);
        double cpu = cpuSeconds();
        double took = append(seconds, body, inFlight);
        cpu = cpuSeconds() - cpu;
        Arrays.sort(us, 0, count);
        String form = "{\"entries\":%d,\"refused\":%d,\"seconds\":%.4f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"cpu_s\":%.3f}";
        String said = String.format(Locale.ROOT, form, count, refused, took, us[count / 2] / 1e3, us[(int) (count * 0.99)] / 1e3, cpu);
        Path written = outcome.resolveSibling(outcome.getFileName() + ".new");
        Files.writeString(written, said);
        Files.move(written, outcome, StandardCopyOption.ATOMIC_MOVE);
    }

    public static void main(String[] arguments) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(arguments[0]);
        config.setPeers(arguments[1]);
        config.setSelfId(arguments[2]);
        config.setStoreBaseDir(arguments[3]);
        LedgerMember member = new LedgerMember(config);
        if (arguments.length > 4) {
            member.load(Path.of(arguments[4]), Double.parseDouble(arguments[5]), Double.parseDouble(arguments[6]),
                new byte[Integer.parseInt(arguments[7])], Integer.parseInt(arguments[8]));
        }
    }
}
