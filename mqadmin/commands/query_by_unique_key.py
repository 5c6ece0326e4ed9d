"""queryMsgByUniqueKey: the messages with a producer's id: the first, or all of them; or given to one consumer."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, UsageWanted, admin_command, number, required_namesrv, run
from mqadmin.givemessage import Found, give
from mqadmin.report import Report
from mqadmin.showmessage import show_message

COUNT_MAX = 32


@admin_command(
    "queryMsgByUniqueKey",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "topic", "The topic of msg", required=True),
    Argument("g", "consumerGroup", "consumer group name"),
    Argument("d", "clientId", "The consumer's client id"),
    Argument("a", "showAll", "Print all message, the limit is 32", is_flag=True),
    Argument("s", "startTime", "Begin timestamp(ms) of the search; default: everything"),
    Argument("e", "endTime", "End timestamp(ms) of the search; default: everything"),
    Argument("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route."),
)
def command(
    namesrvaddr: str | None,
    msgid: str,
    topic: str,
    consumergroup: str | None,
    clientid: str | None,
    showall: bool,
    starttime: str | None,
    endtime: str | None,
    cluster: str | None,
) -> None:
    begin_ms = number("-s", starttime, 0, most=I64_MAX)
    end_ms = number("-e", endtime, I64_MAX, most=I64_MAX)
    namesrv, key = required_namesrv(namesrvaddr), msgid.strip()
    if bool(clientid) != bool(consumergroup):
        raise UsageWanted("-g and -d go together: they name the one consumer that is given the message")

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[Found] = []
        for holder in await topics.holders(client, namesrv, topic.strip(), cluster):
            rows = await messages.by_key(
                client,
                holder.address,
                topic.strip(),
                key,
                count_max=COUNT_MAX,
                unique=True,
                begin_ms=begin_ms,
                end_ms=end_ms,
            )
            found += [(holder, message) for message in rows]
        if not found:
            raise messages.no_message(f"of topic {topic} with the id {key}")
        found.sort(key=lambda row: row[1].store_timestamp_ms)
        if clientid and consumergroup:
            await give(client, report, found[0], consumergroup, clientid)
            return
        for _, message in found[: COUNT_MAX if showall else 1]:
            await show_message(client, report, namesrv, message, None)

    run(calls)
