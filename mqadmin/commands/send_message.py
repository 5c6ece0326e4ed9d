"""sendMessage: sends one message, to see that a topic takes it."""

from __future__ import annotations

import random

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, UsageWanted, admin_command, number, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqclient.errors import ClientError
from mqclient.producer import Producer, SendResult
from mqclient.routetable import RouteTable

GROUP = "TOOLS_PRODUCER"
COLUMNS = "{:<32}  {:<4}  {:<20}    {}\n"
HEADING = COLUMNS.format("#Broker Name", "#QID", "#Send Result", "#MsgId")


def format_result(result: SendResult) -> str:
    """A line under HEADING."""
    return COLUMNS.format(
        result.queue.broker_name, result.queue.queue_id, result.status.name, result.message_ids[0]
    )


@admin_command(
    "sendMessage",
    "Send a message.",
    Argument("t", "topic", "Topic name", required=True),
    Argument("p", "body", "UTF-8 string format of the message body", required=True),
    Argument("k", "key", "Message keys"),
    Argument("c", "tags", "Message tags"),
    Argument("b", "broker", "Send message to target broker"),
    Argument("i", "qid", "Send message to target queue"),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    body: str,
    key: str | None,
    tags: str | None,
    broker: str | None,
    qid: str | None,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    queue_id = None if qid is None else number("-i", qid, 0)
    if queue_id is not None and not broker:
        raise UsageWanted("-i names a queue of one broker set: give its name with -b")

    async def calls(client: AdminClient, report: Report) -> None:
        routes = RouteTable(namesrv, client.remoting, client.clock)
        producer = Producer(
            GROUP, routes=routes, client=client.remoting, clock=client.clock, random=random.Random()
        )
        try:
            result = await producer.send(
                topic, body.encode(), keys=key or "", tags=tags or "", broker_name=broker, queue_id=queue_id
            )
        except (ClientError, ValueError) as error:
            raise AdminError(str(error)) from error
        finally:
            await routes.close()
        report.text(HEADING + format_result(result))
        report.put(
            broker_name=result.queue.broker_name,
            queue_id=result.queue.queue_id,
            queue_offset=result.queue_offset,
            status=result.status.name,
            msg_id=result.message_ids[0],
            offset_msg_id=result.offset_message_id,
        )
        if not result.acknowledged:
            raise AdminError(f"the message is stored, but not safe: {result.status.name}")

    run(calls)
