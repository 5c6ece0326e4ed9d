import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers of messages in transactions, one a group; a message is known by its body, which has no blanks.
 *
 * <pre>
 * tx GROUP TOPIC BODY FIRST LATER [KEY=VALUE...]  sends it; FIRST is the state that is told at once, LATER that of a check:
 *                                     commit, rollback or unknown; {"status"}
 * txlater GROUP BODY STATE            what a check is told from now on; {}
 * txchecked GROUP                     the bodies that were asked for, in order; {"bodies"}
 * txclose GROUP                       ends the producer; {}
 * </pre>
 */
final class Transactions {
    private static final int SEND_MS = 3_000;
    private static final int TRIES = 60;
    private static final int AGAIN_MS = 500;

    private static final class Producer implements TransactionListener {
        private final TransactionMQProducer producer;
        private final Map<String, LocalTransactionState> later = new ConcurrentHashMap<>();
        private final List<String> checked = new CopyOnWriteArrayList<>();

        Producer(String namesrv, String group) throws MQClientException {
            producer = new TransactionMQProducer(group, Keys.hook());
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName(group);
            producer.setSendMsgTimeout(SEND_MS);
            producer.setPollNameServerInterval(AGAIN_MS);
            producer.setHeartbeatBrokerInterval(AGAIN_MS);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setTransactionListener(this);
            producer.start();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody());
            checked.add(body);
            return later.getOrDefault(body, LocalTransactionState.UNKNOW);
        }

        /** Again while nobody takes it: a message that is refused or not answered is in no transaction of ours. */
        String send(String[] words) throws Exception {
            Message message = new Message(words[2], "TagA", words[3], words[3].getBytes());
            for (String pair : Arrays.asList(words).subList(6, words.length)) {
                message.putUserProperty(pair.split("=")[0], pair.split("=")[1]);
            }
            later.put(words[3], state(words[5]));
            Patience.route(producer, words[2]);
            for (int number = 0; ; number++) {
                try {
                    TransactionSendResult result = producer.sendMessageInTransaction(message, state(words[4]));
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        return String.format(
                                "{\"status\":\"%s\",\"tries\":%d}", result.getLocalTransactionState(), number + 1);
                    }
                } catch (MQClientException error) {
                    if (number == TRIES) {
                        throw error;
                    }
                }
                Thread.sleep(AGAIN_MS);
            }
        }
    }

    private final String namesrv;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();

    Transactions(String namesrv) {
        this.namesrv = namesrv;
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private Producer of(String group) throws MQClientException {
        Producer producer = producers.get(group);
        if (producer == null) {
            producer = new Producer(namesrv, group);
            producers.put(group, producer);
        }
        return producer;
    }

    String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "tx":
                return of(words[1]).send(words);
            case "txlater":
                of(words[1]).later.put(words[2], state(words[3]));
                return "{}";
            case "txchecked":
                List<String> quoted = new ArrayList<>();
                of(words[1]).checked.forEach(body -> quoted.add('"' + body + '"'));
                return String.format("{\"bodies\":%s}", quoted);
            default:
                producers.remove(words[1]).producer.shutdown();
                return "{}";
        }
    }
}
