import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Clients of several users, driven by lines on stdin; every line is answered with one line of JSON. It is compiled for 5.3.3, 5.5.0
 * and 4.9.8. KEYS is the file with a user's credentials (Keys), or "-" for a client that does not sign. {"code", "remark"} are of
 * the broker's refusal, which ends a command; 0 and "" without one.
 *
 * <pre>
 * send KEYS TOPIC COUNT                     sends one message after the other; {"acked", "code", "remark"}
 * transact KEYS TOPIC COUNT                 sends messages in transactions. It commits each third message at once, rolls the
 *                                           next one back, and commits the one after that when the broker asks; as send
 * push|order|pull NAME KEYS TOPIC GROUP [FAILS]
 *                                           starts a consumer, which rejects each message FAILS times; {}
 * answers NAME KEYS TOPIC GROUP             starts a push consumer that replies to each message; {}
 * seen NAME COUNT                           waits until it has consumed COUNT different messages; {"count", "deliveries"}
 * count NAME                                the same, without waiting
 * close NAME                                ends a consumer; {}
 * ask KEYS TOPIC COUNT                      sends requests, all at once, and waits for the replies; {"answered"}
 * </pre>
 */
public final class Rights {
    private static final long WAIT_S = 300;
    private static final int WAIT_MS = 300_000;
    private static final int POLL_MS = 500;
    private static final int KINDS = 3;
    private static final String UNSIGNED = "-";

    private final String namesrv;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, TransactionMQProducer> transactors = new HashMap<>();
    private final Map<String, Consumer> consumers = new HashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();
    private int clients;

    private Rights(String namesrv) {
        this.namesrv = namesrv;
    }

    /** What a consumer has consumed. */
    private static final class Consumer {
        private final Set<String> keys = ConcurrentHashMap.newKeySet();
        private final AtomicInteger deliveries = new AtomicInteger();
        private final Map<String, Integer> tries = new ConcurrentHashMap<>();
        private final int fails;
        private Runnable end;

        private Consumer(int fails) {
            this.fails = fails;
        }

        private boolean take(MessageExt message) {
            deliveries.incrementAndGet();
            if (tries.merge(message.getKeys(), 1, Integer::sum) <= fails) {
                return false;
            }
            keys.add(message.getKeys());
            return true;
        }

        private String seen(int count) throws InterruptedException {
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (keys.size() < count && System.nanoTime() < until) {
                Thread.sleep(10);
            }
            return String.format("{\"count\":%d,\"deliveries\":%d}", keys.size(), deliveries.get());
        }
    }

    private static RPCHook hook(String keys) {
        return keys.equals(UNSIGNED) ? null : Keys.hook(keys);
    }

    /** A client of its own connections: those of one instance name share the hook of the first. */
    private <C extends ClientConfig> C alone(C client) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName("rights" + clients++);
        client.setPollNameServerInterval(POLL_MS);
        client.setHeartbeatBrokerInterval(POLL_MS);
        return client;
    }

    private <P extends DefaultMQProducer> P sending(P producer) {
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(WAIT_MS);
        return alone(producer);
    }

    private DefaultMQProducer producer(String keys) throws Exception {
        DefaultMQProducer known = producers.get(keys);
        if (known == null) {
            known = sending(new DefaultMQProducer("RightsProducers", hook(keys)));
            known.start();
            producers.put(keys, known);
        }
        return known;
    }

    /** What becomes of a transaction; without `asked`, at once. */
    private static LocalTransactionState stateOf(String key, boolean asked) {
        switch (Integer.parseInt(key) % KINDS) {
            case 0:
                return LocalTransactionState.COMMIT_MESSAGE;
            case 1:
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return asked ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private TransactionMQProducer transactor(String keys) throws Exception {
        TransactionMQProducer known = transactors.get(keys);
        if (known == null) {
            known = sending(new TransactionMQProducer("RightsTransactors" + transactors.size(), hook(keys)));
            known.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return stateOf(message.getKeys(), false);
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return stateOf(message.getKeys(), true);
                }
            });
            known.start();
            transactors.put(keys, known);
        }
        return known;
    }

    private interface Sending {
        void send(Message message) throws Exception;
    }

    private static String refusal(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                MQBrokerException refused = (MQBrokerException) cause;
                return String.format("\"code\":%d,\"remark\":\"%s\"", refused.getResponseCode(), plain(refused.getErrorMessage()));
            }
        }
        return String.format("\"code\":-1,\"remark\":\"%s\"", plain(error.toString()));
    }

    private static String plain(String text) {
        return text.replaceAll("[^ -~]|[\"\\\\]", " ");
    }

    private String send(DefaultMQProducer producer, String topic, int count, Sending sending) throws Exception {
        Patience.route(producer, topic);
        int first = numbers.getAndAdd(count);
        for (int k = 0; k < count; k++) {
            try {
                Message message = new Message(topic, "Tag", Integer.toString(first + k), ("body " + k).getBytes());
                Patience.whileBusy(none -> sending.send(message));
            } catch (Exception error) {
                return String.format("{\"acked\":%d,%s}", k, refusal(error));
            }
        }
        return String.format("{\"acked\":%d,\"code\":0,\"remark\":\"\"}", count);
    }

    private DefaultMQPushConsumer pushing(String keys, String topic, String group) throws Exception {
        DefaultMQPushConsumer made =
            alone(new DefaultMQPushConsumer(group, hook(keys), new AllocateMessageQueueAveragely()));
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setSuspendCurrentQueueTimeMillis(10);
        made.subscribe(topic, "*");
        return made;
    }

    private void push(String name, String keys, String topic, String group, int fails, boolean inOrder) throws Exception {
        Consumer consumer = new Consumer(fails);
        DefaultMQPushConsumer client = Patience.started(() -> {
            DefaultMQPushConsumer made = pushing(keys, topic, group);
            if (inOrder) {
                made.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    messages.stream().allMatch(consumer::take)
                        ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                made.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    messages.stream().allMatch(consumer::take)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
            }
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        consumer.end = client::shutdown;
        consumers.put(name, consumer);
    }

    private void pull(String name, String keys, String topic, String group) throws Exception {
        Consumer consumer = new Consumer(0);
        DefaultLitePullConsumer client = Patience.started(() -> {
            DefaultLitePullConsumer made = alone(new DefaultLitePullConsumer(group, hook(keys)));
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            made.setAutoCommit(false);
            made.subscribe(topic, "*");
            return made;
        }, DefaultLitePullConsumer::start, DefaultLitePullConsumer::shutdown);
        Thread polling = new Thread(() -> {
            while (!Thread.interrupted()) {
                client.poll(100).forEach(consumer::take);
                client.commitSync();
            }
        });
        polling.setDaemon(true);
        polling.start();
        consumer.end = () -> {
            polling.interrupt();
            client.shutdown();
        };
        consumers.put(name, consumer);
    }

    private void answers(String name, String keys, String topic, String group) throws Exception {
        Consumer consumer = new Consumer(0);
        DefaultMQProducer replier = producer(keys);
        DefaultMQPushConsumer client = Patience.started(() -> {
            DefaultMQPushConsumer made = pushing(keys, topic, group);
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                try {
                    for (MessageExt message : messages) {
                        replier.send(MessageUtil.createReplyMessage(message, message.getBody()), WAIT_MS);
                        consumer.take(message);
                    }
                } catch (Exception refused) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        consumer.end = client::shutdown;
        consumers.put(name, consumer);
    }

    /** The callback is called without a message when the request is acknowledged, and with the reply, by 4.9.8 perhaps twice. */
    private String ask(String keys, String topic, int count) throws Exception {
        DefaultMQProducer asker = producer(keys);
        Patience.route(asker, topic);
        Set<String> answered = ConcurrentHashMap.newKeySet();
        CountDownLatch done = new CountDownLatch(count);
        for (int k = 0; k < count; k++) {
            String key = Integer.toString(numbers.getAndIncrement());
            asker.request(new Message(topic, "Tag", key, key.getBytes()), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null && new String(reply.getBody()).equals(key) && answered.add(key)) {
                        done.countDown();
                    }
                }

                @Override
                public void onException(Throwable error) {
                    done.countDown();
                }
            }, WAIT_MS);
        }
        done.await(WAIT_S, TimeUnit.SECONDS);
        return String.format("{\"answered\":%d}", answered.size());
    }

    private String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "send":
                DefaultMQProducer producer = producer(words[1]);
                return send(producer, words[2], Integer.parseInt(words[3]), producer::send);
            case "transact":
                TransactionMQProducer transactor = transactor(words[1]);
                return send(transactor, words[2], Integer.parseInt(words[3]),
                    message -> transactor.sendMessageInTransaction(message, null));
            case "push":
            case "order":
                int fails = words.length > 5 ? Integer.parseInt(words[5]) : 0;
                push(words[1], words[2], words[3], words[4], fails, words[0].equals("order"));
                return "{}";
            case "pull":
                pull(words[1], words[2], words[3], words[4]);
                return "{}";
            case "answers":
                answers(words[1], words[2], words[3], words[4]);
                return "{}";
            case "seen":
                return consumers.get(words[1]).seen(Integer.parseInt(words[2]));
            case "count":
                return consumers.get(words[1]).seen(0);
            case "close":
                consumers.remove(words[1]).end.run();
                return "{}";
            case "ask":
                return ask(words[1], words[2], Integer.parseInt(words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Rights rights = new Rights(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = rights.perform(line.split(" "));
            } catch (Exception error) {
                answer = String.format("{\"error\":\"%s\"}", plain(error.toString()));
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
