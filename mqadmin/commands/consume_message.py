"""consumeMessage: reads messages of a topic, of one queue or of a span of time, and leaves no trace of it."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, UsageWanted, admin_command, number, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.spans import bounds_of, span_of
from mqclient.consumer import PullConsumer
from mqclient.route import MessageQueue

COUNT_MAX = 128
TIME_HELP = "timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"


def format_end(queue: MessageQueue, end: int) -> str:
    """The line after the last message of a queue."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}] "
        f"print msg finished. status=NO_NEW_MSG, offset={end}\n"
    )


@admin_command(
    "consumeMessage",
    Argument("t", "topic", "Topic name", required=True),
    Argument("b", "brokerName", "Broker name"),
    Argument("o", "offset", "Queue offset"),
    Argument("i", "queueId", "Queue Id"),
    Argument("g", "consumerGroup", "Consumer group name"),
    Argument("s", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("c", "MessageNumber", "Number of message to be consumed"),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    brokername: str | None,
    offset: str | None,
    queueid: str | None,
    consumergroup: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    messagenumber: str | None,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    queue_id = None if queueid is None else number("-i", queueid, 0)
    if queue_id is not None and not brokername:
        raise UsageWanted("-i names a queue of one broker set: give its name with -b")
    if offset is not None and queue_id is None:
        raise UsageWanted("-o is an offset of one queue: give it with -b and -i")
    count_max = number("-c", messagenumber, COUNT_MAX, least=1)
    first = None if offset is None else number("-o", offset, 0, most=I64_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        span = span_of(client, ("-s", begintimestamp), ("-e", endtimestamp), first)
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, topic)}
        report.put(messages=[])
        left = count_max
        async with messages.puller(client, namesrv, consumergroup or messages.TOOLS_GROUP) as consumer:
            queues = [
                queue
                for queue in await consumer.queues(topic)
                if brokername in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
            ]
            if not queues:
                raise AdminError(f"topic {topic} has no such queue; topicStatus shows which it has")
            for queue in queues:
                bounds = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
                left -= await _show(report, consumer, queue, bounds, left)
                if not left:
                    break

    run(calls)


async def _show(
    report: Report, consumer: PullConsumer, queue: MessageQueue, bounds: tuple[int, int], count_max: int
) -> int:
    """Tells of the messages within `bounds`, of the first `count_max`; how many it were."""
    start, end = bounds
    cut = end - start > count_max
    if cut:
        report.text(f"The older {count_max} message of the {queue.queue_id} queue will be provided\n")
    if end > start:
        report.text("Consume ok\n")
    shown = 0
    async for message in consumer.read(queue, start, min(end, start + count_max)):
        body = messages.shown_body(report, message).decode(errors="replace")
        report.text(messages.format_line(queue.broker_name, message, body))
        report.add("messages", messages.as_json(message))
        shown += 1
    if not cut:
        report.text(format_end(queue, end))
    return shown
