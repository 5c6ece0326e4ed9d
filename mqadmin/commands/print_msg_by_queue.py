"""printMsgByQueue: the messages of one queue, of a span of time and of some tags, or how many have which tag."""

from __future__ import annotations

from collections import Counter

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import Argument, admin_command, boolean, number, required_namesrv, run
from mqadmin.commands.print_msg import HIDDEN, TIME_HELP
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.showmessage import check_format
from mqadmin.spans import bounds_of, span_of
from mqclient.route import MessageQueue


def format_tags(counts: Counter[str]) -> str:
    """A line per tag, the most frequent first."""
    return "".join(f"Tag: {tag:<30} Count: {count}\n" for tag, count in counts.most_common())


@admin_command(
    "printMsgByQueue",
    Argument("t", "topic", "topic name", required=True),
    Argument("a", "brokerName", "broker name", required=True),
    Argument("i", "queueId", "queue id", required=True),
    Argument("c", "charsetName", "CharsetName(eg: UTF-8,GBK)"),
    Argument("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)"),
    Argument("b", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("p", "printMsg", "print msg. eg: true | false(default)"),
    Argument("d", "printBody", "print body. eg: true | false(default)"),
    Argument("f", "calculate", "calculate by tag. eg: true | false(default)"),
)
def command(namesrvaddr: str | None, topic: str, brokername: str, queueid: str, **given: str | None) -> None:
    namesrv, charset = required_namesrv(namesrvaddr), given["charsetname"]
    check_format("-c", charset)
    queue = MessageQueue(topic.strip(), brokername.strip(), number("-i", queueid, 0))
    shows, shows_body = boolean("-p", given["printmsg"]), boolean("-d", given["printbody"])
    counts_tags = boolean("-f", given["calculate"])
    tags = (given["subexpression"] or "*").strip()

    async def calls(client: AdminClient, report: Report) -> None:
        span = span_of(client, ("-b", given["begintimestamp"]), ("-e", given["endtimestamp"]))
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, queue.topic)}
        if queue.broker_name not in holders:
            raise AdminError(
                f"broker set {queue.broker_name} has no topic {queue.topic}; topicRoute shows where it is"
            )
        counts: Counter[str] = Counter()
        async with messages.puller(client, namesrv) as consumer:
            if queue not in await consumer.queues(queue.topic):
                raise AdminError(
                    f"topic {queue.topic} has no queue {queue.queue_id} on {queue.broker_name}; topicStatus shows which it has"
                )
            offset, end = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
            while offset < end:
                result = await consumer.pull(queue, offset, tags=tags)
                for message in result.messages:
                    if message.queue_offset >= end:
                        continue
                    counts.update(filter(None, [message.properties.get("TAGS")]))
                    if shows:
                        text = HIDDEN
                        if shows_body:
                            text = messages.shown_body(report, message).decode(
                                charset or "UTF-8", errors="replace"
                            )
                        report.text(messages.format_line(queue.broker_name, message, text))
                        report.add("messages", messages.as_json(message))
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
        if counts_tags:
            report.text(format_tags(counts))
            report.put(tags=dict(counts.most_common()))

    run(calls)
