import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs the requests of clients. A user's credentials are in a file of Java's own form: AccessKey=NAME, SecretKey=PASSWORD. */
final class Keys {
    private static final String FILE = "rocketmq.client.keyFile";

    private Keys() { }

    /** The hook for the user of this process, whose file the property names; null, with which clients do not sign, without it. */
    static RPCHook hook() {
        String file = System.getProperty(FILE);
        return file == null ? null : hook(file);
    }

    static RPCHook hook(String file) {
        Properties keys = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            keys.load(reader);
        } catch (IOException error) {
            throw new IllegalArgumentException("no credentials in " + file, error);
        }
        String name = keys.getProperty(SessionCredentials.ACCESS_KEY);
        return new AclClientRPCHook(new SessionCredentials(name, keys.getProperty(SessionCredentials.SECRET_KEY)));
    }
}
