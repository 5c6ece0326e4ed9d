"""sendMessage: sends one message, to see that a topic takes it."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.calls.sending import as_json, must_be_safe, producer
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, number, required_namesrv, run
from mqadmin.report import Report
from mqclient.producer import SendResult

GROUP = "TOOLS_PRODUCER"
NO_TRACE = "-m true changes nothing: this tool sends no trace messages"
COLUMNS = "{:<32}  {:<4}  {:<20}    {}\n"
HEADING = COLUMNS.format("#Broker Name", "#QID", "#Send Result", "#MsgId")


def format_result(result: SendResult) -> str:
    """A line under HEADING."""
    return COLUMNS.format(
        result.queue.broker_name, result.queue.queue_id, result.status.name, result.message_ids[0]
    )


@admin_command(
    "sendMessage",
    Argument("t", "topic", "Topic name", required=True),
    Argument("p", "body", "UTF-8 string format of the message body", required=True, may_be_empty=True),
    Argument("k", "key", "Message keys"),
    Argument("c", "tags", "Message tags"),
    Argument("b", "broker", "Send message to target broker"),
    Argument("i", "qid", "Send message to target queue"),
    Argument("m", "msgTraceEnable", "Message Trace Enable, Default: false"),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    body: str,
    key: str | None,
    tags: str | None,
    broker: str | None,
    qid: str | None,
    msgtraceenable: str | None,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    traced = boolean("-m", msgtraceenable)
    queue_id = None if qid is None else number("-i", qid, 0)
    if queue_id is not None and not broker:
        raise UsageWanted("-i names a queue of one broker set: give its name with -b")

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, broker)
        async with producer(client, namesrv, GROUP) as sender:
            result = await sender.send(
                topic, body.encode(), keys=key or "", tags=tags or "", broker_name=broker, queue_id=queue_id
            )
        if traced:
            report.note(NO_TRACE)
        report.text(HEADING + format_result(result))
        report.put(**as_json(result))
        must_be_safe(result)

    run(calls)
