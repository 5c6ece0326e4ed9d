"""printMsg: the messages of a topic, queue by queue, of a span of time and of some tags."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import Argument, admin_command, boolean, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.showmessage import check_format
from mqadmin.spans import bounds_of, span_of
from mqclient.consumer import PullConsumer, PullStatus
from mqclient.route import MessageQueue

TIME_HELP = "timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"
HIDDEN = "NOT PRINT BODY"
RULE = "-" * 56 + "\n"
STATUS = {PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MSG", PullStatus.NO_NEW_MESSAGE: "NO_NEW_MSG"}


def format_queue(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def format_nothing(queue: MessageQueue, status: PullStatus, offset: int) -> str:
    """The line of a pull that gave no message."""
    said = "no matched msg." if status is PullStatus.NO_MATCHED_MESSAGE else "print msg finished."
    return f"{format_queue(queue)} {said} status={STATUS.get(status, 'OFFSET_ILLEGAL')}, offset={offset}\n"


@admin_command(
    "printMsg",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "charsetName", "CharsetName(eg: UTF-8,GBK)"),
    Argument("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)"),
    Argument("b", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("d", "printBody", "print body"),
    Argument("l", "lmqParentTopic", "Lmq parent topic, lmq is used to find the route."),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    charsetname: str | None,
    subexpression: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    printbody: str | None,
    lmqparenttopic: str | None,
) -> None:
    namesrv, name = required_namesrv(namesrvaddr), topic.strip()
    check_format("-c", charsetname)
    shows_body = boolean("-d", printbody, True)
    tags = (subexpression or "*").strip()

    async def calls(client: AdminClient, report: Report) -> None:
        if lmqparenttopic:
            raise AdminError("-l: queues of light topics (LMQ) are not built; leave it out")
        span = span_of(client, ("-b", begintimestamp), ("-e", endtimestamp))
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, name)}
        report.put(messages=[])
        async with messages.puller(client, namesrv) as consumer:
            for queue in await consumer.queues(name):
                bounds = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
                report.text(f"minOffset={bounds[0]}, maxOffset={bounds[1]}, {format_queue(queue)}\n")
                await _show(report, consumer, queue, bounds, tags, charsetname if shows_body else "")
                report.text(RULE)

    run(calls)


async def _show(
    report: Report,
    consumer: PullConsumer,
    queue: MessageQueue,
    bounds: tuple[int, int],
    tags: str,
    charset: str | None,
) -> None:
    """The messages within `bounds`, and why no more came where none did; `charset` "" hides bodies."""
    offset, end = bounds
    while offset < end:
        result = await consumer.pull(queue, offset, tags=tags)
        for message in result.messages:
            if message.queue_offset < end:
                body = HIDDEN
                if charset != "":
                    body = messages.shown_body(report, message).decode(charset or "UTF-8", errors="replace")
                report.text(messages.format_line(queue.broker_name, message, body))
                report.add("messages", messages.as_json(message))
        if result.status is not PullStatus.FOUND:
            report.text(format_nothing(queue, result.status, result.next_offset))
            if result.status is not PullStatus.NO_MATCHED_MESSAGE:
                return
        if result.next_offset <= offset:
            raise AdminError(f"{format_queue(queue)}: nothing to read at {offset}")
        offset = result.next_offset
