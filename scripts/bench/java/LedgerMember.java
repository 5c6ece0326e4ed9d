import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;

/** A member of a DLedger group with upstream's defaults: GROUP PEERS ID FOLDER. Its files are synced every 10 ms, by a thread that no answer waits for. */
public final class LedgerMember {
    private LedgerMember() { }

    public static void main(String[] arguments) {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(arguments[0]);
        config.setPeers(arguments[1]);
        config.setSelfId(arguments[2]);
        config.setStoreBaseDir(arguments[3]);
        new DLedgerServer(config).startup();
    }
}
