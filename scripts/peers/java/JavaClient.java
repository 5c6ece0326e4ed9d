import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The public Java client and the real mqadmin, told by lines on stdin what to do; every line is answered with one line of
 * JSON. Each message carries its number as key and a body that follows from the number, so a reader knows lost, repeated,
 * moved and changed messages.
 *
 * <pre>
 * sync|async|batch TOPIC COUNT SIZE [TAG]   sends; {"acked", "failed"}
 * oneway TOPIC COUNT SIZE [TAG]       sends and counts them as acknowledged, which without a failure they are; as above
 * acked TOPIC                         what was acknowledged; {"keys"}
 * lookup TOPIC                        sends a message and finds it again; {"offset id", "unique id", "key"}
 * stream TOPIC                        sends one after the other until "finish"; {"acked"} as soon as one is acknowledged
 * await COUNT                         waits until COUNT more of the stream are acknowledged; {"acked"}
 * finish                              ends the stream; {"acked", "failed", "given up"}: codes with which no client tries again
 * pull TOPIC                          reads everything and compares; {"read", "compressed", "missing", "repeated", "moved", "changed"}
 * subscribe TOPIC GROUP               starts a push consumer; {}
 * reading                             waits until it has read something: a master that goes before it has shared out its
 *                                     queues costs it 20 s, its own period; {"read"}
 * drained                             ends it when it has read what is acknowledged, or after 300 s; as pull
 * admin ARGUMENT...                   runs an mqadmin command; {"out", "err"}
 * </pre>
 *
 * {@link Consumers}, {@link Transactions}, {@link Requests}, {@link Traces} and {@link Refusals} understand more.
 */
public final class JavaClient {
    private static final int BATCH = 32;
    private static final int POLL_MS = 500;
    private static final long WAIT_S = 300;
    private static final int NUDGE_MS = 50;
    private static final int SEND_MS = 30_000;
    private static final String TAG = "Tag";
    private static final String PROPERTY = "number";

    /** Queue and offset of an acknowledged message. */
    private record Place(int queue, long offset) { }

    /** Where a one-way message is, nobody tells. */
    private static final Place SOMEWHERE = new Place(-1, -1);

    private final String namesrv;
    private final DefaultMQProducer producer;
    private final Map<String, Map<Integer, Place>> acked = new ConcurrentHashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();
    private final Consumers consumers;
    private final Refusals refusals;
    private final Transactions transactions;
    private final Requests requests;
    private final Traces traces;
    private Stream stream;
    private DefaultMQPushConsumer consumer;
    private Reading consumed;

    private JavaClient(String namesrv) throws Exception {
        this.namesrv = namesrv;
        producer = new DefaultMQProducer("InteropProducer", Keys.hook());
        producer.setNamesrvAddr(namesrv);
        producer.setPollNameServerInterval(POLL_MS);
        producer.setSendMsgTimeout(SEND_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        consumers = new Consumers(namesrv, producer);
        requests = new Requests(namesrv);
        traces = new Traces(namesrv);
        refusals = new Refusals(namesrv, producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl());
        transactions = new Transactions(namesrv);
    }

    private static byte[] body(int number, int size) {
        byte[] body = new byte[size];
        for (int k = 0; k < size; k++) {
            body[k] = (byte) ('a' + (number * 31L + k / 7) % 26);
        }
        return body;
    }

    private Message message(String topic, int number, int size, String tag) {
        Message message = new Message(topic, tag, Integer.toString(number), body(number, size));
        message.putUserProperty(PROPERTY, Integer.toString(number));
        return message;
    }

    private Map<Integer, Place> ackedOf(String topic) {
        return acked.computeIfAbsent(topic, name -> new ConcurrentHashMap<>());
    }

    /** Notes an acknowledgement of messages with consecutive numbers; whether it is one. */
    private boolean note(String topic, int first, int count, SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            return false;
        }
        for (int k = 0; k < count; k++) {
            ackedOf(topic).put(first + k, new Place(result.getMessageQueue().getQueueId(), result.getQueueOffset() + k));
        }
        return true;
    }

    private String send(String how, String topic, int count, int size, String tag) throws Exception {
        AtomicInteger good = new AtomicInteger();
        Patience.route(producer, topic);
        if (how.equals("async")) {
            CountDownLatch answered = new CountDownLatch(count);
            for (int k = 0; k < count; k++) {
                int number = numbers.getAndIncrement();
                producer.send(message(topic, number, size, tag), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        good.addAndGet(note(topic, number, 1, result) ? 1 : 0);
                        answered.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        answered.countDown();
                    }
                });
            }
            answered.await(WAIT_S, TimeUnit.SECONDS);
        } else if (how.equals("oneway")) {
            for (int k = 0; k < count; k++) {
                int number = numbers.getAndIncrement();
                producer.sendOneway(message(topic, number, size, tag));
                ackedOf(topic).put(number, SOMEWHERE);
            }
            good.set(count);
        } else {
            int step = how.equals("batch") ? BATCH : 1;
            for (int done = 0; done < count; done += step) {
                int many = Math.min(step, count - done);
                int first = numbers.getAndAdd(many);
                List<Message> messages = new ArrayList<>();
                for (int k = 0; k < many; k++) {
                    messages.add(message(topic, first + k, size, tag));
                }
                SendResult result = step == 1 ? producer.send(messages.get(0)) : producer.send(messages);
                good.addAndGet(note(topic, first, many, result) ? many : 0);
            }
        }
        return String.format("{\"acked\":%d,\"failed\":%d}", good.get(), count - good.get());
    }

    /** Sends in its own thread, each message once; a failed one is not sent again. */
    private final class Stream extends Thread {
        private final String topic;
        private volatile boolean ending;
        private int good;
        private int bad;
        private final Set<Integer> givenUp = ConcurrentHashMap.newKeySet();

        private Stream(String topic) {
            this.topic = topic;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (!ending) {
                int number = numbers.getAndIncrement();
                boolean ok;
                try {
                    ok = note(topic, number, 1, producer.send(message(topic, number, 256, TAG), 1000));
                } catch (MQBrokerException error) {
                    givenUp.add(error.getResponseCode());
                    ok = false;
                } catch (Exception error) {
                    ok = false;
                }
                synchronized (this) {
                    good += ok ? 1 : 0;
                    bad += ok ? 0 : 1;
                    notifyAll();
                }
                try {
                    Thread.sleep(ok ? 2 : 20);
                } catch (InterruptedException error) {
                    return;
                }
            }
        }

        private synchronized String await(int more) throws InterruptedException {
            int target = good + more;
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (good < target && System.nanoTime() < until) {
                wait(50);
            }
            return String.format("{\"acked\":%d,\"failed\":%d}", good, bad);
        }

        private String finish() throws InterruptedException {
            ending = true;
            join();
            return String.format("{\"acked\":%d,\"failed\":%d,\"given up\":%s}", good, bad, givenUp);
        }
    }

    /** What a reader saw of a topic, against what was acknowledged. */
    private final class Reading {
        private final Map<Integer, Place> expected;
        private final Map<Integer, Boolean> seen = new ConcurrentHashMap<>();
        private final AtomicInteger read = new AtomicInteger();
        private final AtomicInteger compressed = new AtomicInteger();
        private final AtomicInteger repeated = new AtomicInteger();
        private final AtomicInteger moved = new AtomicInteger();
        private final AtomicInteger changed = new AtomicInteger();

        private Reading(String topic) {
            expected = ackedOf(topic);
        }

        private void take(MessageExt message) {
            int number = Integer.parseInt(message.getKeys());
            Place place = expected.get(number);
            read.incrementAndGet();
            compressed.addAndGet(message.getStoreSize() < message.getBody().length ? 1 : 0);
            if (seen.put(number, true) != null) {
                repeated.incrementAndGet();
            }
            if (place != null && place != SOMEWHERE && (place.queue() != message.getQueueId() || place.offset() != message.getQueueOffset())) {
                moved.incrementAndGet();
            }
            if (!TAG.equals(message.getTags()) || !message.getKeys().equals(message.getUserProperty(PROPERTY))
                || !Arrays.equals(message.getBody(), body(number, message.getBody().length))) {
                changed.incrementAndGet();
            }
        }

        private long missing() {
            return expected.keySet().stream().filter(number -> !seen.containsKey(number)).count();
        }

        private String json() {
            return String.format(
                "{\"read\":%d,\"compressed\":%d,\"missing\":%d,\"repeated\":%d,\"moved\":%d,\"changed\":%d}",
                read.get(), compressed.get(), missing(), repeated.get(), moved.get(), changed.get());
        }
    }

    /** Whether a message that was just stored is found; a key is found as soon as its message is dispatched. */
    private String lookup(String topic) throws Exception {
        int number = numbers.getAndIncrement();
        SendResult result = producer.send(message(topic, number, 100, TAG));
        note(topic, number, 1, result);
        byte[] body = body(number, 100);
        String offsetId = result.getOffsetMsgId();
        boolean byOffset = Arrays.equals(body, Patience.answered(() -> producer.viewMessage(topic, offsetId)).getBody());
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        boolean byKey = false;
        boolean byUniqueId = false;
        while (!(byKey && byUniqueId) && System.nanoTime() < until) {
            try {
                List<MessageExt> found = Patience.answered(() ->
                    producer.queryMessage(topic, Integer.toString(number), BATCH, 0, Long.MAX_VALUE)).getMessageList();
                byKey = found.size() == 1 && Arrays.equals(body, found.get(0).getBody());
                MessageExt viewed = Patience.answered(() -> producer.viewMessage(topic, result.getMsgId()));
                byUniqueId = Arrays.equals(body, viewed.getBody());
            } catch (MQClientException notYet) {
                Thread.sleep(10);
            }
        }
        return String.format("{\"offset id\":%b,\"unique id\":%b,\"key\":%b}", byOffset, byUniqueId, byKey);
    }

    private String pull(String topic) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("InteropPull", Keys.hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
        Reading reading = new Reading(topic);
        try {
            for (MessageQueue queue : Patience.answered(() -> consumer.fetchSubscribeMessageQueues(topic))) {
                long offset = Patience.answered(() -> consumer.minOffset(queue));
                long end = Patience.answered(() -> consumer.maxOffset(queue));
                while (offset < end) {
                    long from = offset;
                    PullResult result = Patience.answered(() -> consumer.pull(queue, "*", from, BATCH));
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        result.getMsgFoundList().forEach(reading::take);
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
        return reading.json();
    }

    private String subscribe(String topic, String group) throws Exception {
        Reading reading = new Reading(topic);
        consumed = reading;
        consumer = Patience.started(() -> {
            DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, Keys.hook());
            made.setNamesrvAddr(namesrv);
            made.setPollNameServerInterval(POLL_MS);
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            // else a shutdown stores the offset of before a message whose listener has returned a moment ago
            made.setAwaitTerminationMillisWhenShutdown(TimeUnit.SECONDS.toMillis(WAIT_S));
            made.subscribe(topic, "Tag");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(reading::take);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        return "{}";
    }

    private String reading() throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (consumed.read.get() == 0 && System.nanoTime() < until) {
            Thread.sleep(10);
        }
        return String.format("{\"read\":%d}", consumed.read.get());
    }

    private String drained() throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (consumed.missing() > 0 && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        consumer.shutdown();
        return consumed.json();
    }

    private static String admin(String[] arguments) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true));
        System.setErr(new PrintStream(complained, true));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return String.format("{\"out\":\"%s\",\"err\":\"%s\"}", escaped(said.toString()), escaped(complained.toString()));
    }

    private static String escaped(String text) {
        StringBuilder builder = new StringBuilder();
        for (char each : text.toCharArray()) {
            builder.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        }
        return builder.toString();
    }

    private static Set<Thread> eventThreads() {
        return Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("NettyEventExecutor")).collect(Collectors.toSet());
    }

    /** A client that shuts down waits up to 3 s for a thread of its own that polls; an interrupt ends the poll. */
    private static void nudgeShutdowns() {
        Set<Thread> ofProducer = eventThreads();
        Thread performer = Thread.currentThread();
        Thread nudger = new Thread(() -> {
            while (true) {
                if (Arrays.stream(performer.getStackTrace()).anyMatch(frame ->
                    frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"))) {
                    eventThreads().stream().filter(thread -> !ofProducer.contains(thread)).forEach(Thread::interrupt);
                }
                try {
                    Thread.sleep(NUDGE_MS);
                } catch (InterruptedException error) {
                    return;
                }
            }
        });
        nudger.setDaemon(true);
        nudger.start();
    }

    private String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "sync":
            case "async":
            case "batch":
            case "oneway":
                String tag = words.length > 4 ? words[4] : TAG;
                return send(words[0], words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), tag);
            case "acked":
                return String.format("{\"keys\":%s}", ackedOf(words[1]).keySet());
            case "lookup":
                return lookup(words[1]);
            case "stream":
                stream = new Stream(words[1]);
                return stream.await(1);
            case "await":
                return stream.await(Integer.parseInt(words[1]));
            case "finish":
                return stream.finish();
            case "pull":
                return pull(words[1]);
            case "subscribe":
                return subscribe(words[1], words[2]);
            case "reading":
                return reading();
            case "drained":
                return drained();
            case "admin":
                return admin(Arrays.copyOfRange(words, 1, words.length));
            case "consume":
            case "order":
            case "ordered":
            case "assign":
            case "assigned":
            case "exists":
            case "seen":
            case "close":
            case "litepull":
                return consumers.perform(words);
            case "tx":
            case "txlater":
            case "txchecked":
            case "txclose":
                return transactions.perform(words);
            case "answer":
            case "askings":
            case "forsaken":
            case "silent":
                return requests.perform(words);
            case "traced":
            case "untraced":
                return traces.perform(words);
            case "sql92":
            case "request":
                return refusals.perform(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[0]);
        nudgeShutdowns();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = client.perform(line.split(" "));
            } catch (Exception error) {
                answer = String.format("{\"error\":\"%s\"}", escaped(error + " because of " + error.getCause()));
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
