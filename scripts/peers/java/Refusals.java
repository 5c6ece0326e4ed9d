import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What a broker may not support, tried as applications try it; every answer is {"code"}, the broker's, 0 where it went well.
 *
 * <pre>
 * sql92 TOPIC EXPRESSION   starts a push consumer with an SQL92 expression
 * request CODE ADDR        sends a request without content
 * </pre>
 */
final class Refusals {
    private static final int TIMEOUT_MS = 300_000;

    private final String namesrv;
    private final MQClientAPIImpl api;

    Refusals(String namesrv, MQClientAPIImpl api) {
        this.namesrv = namesrv;
        this.api = api;
    }

    private int sql92(String topic, String expression) throws Exception {
        Patience.started(() -> {
            DefaultMQPushConsumer made = new DefaultMQPushConsumer("InteropSql92", Keys.hook());
            made.setNamesrvAddr(namesrv);
            made.subscribe(topic, MessageSelector.bySql(expression));
            made.registerMessageListener(
                (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
            return made;
        }, DefaultMQPushConsumer::start, DefaultMQPushConsumer::shutdown).shutdown();
        return 0;
    }

    private int codeOf(String[] words) throws Exception {
        switch (words[0]) {
            case "sql92":
                return sql92(words[1], words[2]);
            default:
                RemotingCommand request = RemotingCommand.createRequestCommand(Integer.parseInt(words[1]), null);
                return api.getRemotingClient().invokeSync(words[2], request, TIMEOUT_MS).getCode();
        }
    }

    /** The broker's code is in the exception or in one of its causes. */
    String perform(String[] words) throws Exception {
        int code;
        try {
            code = codeOf(words);
        } catch (MQClientException | MQBrokerException error) {
            Throwable cause = error;
            while (cause != null && !(cause instanceof MQBrokerException)) {
                cause = cause.getCause();
            }
            if (cause != null) {
                code = ((MQBrokerException) cause).getResponseCode();
            } else {
                code = ((MQClientException) error).getResponseCode();
            }
        }
        return String.format("{\"code\":%d}", code);
    }
}
