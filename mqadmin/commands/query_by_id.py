"""queryMsgById: the messages with a producer's or a broker's ids, separated by commas: shown, sent once more, or given to
one consumer."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.calls.sending import as_json, must_be_safe, producer
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, required_namesrv, run
from mqadmin.givemessage import Found, give
from mqadmin.report import Report
from mqadmin.showmessage import BODY_FORMAT_HELP, check_format, show_message
from mqclient.message import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_TYPE,
    OutgoingMessage,
    StoredMessage,
)
from mqclient.producer import SendResult

COUNT_MAX = 32
RESEND_GROUP = "ReSendMsgById"
COMPRESSION = SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_TYPE
NO_UNIT = "-u changes nothing: clients here belong to no unit"


def format_sent(result: SendResult) -> str:
    """The line of a message that was sent once more, as upstream's object writes itself."""
    queue = result.queue
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.message_ids[0]}, "
        f"offsetMsgId={result.offset_message_id}, messageQueue=MessageQueue [topic={queue.topic}, "
        f"brokerName={queue.broker_name}, queueId={queue.queue_id}], queueOffset={result.queue_offset}, "
        "recallHandle=null]\n"
    )


@admin_command(
    "queryMsgById",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "cluster", "Cluster name"),
    Argument("d", "clientId", "The consumer's client id"),
    Argument("f", "bodyFormat", BODY_FORMAT_HELP),
    Argument("g", "consumerGroup", "consumer group name"),
    Argument("s", "sendMessage", "resend message"),
    Argument("u", "unitName", "unit name"),
)
def command(
    namesrvaddr: str | None,
    msgid: str,
    topic: str,
    cluster: str | None,
    clientid: str | None,
    bodyformat: str | None,
    consumergroup: str | None,
    sendmessage: str | None,
    unitname: str | None,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    check_format("-f", bodyformat)
    ids = [part.strip() for part in msgid.split(",") if part.strip()]
    if not ids:
        raise UsageWanted("-i: no id is given")
    resend = boolean("-s", sendmessage)
    if bool(clientid) != bool(consumergroup):
        raise UsageWanted("-g and -d go together: they name the one consumer that is given the message")
    if clientid and resend:
        raise UsageWanted("-s sends to everybody, -g and -d give to one consumer: choose one")

    async def calls(client: AdminClient, report: Report) -> None:
        if unitname:
            report.note(NO_UNIT)
        for text in ids:
            found = await _by_offset_id(client, namesrv, topic, cluster, text)
            if found is None:
                found = await _by_unique_key(client, namesrv, topic, cluster, text)
            if clientid and consumergroup:
                await give(client, report, found, consumergroup, clientid)
            elif resend:
                await _send_again(client, report, namesrv, found[1])
            else:
                await show_message(client, report, namesrv, found[1], bodyformat)

    run(calls)


async def _send_again(client: AdminClient, report: Report, namesrv: str, message: StoredMessage) -> None:
    """One more message with the same body, properties and id; the first one stays."""
    report.text(f"prepare resend msg. originalMsgId={message.message_id or messages.offset_id(message)}\n")
    again = OutgoingMessage(
        message.body, message.properties, message.flag, sys_flag=message.sys_flag & COMPRESSION
    )
    async with producer(client, namesrv, RESEND_GROUP) as sender:
        result = await sender.send_message(message.topic, again)
    report.text(format_sent(result))
    report.add("sent", as_json(result))
    must_be_safe(result)


async def _by_offset_id(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> Found | None:
    """The message at the byte that an offset id names, from whoever is master now: all logs of a set are one."""
    offset = messages.offset_in(text)
    if offset is None:
        return None
    for holder in await topics.holders(client, namesrv, topic, cluster):
        message = await messages.at_offset(client, holder.address, offset, topic)
        if message is not None and messages.offset_id(message) == text.upper() and message.topic == topic:
            return holder, message
    return None


async def _by_unique_key(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> Found:
    found: list[Found] = []
    for holder in await topics.holders(client, namesrv, topic, cluster):
        by_key = await messages.by_key(client, holder.address, topic, text, count_max=COUNT_MAX, unique=True)
        found += [(holder, message) for message in by_key]
    if not found:
        raise messages.no_message(f"with id {text} of topic {topic}")
    return min(found, key=lambda row: row[1].store_timestamp_ms)
