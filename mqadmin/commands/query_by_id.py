"""queryMsgById: the messages with a producer's or a broker's ids, separated by commas."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import Argument, UsageWanted, admin_command, required_namesrv, run
from mqadmin.report import Report
from mqadmin.showmessage import BODY_FORMAT_HELP, check_format, show_message
from mqclient.message import StoredMessage

COUNT_MAX = 32


@admin_command(
    "queryMsgById",
    "Query Message by Id.",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "cluster", "Cluster name"),
    Argument("f", "bodyFormat", BODY_FORMAT_HELP),
)
def command(
    namesrvaddr: str | None, msgid: str, topic: str, cluster: str | None, bodyformat: str | None
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    check_format(bodyformat)
    ids = [part.strip() for part in msgid.split(",") if part.strip()]
    if not ids:
        raise UsageWanted("-i: no id is given")

    async def calls(client: AdminClient, report: Report) -> None:
        for text in ids:
            found = await _by_offset_id(client, namesrv, topic, cluster, text)
            if found is None:
                found = await _by_unique_key(client, namesrv, topic, cluster, text)
            await show_message(client, report, namesrv, found, bodyformat)

    run(calls)


async def _by_offset_id(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> StoredMessage | None:
    """The message at the byte that an offset id names, from whoever is master now: all logs of a set are one."""
    offset = messages.offset_in(text)
    if offset is None:
        return None
    for holder in await topics.holders(client, namesrv, topic, cluster):
        message = await messages.at_offset(client, holder.address, offset, topic)
        if message is not None and messages.offset_id(message) == text.upper() and message.topic == topic:
            return message
    return None


async def _by_unique_key(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> StoredMessage:
    found: list[StoredMessage] = []
    for holder in await topics.holders(client, namesrv, topic, cluster):
        found += await messages.by_key(client, holder.address, topic, text, count_max=COUNT_MAX, unique=True)
    if not found:
        raise messages.no_message(f"with id {text} of topic {topic}")
    return min(found, key=lambda message: message.store_timestamp_ms)
