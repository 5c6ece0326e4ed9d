"""consumeMessage: reads messages of a topic, of one queue or of a span of time, and leaves no trace of it."""

from __future__ import annotations

from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, UsageWanted, admin_command, number, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.times import read_time
from mqclient.consumer import PullConsumer
from mqclient.route import MessageQueue
from remoting.codes import RequestCode
from remoting.errors import HeaderError
from remoting.headers.offsets import OffsetResponseHeader, SearchOffsetHeader

COUNT_MAX = 128
TIME_HELP = "timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"


class Span(NamedTuple):
    """What is wanted of each queue: from an offset on, or from one moment to another, in ms, both included. None bounds
    nothing."""

    first: int | None
    begin_ms: int | None
    end_ms: int | None


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
        now_ms = client.clock.now_ms()
        span = Span(
            first,
            None if begintimestamp is None else read_time("-s", begintimestamp, now_ms),
            None if endtimestamp is None else read_time("-e", endtimestamp, now_ms),
        )
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
                bounds = await _bounds(client, holders[queue.broker_name], consumer, queue, span)
                left -= await _show(report, consumer, queue, bounds, left)
                if not left:
                    break

    run(calls)


async def _bounds(
    client: AdminClient, broker: str, consumer: PullConsumer, queue: MessageQueue, span: Span
) -> tuple[int, int]:
    """The offsets where the span begins and ends in a queue of `broker`."""
    start, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
    if span.begin_ms is not None:
        start = max(start, await _offset_at(client, broker, queue, span.begin_ms))
    if span.end_ms is not None:
        end = min(end, await _offset_at(client, broker, queue, span.end_ms + 1))
    return (start if span.first is None else span.first), end


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
        body = messages.plain_body(message).decode(errors="replace")
        report.text(messages.format_line(queue.broker_name, message, body))
        report.add("messages", messages.as_json(message))
        shown += 1
    if not cut:
        report.text(format_end(queue, end))
    return shown


async def _offset_at(client: AdminClient, broker: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """The first message of a queue stored at or after a moment (29)."""
    header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, "LOWER")
    reply = await client.ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    try:
        return OffsetResponseHeader.from_ext(reply.ext).offset
    except HeaderError as error:
        raise AdminError(f"{broker} answered without an offset: {error}") from error
