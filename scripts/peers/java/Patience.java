import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.exception.RemotingSendRequestException;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;

/**
 * What a person does where a client gives up: begins again. A client waits 3 s for a route when it starts and 6 s where it only
 * asks, for which a machine may let a process stand still. Nothing is repeated that may have stored something, and what a server
 * refuses is refused at once. It is compiled for 5.3.3 and for 4.9.8.
 */
final class Patience {
    private static final long WAIT_S = 300;
    private static final int AGAIN_MS = 50;
    private static final int SYSTEM_BUSY = 2;

    private Patience() { }

    /** What is done with a client. */
    interface Step<C> {
        void of(C client) throws Exception;
    }

    /** What {@code attempt}, which changes nothing, comes to once it is answered. */
    static <T> T answered(Callable<T> attempt) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (true) {
            try {
                return attempt.call();
            } catch (Exception error) {
                if (!isLate(error) || System.nanoTime() > until) {
                    throw error;
                }
            }
            Thread.sleep(AGAIN_MS);
        }
    }

    /** Does {@code attempt} again while the broker answers SYSTEM_BUSY, which says that nothing is stored: on a busy machine a
     * broker with access control may not have heard from its replicas for a moment. */
    static void whileBusy(Step<Void> attempt) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (true) {
            try {
                attempt.of(null);
                return;
            } catch (Exception error) {
                if (!isBusy(error) || System.nanoTime() > until) {
                    throw error;
                }
            }
            Thread.sleep(AGAIN_MS);
        }
    }

    private static boolean isBusy(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException && ((MQBrokerException) cause).getResponseCode() == SYSTEM_BUSY) {
                return true;
            }
        }
        return false;
    }

    /** A client that runs; one whose start failed is ended, and another one made. */
    static <C> C started(Callable<C> made, Step<C> start, Consumer<C> end) throws Exception {
        return answered(() -> {
            C client = made.call();
            try {
                start.of(client);
            } catch (Exception error) {
                end.accept(client);
                throw error;
            }
            return client;
        });
    }

    /** Lets a producer ask where {@code topic} is, or where it may be made, if it does not know: as its send would, once. An
     * update that finds what another thread has just found says false. */
    static void route(DefaultMQProducer producer, String topic) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        answered(() -> knows(producer, topic) || client.updateTopicRouteInfoFromNameServer(topic)
            || knows(producer, topic) || client.updateTopicRouteInfoFromNameServer(topic, true, producer));
    }

    private static boolean knows(DefaultMQProducer producer, String topic) {
        TopicPublishInfo known = producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().get(topic);
        return known != null && known.ok();
    }

    private static boolean isLate(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof RemotingTimeoutException || cause instanceof RemotingConnectException
                || cause instanceof RemotingSendRequestException) {
                return true;
            }
        }
        return false;
    }
}
