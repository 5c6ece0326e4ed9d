"""brokerConsumeStats: how far every group of one broker is behind, queue by queue."""

from __future__ import annotations

from datetime import tzinfo

from mqadmin.admin import AdminClient, body_of
from mqadmin.command import I64_MAX, Argument, admin_command, boolean, number, run
from mqadmin.commands.consumer_progress import queue_order
from mqadmin.report import Report, plain
from mqadmin.times import format_seconds
from remoting.bodies.queues import ConsumeStatsList, MessageQueue, OffsetWrapper
from remoting.codes import RequestCode
from remoting.headers.admin import ConsumeStatsInBrokerHeader

TIMEOUT_MS = 50_000
COLUMNS = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}\n"
HEADING = COLUMNS.format(
    "#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"
)


def format_queue(group: str, queue: MessageQueue, row: OffsetWrapper, zone: tzinfo | None = None) -> str:
    """A line under HEADING."""
    return COLUMNS.format(
        queue.topic[:64],
        group,
        queue.broker_name[:32],
        queue.queue_id,
        row.broker_offset,
        row.consumer_offset,
        row.broker_offset - row.consumer_offset,
        format_seconds(row.last_timestamp, zone),
    )


@admin_command(
    "brokerConsumeStats",
    Argument("b", "brokerAddr", "Broker address", required=True),
    Argument("t", "timeoutMillis", "request timeout Millis"),
    Argument("l", "level", "threshold of print diff"),
    Argument("o", "order", "order topic"),
)
def command(
    namesrvaddr: str | None, brokeraddr: str, timeoutmillis: str | None, level: str | None, order: str | None
) -> None:
    wait_ms = number("-t", timeoutmillis, TIMEOUT_MS, least=1)
    least = number("-l", level, 0, most=I64_MAX)
    header = ConsumeStatsInBrokerHeader(boolean("-o", order))

    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(brokeraddr, RequestCode.GET_BROKER_CONSUME_STATS, header, wait_ms=wait_ms)
        found = body_of(ConsumeStatsList, brokeraddr, reply)
        report.text(HEADING)
        report.put(queues=[], total_diff=found.total_diff)
        for of_group in found.consume_stats_list:
            for group, each in of_group.items():
                for queue, row in sorted(
                    (pair for stats in each for pair in stats.offset_table.items()), key=queue_order
                ):
                    if row.broker_offset - row.consumer_offset >= least and row.last_timestamp > 0:
                        report.text(format_queue(group, queue, row))
                        report.add("queues", {"group": group, **plain(queue), **plain(row)})
        report.text(f"\nDiff Total: {found.total_diff}\n")

    run(calls)
