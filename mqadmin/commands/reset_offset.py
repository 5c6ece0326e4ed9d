"""resetOffsetByTime: moves a consumer group to the messages of a moment, in all queues of a topic or in one."""

from __future__ import annotations

from mqadmin.admin import AdminClient, check_address
from mqadmin.calls import groups, topics
from mqadmin.command import (
    I64_MAX,
    Argument,
    UsageWanted,
    admin_command,
    boolean,
    number,
    required_namesrv,
    run,
)
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.times import read_time
from remoting.bodies.queues import MessageQueue
from remoting.headers.offsets import ResetOffsetHeader

END = -1
"""What the wire has for `now`: the end of each queue, whatever the broker's clock says."""
HEADING = f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}\n"


def format_start(group: str, topic: str, force: bool, text: str, timestamp_ms: int) -> str:
    """The line that repeats what was asked for."""
    return (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"force[{java_text(force)}], timestamp(string)[{text}], timestamp(long)[{timestamp_ms}]\n"
    )


def format_queue(queue: MessageQueue, offset: int) -> str:
    """A line under HEADING."""
    return f"{queue.broker_name[:32]:<40}  {queue.queue_id:<40}  {offset:<40}\n"


@admin_command(
    "resetOffsetByTime",
    Argument("b", "broker", "broker addr"),
    Argument("c", "cluster", "Cluster name", alone=""),
    Argument("f", "force", "set the force rollback by timestamp switch[true|false]. Deprecated."),
    Argument("g", "group", "set the consumer group", required=True),
    Argument("o", "offset", "Expect queue offset, not support old version broker"),
    Argument("q", "queue", "queue id"),
    Argument(
        "s", "timestamp", "set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]", required=True
    ),
    Argument("t", "topic", "set the topic", required=True),
)
def command(
    namesrvaddr: str | None,
    broker: str | None,
    cluster: str | None,  # "" is upstream's older -c, for C++ clients; brokers move groups of all alike
    force: str | None,
    group: str,
    offset: str | None,
    queue: str | None,
    timestamp: str,
    topic: str,
) -> None:
    forced, queue_id = boolean("-f", force, True), number("-q", queue, -1)
    wanted = None if offset is None else number("-o", offset, 0, most=I64_MAX)
    if wanted is not None and queue_id < 0:
        raise UsageWanted(
            "-o names an offset of one queue: give -q, and -b where several broker sets have it"
        )

    if broker:
        check_address(broker)

    async def calls(client: AdminClient, report: Report) -> None:
        timestamp_ms = (
            END if timestamp.strip() == "now" else read_time("-s", timestamp, client.clock.now_ms())
        )
        header = ResetOffsetHeader(topic, group, timestamp_ms, forced, queue_id, wanted)
        if broker:
            brokers = [broker]
        else:
            holders = await topics.holders(client, required_namesrv(namesrvaddr), topic, cluster or None)
            brokers = [holder.address for holder in holders]
        report.text(format_start(group, topic, forced, timestamp, timestamp_ms))
        moved: dict[MessageQueue, int] = {}
        for address in brokers:
            moved |= await groups.reset(client, address, header)
        if not moved:
            raise AdminError(f"topic {topic} has no queue to reset for group {group}")
        rows = sorted(moved.items(), key=lambda row: (row[0].broker_name, row[0].queue_id))
        report.text(HEADING + "".join(format_queue(*row) for row in rows))
        report.put(
            group=group,
            topic=topic,
            timestamp=timestamp_ms,
            queues=[
                {"brokerName": row.broker_name, "queueId": row.queue_id, "offset": at} for row, at in rows
            ],
        )

    run(calls)
