import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * Consumers by name, each a client of its own, and what each has consumed: {"keys", "tags", "tries"}, the keys of the
 * messages it consumed in the order of their arrival, how many of each tag, and how often it was given each message.
 *
 * <pre>
 * consume NAME TOPIC GROUP MODEL EXPRESSION FAILS MAX
 *                        starts a push consumer that fails each message FAILS times; the broker gives it up after MAX retries;
 *                        EXPRESSION is of tags, or SQL92 behind "sql:"
 * assign NAME TOPIC GROUP
 *                        starts a push consumer whose queues the broker assigns
 * order NAME TOPIC GROUP FAILS
 *                        starts a push consumer that takes each queue in order, and each message only at the FAILS + 1st time
 * ordered TOPIC COUNT    waits until its consumers in order have taken COUNT messages; {"offsets": of each queue, in the order in
 *                        which they were taken, "overlaps": how often two messages of a queue were with listeners at once}
 * assigned NAME COUNT    waits until it has COUNT queues of its topic; {"queues"}
 * exists TOPIC           waits until clients are told where the topic is; {"exists"}
 * seen NAME COUNT        waits until it has consumed COUNT messages; what it consumed
 * close NAME             ends it, which stores its offsets; what it consumed
 * litepull TOPIC GROUP COUNT
 *                        polls until it has COUNT messages, commits and ends; what it consumed
 * </pre>
 */
final class Consumers {
    private static final long WAIT_S = 300;
    private static final int POLL_MS = 500;
    private static final String SQL = "sql:";

    private final String namesrv;
    private final DefaultMQProducer producer;
    private final Map<String, Consumer> consumers = new HashMap<>();
    private final Map<String, Order> orders = new HashMap<>();

    /** The producer is asked for routes only. */
    Consumers(String namesrv, DefaultMQProducer producer) {
        this.namesrv = namesrv;
        this.producer = producer;
    }

    /** What one consumer has done. */
    private static final class Consumed {
        private final Queue<String> keys = new ConcurrentLinkedQueue<>();
        private final Queue<String> tags = new ConcurrentLinkedQueue<>();
        private final Map<String, Integer> tries = new ConcurrentHashMap<>();

        private void tried(MessageExt message) {
            tries.merge(message.getKeys(), 1, Integer::sum);
        }

        private void done(MessageExt message) {
            tags.add(message.getTags());
            keys.add(message.getKeys());
        }

        private String json() {
            Map<String, Long> byTag =
                tags.stream().collect(Collectors.groupingBy(tag -> tag, TreeMap::new, Collectors.counting()));
            return String.format("{\"keys\":[%s],\"tags\":%s,\"tries\":%s}",
                String.join(",", keys), object(byTag), object(new TreeMap<>(tries)));
        }

        private static String object(Map<String, ?> values) {
            return values.entrySet().stream().map(each -> "\"" + each.getKey() + "\":" + each.getValue())
                .collect(Collectors.joining(",", "{", "}"));
        }
    }

    /** How the messages of one topic were taken, by all consumers in order together. */
    private static final class Order {
        private final Map<Integer, Queue<Long>> offsets = new ConcurrentHashMap<>();
        private final Map<Integer, AtomicInteger> busy = new ConcurrentHashMap<>();
        private final AtomicInteger overlaps = new AtomicInteger();

        private boolean take(MessageExt message, Consumed consumed, int fails) {
            AtomicInteger now = busy.computeIfAbsent(message.getQueueId(), id -> new AtomicInteger());
            if (now.incrementAndGet() > 1) {
                overlaps.incrementAndGet();
            }
            try {
                consumed.tried(message);
                Thread.sleep(1);
                if (consumed.tries.get(message.getKeys()) <= fails) {
                    return false;
                }
                consumed.done(message);
                offsets.computeIfAbsent(message.getQueueId(), id -> new ConcurrentLinkedQueue<>())
                    .add(message.getQueueOffset());
                return true;
            } catch (InterruptedException ended) {
                return false;
            } finally {
                now.decrementAndGet();
            }
        }

        private long taken() {
            return offsets.values().stream().mapToLong(each -> each.stream().distinct().count()).sum();
        }

        private String json() {
            String queues = offsets.entrySet().stream().map(each -> "\"" + each.getKey() + "\":" + each.getValue())
                .collect(Collectors.joining(",", "{", "}"));
            return String.format("{\"offsets\":%s,\"overlaps\":%d}", queues, overlaps.get());
        }
    }

    private static void await(BooleanSupplier met) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!met.getAsBoolean() && System.nanoTime() < until) {
            Thread.sleep(10);
        }
    }

    private final class Consumer {
        private final String topic;
        private final Consumed consumed = new Consumed();
        private final DefaultMQPushConsumer client;

        private Consumer(String name, String topic, String group, Listening listening) throws Exception {
            this.topic = topic;
            client = Patience.started(() -> {
                DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, Keys.hook());
                made.setInstanceName(name);
                made.setNamesrvAddr(namesrv);
                made.setPollNameServerInterval(POLL_MS);
                made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                made.setAwaitTerminationMillisWhenShutdown(TimeUnit.SECONDS.toMillis(WAIT_S));
                listening.of(made, topic, consumed);
                return made;
            }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        }

        private long queues() {
            return client.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic)).count();
        }
    }

    /** What a consumer subscribes to, and how it takes that. */
    private interface Listening {
        void of(DefaultMQPushConsumer client, String topic, Consumed consumed) throws Exception;
    }

    private static Listening inOrder(Order order, int fails) {
        return (client, topic, consumed) -> {
            client.subscribe(topic, "*");
            client.setSuspendCurrentQueueTimeMillis(10);
            client.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    if (!order.take(message, consumed, fails)) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        };
    }

    private static Listening asTheyCome(String model, String expression, int fails, int max) {
        return (client, topic, consumed) -> {
            client.setMessageModel(MessageModel.valueOf(model));
            client.setMaxReconsumeTimes(max);
            client.subscribe(topic, expression.startsWith(SQL)
                ? MessageSelector.bySql(expression.substring(SQL.length())) : MessageSelector.byTag(expression));
            client.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    consumed.tried(message);
                    if (message.getReconsumeTimes() < fails) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    consumed.done(message);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        };
    }

    private static Listening assigned() {
        return (client, topic, consumed) -> {
            client.setClientRebalance(false);
            asTheyCome("CLUSTERING", "*", 0, 16).of(client, topic, consumed);
        };
    }

    private boolean hasRoute(String topic) {
        try {
            return !producer.fetchPublishMessageQueues(topic).isEmpty();
        } catch (MQClientException notYet) {
            return false;
        }
    }

    private String litePull(String topic, String group, int count) throws Exception {
        DefaultLitePullConsumer client = Patience.started(() -> {
            DefaultLitePullConsumer made = new DefaultLitePullConsumer(group, Keys.hook());
            made.setNamesrvAddr(namesrv);
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            made.setAutoCommit(false);
            made.subscribe(topic, "*");
            return made;
        }, DefaultLitePullConsumer::start, DefaultLitePullConsumer::shutdown);
        Consumed consumed = new Consumed();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (consumed.keys.size() < count && System.nanoTime() < until) {
            for (MessageExt message : client.poll(100)) {
                consumed.tried(message);
                consumed.done(message);
            }
        }
        client.commitSync();
        client.shutdown();
        return consumed.json();
    }

    String perform(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "consume":
                Listening listening = asTheyCome(words[4], words[5], Integer.parseInt(words[6]), Integer.parseInt(words[7]));
                consumers.put(name, new Consumer(name, words[2], words[3], listening));
                return "{}";
            case "assign":
                consumers.put(name, new Consumer(name, words[2], words[3], assigned()));
                return "{}";
            case "order":
                Order begun = orders.computeIfAbsent(words[2], topic -> new Order());
                consumers.put(name, new Consumer(name, words[2], words[3], inOrder(begun, Integer.parseInt(words[4]))));
                return "{}";
            case "ordered":
                Order order = orders.get(name);
                await(() -> order.taken() >= Integer.parseInt(words[2]));
                return order.json();
            case "assigned":
                Consumer asked = consumers.get(name);
                await(() -> asked.queues() == Integer.parseInt(words[2]));
                return String.format("{\"queues\":%d}", asked.queues());
            case "exists":
                await(() -> hasRoute(name));
                return String.format("{\"exists\":%b}", hasRoute(name));
            case "seen":
                Consumed seen = consumers.get(name).consumed;
                await(() -> seen.keys.size() >= Integer.parseInt(words[2]));
                return seen.json();
            case "close":
                Consumer closed = consumers.remove(name);
                closed.client.shutdown();
                return closed.consumed.json();
            default:
                return litePull(words[1], words[2], Integer.parseInt(words[3]));
        }
    }
}
