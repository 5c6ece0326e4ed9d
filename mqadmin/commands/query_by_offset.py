"""queryMsgByOffset: the message at a place of a queue."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, admin_command, number, required_namesrv, run
from mqadmin.report import Report
from mqadmin.showmessage import BODY_FORMAT_HELP, check_format, show_message
from mqclient.route import MessageQueue


@admin_command(
    "queryMsgByOffset",
    Argument("b", "brokerName", "Broker Name", required=True),
    Argument("f", "bodyFormat", BODY_FORMAT_HELP),
    Argument("i", "queueId", "Queue Id", required=True),
    Argument("o", "offset", "Queue Offset", required=True),
    Argument("t", "topic", "topic name", required=True),
)
def command(
    namesrvaddr: str | None, brokername: str, bodyformat: str | None, queueid: str, offset: str, topic: str
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    check_format("-f", bodyformat)
    queue = MessageQueue(topic, brokername, number("-i", queueid, 0))
    wanted = number("-o", offset, 0, most=I64_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, brokername)
        async with messages.puller(client, namesrv) as consumer:
            result = await consumer.pull(queue, wanted, max_messages=1)
        found = [message for message in result.messages if message.queue_offset == wanted]
        if not found:
            raise messages.no_message(
                f"at offset {wanted} of {queue}, which holds [{result.min_offset}, {result.max_offset}),"
            )
        await show_message(client, report, namesrv, found[0], bodyformat)

    run(calls)
