"""queryMsgTraceById: who sent a message and who consumed it, as the clients themselves told the trace topic."""

from __future__ import annotations

from datetime import tzinfo

from mqadmin.admin import AdminClient
from mqadmin.calls import messages, topics
from mqadmin.command import I64_MAX, Argument, admin_command, number, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report, plain
from mqadmin.times import format_seconds
from mqadmin.traces import PUB, Trace, traces_in

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
COUNT = 64
COLUMNS = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}\n"

Traced = tuple[Trace, str]
"""A trace and the host of the client that told it."""


def format_traces(found: list[Traced], zone: tzinfo | None = None) -> str:
    """A block for each send, then one for each group that consumed."""
    text = ""
    for row in found:
        if row[0].kind == PUB:
            heading = COLUMNS.format(
                "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"
            )
            text += heading + _row("Pub", row, zone) + "\n"
    consumed: dict[str, list[Traced]] = {}
    for row in found:
        if row[0].kind != PUB:
            consumed.setdefault(row[0].group, []).append(row)
    for rows in consumed.values():
        text += COLUMNS.format(
            "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"
        )
        text += "".join(_row("Sub", row, zone) for row in rows) + "\n"
    return text


def _row(kind: str, traced: Traced, zone: tzinfo | None) -> str:
    trace, host = traced
    status = "success" if trace.success else "failed"
    return COLUMNS.format(
        kind, trace.group, host, format_seconds(trace.time_ms, zone), f"{trace.cost_ms}ms", status
    )


@admin_command(
    "queryMsgTraceById",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "traceTopic", "The name value of message trace topic"),
    Argument("b", "beginTimestamp", "Begin timestamp(ms). default:0, eg:1676730526212"),
    Argument("e", "endTimestamp", "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212"),
    Argument("c", "maxNum", "The maximum number of messages returned by the query, default:64"),
)
def command(
    namesrvaddr: str | None,
    msgid: str,
    tracetopic: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    maxnum: str | None,
) -> None:
    namesrv, topic, key = required_namesrv(namesrvaddr), (tracetopic or TRACE_TOPIC).strip(), msgid.strip()
    begin_ms = number("-b", begintimestamp, 0, most=I64_MAX)
    end_ms = number("-e", endtimestamp, I64_MAX, most=I64_MAX)
    count_max = number("-c", maxnum, COUNT, least=1)

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[Traced] = []
        for holder in await topics.holders(client, namesrv, topic):
            rows = await messages.by_key(
                client, holder.address, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
            for message in rows:
                body = messages.shown_body(report, message).decode(errors="replace")
                host = message.born_host.rpartition(":")[0]
                found += [(trace, host) for trace in traces_in(body, key)]
        report.put(traces=[plain(trace) | {"clientHost": host} for trace, host in found])
        if not found:
            raise AdminError(
                f"topic {topic} has no trace of message {key}; clients trace only where it is switched on in them"
            )
        report.text(format_traces(found))

    run(calls)
