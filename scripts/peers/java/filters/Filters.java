import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Upstream's filters, told by lines on stdin what to do; every line is answered with one line of JSON. Expressions and stored
 * properties come in base64, "-" is nothing.
 *
 * <pre>
 * judge EXPRESSION PROPERTIES...    {"refused"} with what it said, or {"said"}: of each T where it is true, F where false, N where
 *                                   it is nothing, X where it fails
 * speed EXPRESSION PROPERTIES COUNT {"ns"} that one evaluation takes, properties decoded each time
 * register FOLDER GROUP TOPIC EXPRESSION VERSION    by a broker's table, kept below FOLDER; {"registered"}
 * load FOLDER GROUP TOPIC           what a broker that starts there knows; {"expression", "version", "dead"}
 * </pre>
 */
public final class Filters {
    private Filters() {
    }

    private static String decoded(String word) {
        return word.equals("-") ? "" : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? new byte[0] : Base64.getDecoder().decode(word);
    }

    private static String json(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            made.append(each < ' ' || each > '~' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        }
        return made.append('"').toString();
    }

    private static Object evaluated(BooleanExpression expression, byte[] stored) throws Exception {
        Map<String, String> properties =
            MessageDecoder.string2messageProperties(new String(stored, StandardCharsets.UTF_8));
        return expression.evaluate(new MessageEvaluationContext(properties));
    }

    private static String judge(String[] words) {
        BooleanExpression expression;
        try {
            expression = SelectorParser.parse(decoded(words[1]));
        } catch (Throwable error) {
            return "{\"refused\":" + json(String.valueOf(error.getMessage())) + "}";
        }
        StringBuilder said = new StringBuilder();
        for (int at = 2; at < words.length; at++) {
            try {
                Object value = evaluated(expression, bytes(words[at]));
                said.append(value == null ? 'N' : value.equals(Boolean.TRUE) ? 'T' : 'F');
            } catch (Throwable error) {
                said.append('X');
            }
        }
        return "{\"said\":\"" + said + "\"}";
    }

    private static String speed(String[] words) throws Exception {
        BooleanExpression expression = SelectorParser.parse(decoded(words[1]));
        byte[] stored = bytes(words[2]);
        int count = Integer.parseInt(words[3]);
        int matched = 0;
        long least = Long.MAX_VALUE;
        for (int run = 0; run < 6; run++) {
            long begun = System.nanoTime();
            for (int each = 0; each < count; each++) {
                matched += Boolean.TRUE.equals(evaluated(expression, stored)) ? 1 : 0;
            }
            least = Math.min(least, System.nanoTime() - begun);
        }
        return String.format("{\"ns\":%.1f,\"matched\":%d}", (double) least / count, matched);
    }

    private static ConsumerFilterManager manager(String folder) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(folder);
        store.setStorePathCommitLog(folder + File.separator + "commitlog");
        return new ConsumerFilterManager(
            new BrokerController(new BrokerConfig(), new NettyServerConfig(), new NettyClientConfig(), store));
    }

    private static String register(String[] words) throws Exception {
        ConsumerFilterManager manager = manager(words[1]);
        manager.load();
        boolean registered = manager.register(words[3], words[2], decoded(words[4]), "SQL92", Long.parseLong(words[5]));
        manager.persist();
        return "{\"registered\":" + registered + "}";
    }

    private static String load(String[] words) throws Exception {
        ConsumerFilterManager manager = manager(words[1]);
        boolean loaded = manager.load();
        ConsumerFilterData data = loaded ? manager.get(words[3], words[2]) : null;
        if (data == null) {
            return "{\"expression\":null}";
        }
        return String.format("{\"expression\":%s,\"version\":%d,\"dead\":%s,\"compiled\":%s}", json(data.getExpression()),
            data.getClientVersion(), data.isDead(), data.getCompiledExpression() != null);
    }

    private static String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "judge":
                return judge(words);
            case "speed":
                return speed(words);
            case "register":
                return register(words);
            case "load":
                return load(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = perform(line.split(" "));
            } catch (Throwable error) {
                answer = "{\"error\":" + json(String.valueOf(error)) + "}";
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
