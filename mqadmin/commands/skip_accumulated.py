"""skipAccumulatedMessage: moves a consumer group to the end of a topic's queues; what it had before it is never consumed."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import groups, topics
from mqadmin.command import Argument, admin_command, boolean, required_namesrv, run
from mqadmin.commands.reset_offset import END, HEADING, format_queue
from mqadmin.report import Report
from remoting.bodies.queues import MessageQueue
from remoting.headers.offsets import ResetOffsetHeader


@admin_command(
    "skipAccumulatedMessage",
    Argument("g", "group", "set the consumer group", required=True),
    Argument("t", "topic", "set the topic", required=True),
    Argument("f", "force", "set the force rollback by timestamp switch[true|false]"),
    Argument("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route."),
)
def command(namesrvaddr: str | None, group: str, topic: str, force: str | None, cluster: str | None) -> None:
    namesrv = required_namesrv(namesrvaddr)
    header = ResetOffsetHeader(topic.strip(), group.strip(), END, boolean("-f", force, True))

    async def calls(client: AdminClient, report: Report) -> None:
        moved: dict[MessageQueue, int] = {}
        for holder in await topics.holders(client, namesrv, header.topic, cluster):
            moved |= await groups.reset(client, holder.address, header)
        rows = sorted(moved.items(), key=lambda row: (row[0].broker_name, row[0].queue_id))
        report.text(HEADING + "".join(format_queue(*row) for row in rows))
        report.put(
            group=header.group,
            topic=header.topic,
            queues=[
                {"brokerName": row.broker_name, "queueId": row.queue_id, "offset": at} for row, at in rows
            ],
        )

    run(calls)
