"""The state that a connected consumer reports in GET_CONSUMER_RUNNING_INFO (307), in upstream's layout, and its problems."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from mqadmin.report import java_text
from remoting.bodies.queues import ConsumerQueues, MessageQueue, ProcessQueueInfo

CONSUME_TYPE, CONSUME_ORDERLY, STARTED = (
    "PROP_CONSUME_TYPE", "PROP_CONSUMEORDERLY", "PROP_CONSUMER_START_TIMESTAMP",
)  # fmt: skip
SETTLED_MS = 120_000
"""A consumer that started more recently may not have sent its subscription to all brokers yet."""
BLOCKED_MS = 60_000


def format_info(info: ConsumerQueues, zone: tzinfo | None = None) -> str:
    """Everything that one client reports, block by block."""
    return "".join(
        [
            "#Consumer Properties#\n",
            *(f"{key:<40}: {value}\n" for key, value in info.properties.items()),
            "\n\n#Consumer Subscription#\n",
            *(
                f"{number:03} Topic: {data.topic:<40} ClassFilter: {java_text(data.class_filter_mode):<8} "
                f"SubExpression: {data.sub_string}\n"
                for number, data in enumerate(info.subscription_set, 1)
            ),
            "\n\n#Consumer Offset#\n",
            _columns(64, "#Topic", "#Broker Name", "#QID", "#Consumer Offset"),
            *(
                _columns(32, queue.topic, queue.broker_name, queue.queue_id, row.commit_offset)
                for queue, row in _sorted(info)
            ),
            "\n\n#Consumer MQ Detail#\n",
            _columns(64, "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
            *(
                f"{queue.topic:<64}  {queue.broker_name:<32}  {queue.queue_id:<4}  {_state(row, zone)}\n"
                for queue, row in _sorted(info)
            ),
            "\n\n#Consumer Pop Detail#\n",
            _columns(32, "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
            "\n\n#Consumer RT&TPS#\n",
            f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} {'#ConsumeOK TPS':>14} "
            f"{'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}\n",
            *(
                f"{topic:<32}  {row.pull_rt:14.2f} {row.pull_tps:14.2f} {row.consume_rt:14.2f} "
                f"{row.consume_ok_tps:14.2f} {row.consume_failed_tps:18.2f} {row.consume_failed_msgs:25}\n"
                for topic, row in sorted(info.status_table.items())
            ),
            *_own_words(info),
        ]
    )


def _own_words(info: ConsumerQueues) -> list[str]:
    parts: list[str] = []
    if info.user_consumer_info is not None:
        parts.append("\n\n#User Consume Info#\n")
        parts += [f"{key:<40}: {value}\n" for key, value in sorted(info.user_consumer_info.items())]
    if info.jstack is not None:
        parts += ["\n\n#Consumer jstack#\n", info.jstack]
    return parts


def _columns(topic_width: int, topic: str, broker: str, queue: object, last: object) -> str:
    return f"{topic:<{topic_width}}  {broker:<32}  {queue!s:<4}  {last!s:<20}\n"


def _sorted(info: ConsumerQueues) -> list[tuple[MessageQueue, ProcessQueueInfo]]:
    return sorted(info.mq_table.items(), key=lambda row: (row[0].topic, row[0].broker_name, row[0].queue_id))


def _state(row: ProcessQueueInfo, zone: tzinfo | None) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={row.commit_offset}, cachedMsgMinOffset={row.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={row.cached_msg_max_offset}, cachedMsgCount={row.cached_msg_count}, "
        f"cachedMsgSizeInMiB={row.cached_msg_size_in_mi_b}, transactionMsgMinOffset={row.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={row.transaction_msg_max_offset}, transactionMsgCount={row.transaction_msg_count}, "
        f"locked={java_text(row.locked)}, tryUnlockTimes={row.try_unlock_times}, "
        f"lastLockTimestamp={_moment(row.last_lock_timestamp, zone)}, droped={java_text(row.droped)}, "
        f"lastPullTimestamp={_moment(row.last_pull_timestamp, zone)}, "
        f"lastConsumeTimestamp={_moment(row.last_consume_timestamp, zone)}]"
    )


def _moment(epoch_ms: int, zone: tzinfo | None) -> str:
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC).astimezone(zone)
    return f"{moment:%Y%m%d%H%M%S}{epoch_ms % 1000:03}"


def same_subscription(infos: dict[str, ConsumerQueues], now_ms: int) -> bool:
    """Whether all consumers of a group have the same subscription. Pull consumers, and consumers that have just started, are
    not compared."""
    first = next(iter(infos.values()))
    started_ms = int(first.properties.get(STARTED) or 0)
    if first.properties.get(CONSUME_TYPE) != "CONSUME_PASSIVELY" or now_ms - started_ms <= SETTLED_MS:
        return True
    wanted = [
        sorted((data.topic, data.sub_string, data.expression_type) for data in info.subscription_set)
        for info in infos.values()
    ]
    return all(each == wanted[0] for each in wanted)


def troubles(client_id: str, info: ConsumerQueues, now_ms: int) -> list[str]:
    """A line for each queue that a push consumer cannot lock, or in which it makes no progress."""
    if info.properties.get(CONSUME_TYPE) != "CONSUME_PASSIVELY":
        return []
    orderly = info.properties.get(CONSUME_ORDERLY) == "true"
    found: list[str] = []
    for queue, row in _sorted(info):
        where = f"{client_id} MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        if orderly and not row.locked:
            found.append(f"{where} can't lock for a while, {now_ms - row.last_lock_timestamp}ms")
        elif orderly and row.droped and row.try_unlock_times > 0:
            found.append(f"{where} unlock {row.try_unlock_times} times, still failed")
        elif not orderly and row.cached_msg_count > 0 and now_ms - row.last_consume_timestamp > BLOCKED_MS:
            found.append(
                f"{where} can't consume for a while, maybe blocked, {now_ms - row.last_consume_timestamp}ms"
            )
    return found
