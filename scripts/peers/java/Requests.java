import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Requests and replies, with default settings of the clients: routes are asked for each 30 s.
 *
 * <pre>
 * answer TOPIC GROUP       starts a push consumer that answers each request with "re: " and what it said
 * askings TOPIC COUNT      makes requests, all at once; {"answered"} rightly
 * forsaken TOPIC           answers who has gone; {"code"}
 * silent                   ends both sides; {"refused"}: how many replies were refused
 * </pre>
 */
final class Requests {
    private static final int TIMEOUT_MS = 300_000;

    private final String namesrv;
    private final DefaultMQProducer replier;
    private final DefaultMQProducer asker;
    private final AtomicInteger numbers = new AtomicInteger();
    private final Queue<Integer> refused = new ConcurrentLinkedQueue<>();
    private DefaultMQPushConsumer consumer;

    Requests(String namesrv) {
        this.namesrv = namesrv;
        replier = producer("InteropRepliers", "replier");
        asker = producer("InteropAskers", "asker");
    }

    private DefaultMQProducer producer(String group, String instance) {
        DefaultMQProducer made = new DefaultMQProducer(group, Keys.hook());
        made.setNamesrvAddr(namesrv);
        made.setInstanceName(instance);
        made.setRetryTimesWhenSendFailed(0);
        return made;
    }

    private void reply(MessageExt request) throws Exception {
        Message answer = MessageUtil.createReplyMessage(request, ("re: " + new String(request.getBody())).getBytes());
        Patience.route(replier, answer.getTopic());
        try {
            replier.send(answer, TIMEOUT_MS);
        } catch (MQClientException error) {
            refused.add(((MQBrokerException) error.getCause()).getResponseCode());
        }
    }

    private String answer(String topic, String group) throws Exception {
        replier.start();
        asker.start();
        consumer = Patience.started(() -> {
            DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, Keys.hook());
            made.setNamesrvAddr(namesrv);
            made.setInstanceName("answering");
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            made.subscribe(topic, "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    try {
                        reply(message);
                    } catch (Exception error) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        return "{}";
    }

    /**
     * The callback form: 5.3.3's synchronous one ends as soon as its send is acknowledged, and this one is called then for the
     * first time, without a message.
     */
    private String ask(String topic, int count) throws Exception {
        AtomicInteger answered = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(count);
        Patience.route(asker, topic);
        for (int k = 0; k < count; k++) {
            String question = "question " + numbers.getAndIncrement();
            asker.request(new Message(topic, question.getBytes()), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null) {
                        answered.addAndGet(new String(reply.getBody()).equals("re: " + question) ? 1 : 0);
                        done.countDown();
                    }
                }

                @Override
                public void onException(Throwable error) {
                    done.countDown();
                }
            }, TIMEOUT_MS);
        }
        done.await(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return String.format("{\"answered\":%d}", answered.get());
    }

    /** A reply to who has gone, as a consumer of its request would send it. */
    private String forsaken(String topic) throws Exception {
        MessageExt received = new MessageExt();
        received.setTopic(topic);
        received.setBody("anybody?".getBytes());
        Map.of("CLUSTER", "DefaultCluster", "REPLY_TO_CLIENT", "10.0.0.9@gone", "CORRELATION_ID", "none", "TTL", "3000")
            .forEach((name, value) -> MessageAccessor.putProperty(received, name, value));
        reply(received);
        return String.format("{\"code\":%d}", refused.isEmpty() ? 0 : refused.poll());
    }

    String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "answer":
                return answer(words[1], words[2]);
            case "askings":
                return ask(words[1], Integer.parseInt(words[2]));
            case "forsaken":
                return forsaken(words[1]);
            default:
                consumer.shutdown();
                replier.shutdown();
                asker.shutdown();
                return String.format("{\"refused\":%d}", refused.size());
        }
    }
}
