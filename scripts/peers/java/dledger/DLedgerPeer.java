import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferResponse;

/** Upstream's client of a DLedger group: appends a body, gets it, asks for one that is not there, hands over. */
public class DLedgerPeer {
    /** It gives up after three seconds, which a machine may let a process stand still. */
    private static final int ATTEMPTS_MORE = 20;

    public static void main(String[] args) throws Exception {
        DLedgerClient client = new DLedgerClient(args[0], args[1]);
        client.startup();
        AppendEntryResponse appended = client.append(args[2].getBytes("UTF-8"));
        for (int more = 0; more < ATTEMPTS_MORE && appended.getCode() != 200; more++) {
            appended = client.append(args[2].getBytes("UTF-8"));
        }
        System.out.println("append " + appended.getCode() + " " + appended.getIndex() + " " + appended.getPos());
        GetEntriesResponse got = client.get(appended.getIndex());
        for (DLedgerEntry entry : got.getEntries()) {
            System.out.println("get " + got.getCode() + " " + entry.getIndex() + " " + new String(entry.getBody(), "UTF-8"));
        }
        System.out.println("beyond " + client.get(1_000_000).getCode());
        LeadershipTransferResponse handed = client.leadershipTransfer(args[3], args[4], Long.parseLong(args[5]));
        System.out.println("transfer " + handed.getCode());
        client.shutdown();
        System.exit(0);
    }
}
