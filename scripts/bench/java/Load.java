import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The public Java client under load, told by lines on stdin what to do; every line is answered with one line of JSON:
 * messages acknowledged or read, refused or failed, seconds, and of sends the p50 and p99 of their answers in ms. One JVM for all
 * clusters, so that the client is warm whoever serves it; nothing is sent twice or compressed.
 *
 * <pre>
 * async NAMESRV TOPIC SECONDS SIZE IN_FLIGHT     single messages, so many without an answer at once
 * sync NAMESRV TOPIC SECONDS SIZE THREADS BATCH  each thread waits for each answer; batches where BATCH is not 1
 * deals NAMESRV TOPIC SECONDS SIZE THREADS       messages in transactions, each committed at once; each thread waits for each
 * pull NAMESRV TOPIC SECONDS                     32 at a time, a thread a queue, from begin to end and again
 * push NAMESRV TOPIC SECONDS                     a new group from the first message on; seconds from the first to the last
 * order NAMESRV TOPIC SECONDS                    the same in order, each queue locked
 * leave NAMESRV                                  ends its producers, if there are any
 * </pre>
 */
public final class Load {
    private static final int PULL_MAX = 32;
    private static final int TIMEOUT_MS = 30_000;
    private static final int PAUSE_MS = 2;
    private static final double NS = 1e9;
    private static final String DEALS = "deals of ";

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final AtomicReference<String> lastRefusal = new AtomicReference<>("");
    private int consumers;

    private Load() { }

    /** Times of answers of one thread, in microseconds. */
    private static final class Times {
        private int[] us = new int[1 << 16];
        private int count;

        synchronized void add(long ns) {
            if (count == us.length) {
                us = Arrays.copyOf(us, 2 * count);
            }
            us[count++] = (int) Math.min(ns / 1000, Integer.MAX_VALUE);
        }
    }

    /** Signs with the credentials that the file of -Drocketmq.client.keyFile has now; null, without it, for nothing. */
    private static RPCHook hook() {
        return System.getProperty("rocketmq.client.keyFile") == null ? null : new AclClientRPCHook(new SessionCredentials());
    }

    private DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = producers.get(namesrv);
        return producer != null ? producer : started(namesrv, namesrv, new DefaultMQProducer("BenchProducer", hook()));
    }

    private TransactionMQProducer dealer(String namesrv) throws Exception {
        DefaultMQProducer producer = producers.get(DEALS + namesrv);
        if (producer == null) {
            TransactionMQProducer dealer = new TransactionMQProducer("BenchDealer", hook());
            dealer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            producer = started(DEALS + namesrv, namesrv, dealer);
        }
        return (TransactionMQProducer) producer;
    }

    private <P extends DefaultMQProducer> P started(String name, String namesrv, P producer) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        producers.put(name, producer);
        return producer;
    }

    private void note(SendResult result, LongAdder ok, LongAdder refused, int messages) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            ok.add(messages);
        } else {
            refuse(refused, result.getSendStatus().toString());
        }
    }

    private void refuse(LongAdder refused, String why) {
        refused.increment();
        lastRefusal.set(why.replaceAll("[^A-Za-z0-9_ .:,-]", " "));
    }

    private static byte[] body(int size) {
        byte[] body = new byte[size];
        Random random = new Random(1);
        for (int k = 0; k < size; k++) {
            body[k] = (byte) ('a' + random.nextInt(26));
        }
        return body;
    }

    private String async(String namesrv, String topic, double seconds, int size, int inFlight) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        byte[] body = body(size);
        LongAdder ok = new LongAdder();
        LongAdder refused = new LongAdder();
        Times times = new Times();
        Semaphore room = new Semaphore(inFlight);
        long began = System.nanoTime();
        while (System.nanoTime() - began < seconds * NS) {
            room.acquire();
            long asked = System.nanoTime();
            try {
                producer.send(new Message(topic, body), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        times.add(System.nanoTime() - asked);
                        note(result, ok, refused, 1);
                        room.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        refuse(refused, error.toString());
                        room.release();
                    }
                });
            } catch (Exception error) {
                refuse(refused, error.toString());
                room.release();
                Thread.sleep(PAUSE_MS);
            }
        }
        room.acquire(inFlight);
        return said(ok, refused, System.nanoTime() - began, List.of(times));
    }

    private String sync(String namesrv, String topic, double seconds, int size, int threads, int batch) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        byte[] body = body(size);
        LongAdder ok = new LongAdder();
        LongAdder refused = new LongAdder();
        List<Times> all = new ArrayList<>();
        long began = System.nanoTime();
        each(threads, number -> {
            Times times = new Times();
            synchronized (all) {
                all.add(times);
            }
            while (System.nanoTime() - began < seconds * NS) {
                try {
                    if (batch == 1) {
                        Message message = new Message(topic, body);
                        long asked = System.nanoTime();
                        SendResult result = producer.send(message);
                        times.add(System.nanoTime() - asked);
                        note(result, ok, refused, 1);
                    } else {
                        List<Message> messages = new ArrayList<>(batch);
                        for (int k = 0; k < batch; k++) {
                            messages.add(new Message(topic, body));
                        }
                        long asked = System.nanoTime();
                        SendResult result = producer.send(messages);
                        times.add(System.nanoTime() - asked);
                        note(result, ok, refused, batch);
                    }
                } catch (Exception error) {
                    refuse(refused, error.toString());
                    Thread.sleep(PAUSE_MS);
                }
            }
        });
        return said(ok, refused, System.nanoTime() - began, all);
    }

    private String deals(String namesrv, String topic, double seconds, int size, int threads) throws Exception {
        TransactionMQProducer producer = dealer(namesrv);
        byte[] body = body(size);
        LongAdder ok = new LongAdder();
        LongAdder refused = new LongAdder();
        List<Times> all = new ArrayList<>();
        long began = System.nanoTime();
        each(threads, number -> {
            Times times = new Times();
            synchronized (all) {
                all.add(times);
            }
            while (System.nanoTime() - began < seconds * NS) {
                try {
                    Message message = new Message(topic, body);
                    long asked = System.nanoTime();
                    SendResult result = producer.sendMessageInTransaction(message, null);
                    times.add(System.nanoTime() - asked);
                    note(result, ok, refused, 1);
                } catch (Exception error) {
                    refuse(refused, error.toString());
                    Thread.sleep(PAUSE_MS);
                }
            }
        });
        return said(ok, refused, System.nanoTime() - began, all);
    }

    private String pull(String namesrv, String topic, double seconds) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("BenchPull" + consumers++, hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(namesrv + consumers);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        LongAdder read = new LongAdder();
        LongAdder refused = new LongAdder();
        long began = System.nanoTime();
        each(queues.size(), number -> {
            long offset = 0;
            while (System.nanoTime() - began < seconds * NS) {
                try {
                    PullResult result = consumer.pull(queues.get(number), "*", offset, PULL_MAX);
                    boolean found = result.getPullStatus() == PullStatus.FOUND;
                    read.add(found ? result.getMsgFoundList().size() : 0);
                    offset = found ? result.getNextBeginOffset() : 0;
                } catch (Exception error) {
                    refuse(refused, error.toString());
                    Thread.sleep(PAUSE_MS);
                }
            }
        });
        long took = System.nanoTime() - began;
        consumer.shutdown();
        return said(read, refused, took, List.of());
    }

    private String push(String namesrv, String topic, double seconds, boolean inOrder) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("BenchPush" + System.nanoTime(), hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(namesrv + consumers++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        LongAdder read = new LongAdder();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        Consumer<List<MessageExt>> noted = messages -> {
            long now = System.nanoTime();
            first.compareAndSet(0, now);
            if (now - first.get() < seconds * NS) {
                last.accumulateAndGet(now, Math::max);
                read.add(messages.size());
            }
        };
        if (inOrder) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                noted.accept(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                noted.accept(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long began = System.nanoTime();
        while (System.nanoTime() - began < TIMEOUT_MS * 1_000_000L + seconds * NS) {
            Thread.sleep(20);
            long since = first.get() == 0 ? 0 : System.nanoTime() - first.get();
            if (since > seconds * NS || since > 0 && System.nanoTime() - last.get() > 2 * NS) {
                break; // over, or all is read
            }
        }
        consumer.shutdown();
        return said(read, new LongAdder(), Math.max(1, last.get() - first.get()), List.of());
    }

    private interface Work {
        void run(int number) throws Exception;
    }

    private static void each(int threads, Work work) throws Exception {
        List<Thread> running = new ArrayList<>();
        AtomicReference<Exception> failure = new AtomicReference<>();
        for (int k = 0; k < threads; k++) {
            int number = k;
            Thread thread = new Thread(() -> {
                try {
                    work.run(number);
                } catch (Exception error) {
                    failure.set(error);
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private String said(LongAdder ok, LongAdder refused, long ns, List<Times> all) {
        int[] us = all.stream().flatMapToInt(times -> Arrays.stream(times.us, 0, times.count)).sorted().toArray();
        double middle = us.length == 0 ? 0 : us[us.length / 2] / 1e3;
        double high = us.length == 0 ? 0 : us[(int) (us.length * 0.99)] / 1e3;
        String form = "{\"messages\":%d,\"refused\":%d,\"seconds\":%.4f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"last_refusal\":\"%s\"}";
        return String.format(Locale.ROOT, form, ok.sum(), refused.sum(), ns / NS, middle, high, lastRefusal.getAndSet(""));
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "async":
                return async(words[1], words[2], Double.parseDouble(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "sync":
                return sync(words[1], words[2], Double.parseDouble(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]),
                    Integer.parseInt(words[6]));
            case "deals":
                return deals(words[1], words[2], Double.parseDouble(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "pull":
                return pull(words[1], words[2], Double.parseDouble(words[3]));
            case "push":
                return push(words[1], words[2], Double.parseDouble(words[3]), false);
            case "order":
                return push(words[1], words[2], Double.parseDouble(words[3]), true);
            case "leave":
                for (String name : List.of(words[1], DEALS + words[1])) {
                    DefaultMQProducer left = producers.remove(name);
                    if (left != null) {
                        left.shutdown();
                    }
                }
                return "{}";
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load();
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
