import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * The public Java producer: sends a message each 5 ms, never retries one, and asks for routes each second. Prints the moment of
 * every acknowledgement, in ms, one a line. Arguments: NAMESRV TOPIC. Ends with its standard output's reader.
 */
public final class Outage {
    private static final int POLL_MS = 1000;
    private static final int INTERVAL_MS = 5;
    private static final int TIMEOUT_MS = 500;

    private Outage() { }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("OutageProducer");
        producer.setNamesrvAddr(arguments[0]);
        producer.setPollNameServerInterval(POLL_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        while (!System.out.checkError()) {
            try {
                boolean acked = producer.send(new Message(arguments[1], new byte[100])).getSendStatus() == SendStatus.SEND_OK;
                if (acked) {
                    System.out.println(System.currentTimeMillis());
                }
            } catch (Exception refused) {
                // no acknowledgement: that is what is measured
            }
            Thread.sleep(INTERVAL_MS);
        }
        System.exit(0);
    }
}
