import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Clients that trace.
 *
 * <pre>
 * traced TOPIC GROUP COUNT [TRACES]   sends and consumes messages, and says what became of them in the topic TRACES, the
 *                                     system's if it is left out; {"ids"} of the messages
 * untraced GROUP                      ends these clients: what a listener did last is told behind its return
 * </pre>
 */
final class Traces {
    private static final long WAIT_S = 300;

    private final String namesrv;
    private final Map<String, Runnable> ends = new HashMap<>();

    Traces(String namesrv) {
        this.namesrv = namesrv;
    }

    String perform(String[] words) throws Exception {
        if (words[0].equals("untraced")) {
            ends.remove(words[1]).run();
            return "{}";
        }
        String topic = words[1];
        String group = words[2];
        int count = Integer.parseInt(words[3]);
        String traces = words.length > 4 ? words[4] : null;
        CountDownLatch consumed = new CountDownLatch(count);
        DefaultMQProducer producer = new DefaultMQProducer(group + "Producer", Keys.hook(), true, traces);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(group);
        producer.setSendMsgTimeout((int) TimeUnit.SECONDS.toMillis(WAIT_S));
        producer.start();
        Patience.route(producer, topic);
        Stream.Builder<String> ids = Stream.builder();
        for (int k = 0; k < count; k++) {
            ids.add("\"" + producer.send(new Message(topic, "Tag", "key" + k, ("traced " + k).getBytes())).getMsgId() + "\"");
        }
        DefaultMQPushConsumer consumer = Patience.started(() -> {
            DefaultMQPushConsumer made = new DefaultMQPushConsumer(
                group, Keys.hook(), new AllocateMessageQueueAveragely(), true, traces);
            made.setNamesrvAddr(namesrv);
            made.setInstanceName(group);
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            made.subscribe(topic, "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> consumed.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown);
        consumed.await(WAIT_S, TimeUnit.SECONDS);
        ends.put(group, () -> {
            consumer.shutdown();
            producer.shutdown();
        });
        return String.format("{\"ids\":[%s]}", ids.build().collect(Collectors.joining(",")));
    }
}
