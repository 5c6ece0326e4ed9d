"""Commands that move the offsets of consumer groups."""

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
from remoting.codes import RequestCode
from remoting.headers.admin import CloneGroupOffsetHeader
from remoting.headers.offsets import ResetOffsetHeader

END = -1
"""The wire value of `now`. It means the end of each queue, whatever the broker's clock says."""
RESET_HEADING = f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}\n"


def format_start(group: str, topic: str, force: bool, text: str, timestamp_ms: int) -> str:
    """The line that repeats the request."""
    return (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"force[{java_text(force)}], timestamp(string)[{text}], timestamp(long)[{timestamp_ms}]\n"
    )


def format_reset(queue: MessageQueue, offset: int) -> str:
    """A line under RESET_HEADING."""
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
def reset_offset(
    namesrvaddr: str | None,
    broker: str | None,
    cluster: str | None,  # "" is upstream's older -c for C++ clients, which makes no difference to brokers
    force: str | None,
    group: str,
    offset: str | None,
    queue: str | None,
    timestamp: str,
    topic: str,
) -> None:
    """Moves a consumer group to the messages of a moment, in all queues of a topic or in one."""
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
        report.text(RESET_HEADING + "".join(format_reset(*row) for row in rows))
        report.put(
            group=group,
            topic=topic,
            timestamp=timestamp_ms,
            queues=[
                {"brokerName": row.broker_name, "queueId": row.queue_id, "offset": at} for row, at in rows
            ],
        )

    run(calls)


@admin_command(
    "skipAccumulatedMessage",
    Argument("g", "group", "set the consumer group", required=True),
    Argument("t", "topic", "set the topic", required=True),
    Argument("f", "force", "set the force rollback by timestamp switch[true|false]"),
    Argument("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route."),
)
def skip_accumulated(
    namesrvaddr: str | None, group: str, topic: str, force: str | None, cluster: str | None
) -> None:
    """Moves a consumer group to the end of a topic's queues; earlier messages are never consumed."""
    namesrv = required_namesrv(namesrvaddr)
    header = ResetOffsetHeader(topic.strip(), group.strip(), END, boolean("-f", force, True))

    async def calls(client: AdminClient, report: Report) -> None:
        moved: dict[MessageQueue, int] = {}
        for holder in await topics.holders(client, namesrv, header.topic, cluster):
            moved |= await groups.reset(client, holder.address, header)
        rows = sorted(moved.items(), key=lambda row: (row[0].broker_name, row[0].queue_id))
        report.text(RESET_HEADING + "".join(format_reset(*row) for row in rows))
        report.put(
            group=header.group,
            topic=header.topic,
            queues=[
                {"brokerName": row.broker_name, "queueId": row.queue_id, "offset": at} for row, at in rows
            ],
        )

    run(calls)


def format_cloned(source: str, target: str, topic: str) -> str:
    """Upstream's line, without a line end."""
    return f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"


@admin_command(
    "cloneGroupOffset",
    Argument("s", "srcGroup", "set source consumer group", required=True),
    Argument("d", "destGroup", "set destination consumer group", required=True),
    Argument("t", "topic", "set the topic", required=True),
    Argument("o", "offline", "the group or the topic is offline"),
)
def clone_group_offset(
    namesrvaddr: str | None, srcgroup: str, destgroup: str, topic: str, offline: str | None
) -> None:
    """Moves one consumer group to the offsets of another one, in a topic.

    Invariant: each broker moves its queues in one step, and only those of the named topic. Upstream's tool moves
    every topic of the source group, at the offsets of that moment, queue by queue."""
    namesrv = required_namesrv(namesrvaddr)
    source, target, name = srcgroup.strip(), destgroup.strip(), topic.strip()
    header = CloneGroupOffsetHeader(source, target, name, boolean("-o", offline))

    async def calls(client: AdminClient, report: Report) -> None:
        masters = [holder.address for holder in await topics.holders(client, namesrv, name)]
        wanted = (await groups.progress(client, masters, source, name)).offsets
        if not any(row.consumer_offset for row in wanted.values()):
            raise AdminError(f"group {source} has committed no offset of topic {name}; nothing is cloned")
        for master in masters:
            await client.ask(master, RequestCode.CLONE_GROUP_OFFSET, header)
        now = (await groups.progress(client, masters, target, name)).offsets
        left = [queue for queue, row in wanted.items() if row.consumer_offset > now[queue].consumer_offset]
        if left:
            raise AdminError(
                f"{len(left)} of {len(wanted)} queues of {name} were not cloned: group {source} is online and reads "
                "that topic no more; -o true clones all the same"
            )
        report.text(format_cloned(source, target, name))
        report.put(source=source, target=target, topic=name, brokers=masters)

    run(calls)
