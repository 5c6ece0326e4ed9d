"""queryMsgByKey: the messages that carry a key."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, UsageWanted, admin_command, number, required_namesrv, run
from mqadmin.report import Report
from mqclient.message import StoredMessage

HEADING = f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}\n"
COUNT_MAX = 64
KEYS, TAGS = "K", "T"


def format_row(message: StoredMessage) -> str:
    """A line under HEADING."""
    return (
        f"{message.message_id or messages.offset_id(message):<50} {message.queue_id:>4} "
        f"{message.queue_offset:>40}\n"
    )


@admin_command(
    "queryMsgByKey",
    Argument("t", "topic", "Topic name", required=True),
    Argument("k", "msgKey", "Message Key", required=True),
    Argument("b", "beginTimestamp", "Begin timestamp(ms). default:0, eg:1676730526212"),
    Argument("e", "endTimestamp", "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212"),
    Argument("m", "maxNum", "The maximum number of messages returned by the query, default:64"),
    Argument("c", "cluster", "Cluster name"),
    Argument(
        "p",
        "keyType",
        "K for words of the keys (the default), T for tags, which Java's brokers index from 5.4.0 on",
    ),
    Argument("l", "lastKey", "Where the last answer of a broker with its index in RocksDB ended"),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    msgkey: str,
    begintimestamp: str | None,
    endtimestamp: str | None,
    maxnum: str | None,
    cluster: str | None,
    keytype: str | None,
    lastkey: str | None,
) -> None:
    kind = (keytype or KEYS).strip()
    if kind not in (KEYS, TAGS):
        raise UsageWanted(f"-p {kind}: K for words of the keys, T for tags")
    begin_ms = number("-b", begintimestamp, 0, most=I64_MAX)
    end_ms = number("-e", endtimestamp, I64_MAX, most=I64_MAX)
    count_max = number("-m", maxnum, COUNT_MAX, least=1)

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[StoredMessage] = []
        for holder in await topics.holders(client, required_namesrv(namesrvaddr), topic, cluster):
            found += await messages.by_key(
                client,
                holder.address,
                topic,
                msgkey,
                count_max=count_max,
                begin_ms=begin_ms,
                end_ms=end_ms,
                by_tag=kind == TAGS,
                last_key=lastkey,
                note=report.note,
            )
        if not found:
            raise messages.no_message(f"with {'tag' if kind == TAGS else 'key'} {msgkey} of topic {topic}")
        report.text(HEADING + "".join(map(format_row, found[:count_max])))
        report.put(messages=[messages.as_json(message) for message in found[:count_max]])

    run(calls)
