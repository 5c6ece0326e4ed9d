import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Unmodified clients with default settings, each a client of its own, told by lines on stdin; every line is answered with one line
 * of JSON. It is compiled for 5.3.3 and for 4.9.8. Roles: `retries`, a producer as it comes; `once`, one without retries;
 * `transactions`, one that rolls each fifth back and commits the others; `push`, `orderly` and `pull`, consumers of groups that are
 * named for the topic. Arguments: NAMESRV TOPIC [POLL_MS], the last where not the default.
 *
 * <pre>
 * mark           begins to count anew; {}
 * watch MS       waits until every role has gone on for MS after the mark; as report
 * report         by role: {"count", "silence": the longest between two events, in ms, "errors", "error": the last one}
 * drained        ends the producers; waits until each consumer has all that was acknowledged; by consumer {"missing",
 *                "disordered", "rolledBack": how many of those it was given, "twice": messages of transactions in two places}
 * </pre>
 */
public final class HandOver {
    private static final int INTERVAL_MS = Integer.getInteger("intervalMs", 20);
    private static final long WAIT_MS = 300_000;

    private static final Map<String, Role> ROLES = new LinkedHashMap<>();
    private static final Set<String> ACKED = ConcurrentHashMap.newKeySet();
    private static final Set<String> ROLLED_BACK = ConcurrentHashMap.newKeySet();
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final int ROLLED_BACK_EACH = 5;
    private static final String OF_TRANSACTION = "Ended";
    private static volatile boolean ending;
    private static volatile long marked = System.currentTimeMillis();

    private HandOver() { }

    /** What one client has seen since the mark. */
    private static final class Role {
        private final boolean sends;
        private final Set<String> seen = ConcurrentHashMap.newKeySet();
        private final Map<Integer, Long> ends = new ConcurrentHashMap<>();
        private final Map<String, String> placesOfEnded = new ConcurrentHashMap<>();
        private final Set<String> twice = ConcurrentHashMap.newKeySet();
        private int count;
        private int disordered;
        private int errors;
        private String error = "";
        private long last = System.currentTimeMillis();
        private long silence;

        private Role(boolean sends) {
            this.sends = sends;
        }

        private synchronized void mark(long now) {
            count = 0;
            errors = 0;
            error = "";
            silence = 0;
            last = Math.max(last, now - INTERVAL_MS);
        }

        private synchronized void event() {
            long now = System.currentTimeMillis();
            silence = Math.max(silence, now - last);
            last = now;
            count++;
        }

        private synchronized void failed(String text) {
            errors++;
            error = text;
        }

        private synchronized void take(MessageExt message) {
            if (OF_TRANSACTION.equals(message.getTags())) {
                String here = place(message) + "@" + message.getQueueOffset();
                String before = placesOfEnded.putIfAbsent(message.getKeys(), here);
                if (before != null && !before.equals(here)) {
                    twice.add(message.getKeys());
                }
            }
            if (seen.add(message.getKeys())) {
                Long end = ends.get(place(message));
                disordered += end != null && message.getQueueOffset() < end ? 1 : 0;
                ends.put(place(message), message.getQueueOffset() + 1);
            }
            event();
        }

        private static int place(MessageExt message) {
            return message.getBrokerName().hashCode() * 31 + message.getQueueId();
        }

        private synchronized boolean wentOn(long until) {
            return last >= until;
        }

        private synchronized String json() {
            return String.format("{\"count\":%d,\"silence\":%d,\"errors\":%d,\"error\":\"%s\"}", count, silence, errors,
                error.replaceAll("[^ -~]|[\"\\\\]", " "));
        }

        private synchronized String drained() {
            long missing = ACKED.stream().filter(key -> !seen.contains(key)).count();
            long rolledBack = ROLLED_BACK.stream().filter(seen::contains).count();
            return String.format("{\"missing\":%d,\"disordered\":%d,\"rolledBack\":%d,\"twice\":%d}", missing, disordered,
                rolledBack, twice.size());
        }
    }

    private static Role role(String name, boolean sends) {
        Role role = new Role(sends);
        ROLES.put(name, role);
        return role;
    }

    private static <C extends ClientConfig> C named(C client, String name, String[] arguments) {
        client.setInstanceName(name);
        client.setNamesrvAddr(arguments[0]);
        if (arguments.length > 2) {
            client.setPollNameServerInterval(Integer.parseInt(arguments[2]));
        }
        return client;
    }

    /** The only constructor with a hook that 4.9.8 has, too. */
    private static DefaultMQPushConsumer pushing(String group) {
        return new DefaultMQPushConsumer(group, Keys.hook(), new AllocateMessageQueueAveragely());
    }

    private interface Attempt {
        SendResult send(String key) throws Exception;
    }

    private static <P extends DefaultMQProducer> P sending(P producer) {
        Integer timeout = Integer.getInteger("sendTimeoutMs");
        if (timeout != null) {
            producer.setSendMsgTimeout(timeout);
        }
        return producer;
    }

    private static void produce(String name, String[] arguments, boolean retries) throws Exception {
        DefaultMQProducer producer = sending(named(new DefaultMQProducer(arguments[1] + "Producer", Keys.hook()), name, arguments));
        if (!retries) {
            producer.setRetryTimesWhenSendFailed(0);
        }
        producer.start();
        keepSending(name, key -> true, key -> producer.send(new Message(arguments[1], "Tag", key, new byte[100])));
    }

    /** Sends one after the other; those with keys that `counts` accepts must be read once they are acknowledged. */
    private static void keepSending(String name, Predicate<String> counts, Attempt attempt) {
        Role role = role(name, true);
        Thread thread = new Thread(() -> {
            while (!ending) {
                String key = Integer.toString(NUMBERS.getAndIncrement());
                try {
                    SendResult result = attempt.send(key);
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        if (counts.test(key)) {
                            ACKED.add(key);
                        }
                        role.event();
                    } else {
                        role.failed(result.getSendStatus().toString());
                    }
                } catch (Exception error) {
                    role.failed(error.toString());
                }
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(INTERVAL_MS));
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** What becomes of a transaction its number says, also to a broker that asks. */
    private static LocalTransactionState stateOf(String key) {
        return Integer.parseInt(key) % ROLLED_BACK_EACH == 0
            ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
    }

    private static void transact(String[] arguments) throws Exception {
        TransactionMQProducer producer =
            sending(named(new TransactionMQProducer(arguments[1] + "Transactions", Keys.hook()), "transactions", arguments));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return stateOf(message.getKeys());
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return stateOf(message.getKeys());
            }
        });
        producer.start();
        Predicate<String> commits = key -> stateOf(key) == LocalTransactionState.COMMIT_MESSAGE;
        keepSending("transactions", commits, key -> {
            if (!commits.test(key)) {
                ROLLED_BACK.add(key);
            }
            return producer.sendMessageInTransaction(new Message(arguments[1], OF_TRANSACTION, key, new byte[100]), null);
        });
    }

    private static void consume(String[] arguments) throws Exception {
        Role pushed = role("push", false);
        Patience.started(() -> {
            DefaultMQPushConsumer push = named(pushing(arguments[1] + "Push"), "push", arguments);
            push.subscribe(arguments[1], "*");
            push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(pushed::take);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return push;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        Role ordered = role("orderly", false);
        Patience.started(() -> {
            DefaultMQPushConsumer orderly = named(pushing(arguments[1] + "Orderly"), "orderly", arguments);
            orderly.subscribe(arguments[1], "*");
            orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(ordered::take);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            return orderly;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        Role pulled = role("pull", false);
        DefaultLitePullConsumer pull = Patience.started(() -> {
            DefaultLitePullConsumer made = named(new DefaultLitePullConsumer(arguments[1] + "Pull", Keys.hook()), "pull", arguments);
            made.subscribe(arguments[1], "*");
            return made;
        }, DefaultLitePullConsumer::start, DefaultLitePullConsumer::shutdown);
        Thread thread = new Thread(() -> {
            while (true) {
                pull.poll(100).forEach(pulled::take);
            }
        }, "pull");
        thread.setDaemon(true);
        thread.start();
    }

    /** Waits until everybody has had an event at `moment` or later. */
    private static void await(long moment) throws InterruptedException {
        long until = System.currentTimeMillis() + WAIT_MS;
        while (!ROLES.values().stream().allMatch(role -> role.wentOn(moment)) && System.currentTimeMillis() < until) {
            Thread.sleep(10);
        }
    }

    private static String told(boolean drained) {
        return ROLES.entrySet().stream().filter(each -> !drained || !each.getValue().sends)
            .map(each -> String.format("\"%s\":%s", each.getKey(), drained ? each.getValue().drained() : each.getValue().json()))
            .collect(Collectors.joining(",", "{", "}"));
    }

    private static String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "mark":
                marked = System.currentTimeMillis();
                ROLES.values().forEach(role -> role.mark(marked));
                return "{}";
            case "watch":
                await(marked + Long.parseLong(words[1]));
                return told(false);
            case "report":
                return told(false);
            case "drained":
                ending = true;
                Thread.sleep(500); // the last answers
                long until = System.currentTimeMillis() + WAIT_MS;
                while (told(true).matches(".*\"missing\":[1-9].*") && System.currentTimeMillis() < until) {
                    Thread.sleep(50);
                }
                return told(true);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        consume(arguments);
        produce("retries", arguments, true);
        produce("once", arguments, false);
        transact(arguments);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = perform(line.split(" "));
            } catch (Exception error) {
                answer = String.format("{\"error\":\"%s\"}", error.toString().replaceAll("[^ -~]|[\"\\\\]", " "));
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
