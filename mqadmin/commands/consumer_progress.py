"""consumerProgress: how far groups are behind what brokers have for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from mqadmin.admin import AdminClient
from mqadmin.calls import clients, groups
from mqadmin.calls.groups import Progress
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report, plain
from mqadmin.times import format_seconds
from mqadmin.versions import version_name
from remoting.bodies.heartbeats import ConsumerConnection
from remoting.bodies.queues import MessageQueue, OffsetWrapper

QUEUE_HEADING = (
    f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  {'#Consumer Offset':<20}  "
    f"{'#Diff':<20} {'#Inflight':<20}#LastTime\n"
)
QUEUE_HEADING_WITH_IP = QUEUE_HEADING.replace("#Diff", f"{'#Client IP':<20} #Diff", 1)
GROUP_HEADING = f"{'#Group':<64}  {'#Count':<6}  {'#Version':<24} {'#Type':<5}  {'#Model':<14}  {'#TPS':<7}  #Diff Total\n"
TYPES = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL", "CONSUME_POP": "POP"}

Readers = dict[MessageQueue, str]
"""Queue -> ip of the client that reads it."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group in the list of all; `consumers` is None while none is connected."""

    group: str
    consumers: ConsumerConnection | None
    consume_tps: float
    diff_total: int


def format_progress(progress: Progress, zone: tzinfo | None = None, readers: Readers | None = None) -> str:
    """A line per queue, by topic, broker and queue, with its reader's ip where readers are given; and the totals."""

    def ip(queue: MessageQueue) -> str:
        return "" if readers is None else f"{readers.get(queue, 'N/A'):<20} "

    rows = "".join(
        f"{queue.topic[:64]:<64}  {queue.broker_name[:32]:<32}  {queue.queue_id:<4}  {row.broker_offset:<20}  "
        f"{row.consumer_offset:<20}  {ip(queue)}{row.broker_offset - row.consumer_offset:<20} "
        f"{row.pull_offset - row.consumer_offset:<20} "
        f"{format_seconds(row.last_timestamp, zone) if row.last_timestamp > 0 else 'N/A'}\n"
        for queue, row in sorted(progress.offsets.items(), key=queue_order)
    )
    heading = QUEUE_HEADING if readers is None else QUEUE_HEADING_WITH_IP
    return (
        f"{heading}{rows}\nConsume TPS: {progress.consume_tps:.2f}\n"
        f"Consume Diff Total: {progress.diff_total}\nConsume Inflight Total: {progress.inflight_total}\n"
    )


def format_group(row: GroupRow) -> str:
    """A line under GROUP_HEADING."""
    members = row.consumers.connection_set if row.consumers else []
    oldest = min((member.version for member in members), default=0)
    version = version_name(oldest) if members else "OFFLINE"
    kind = TYPES.get(row.consumers.consume_type or "", "") if row.consumers else ""
    model = (row.consumers.message_model or "") if row.consumers and kind == "PUSH" else ""
    return (
        f"{row.group[:64]:<64}  {len(members):<6}  {version:<24} {kind:<5}  {model:<14}  "
        f"{row.consume_tps:<7.0f}  {row.diff_total}\n"
    )


def queue_order(row: tuple[MessageQueue, OffsetWrapper]) -> tuple[str, str, int]:
    return row[0].topic, row[0].broker_name, row[0].queue_id


@admin_command(
    "consumerProgress",
    Argument("c", "cluster", "Cluster name"),
    Argument("g", "groupName", "consumer group name"),
    Argument("t", "topicName", "topic name"),
    Argument("s", "showClientIP", "Show Client IP per Queue"),
)
def command(
    namesrvaddr: str | None,
    cluster: str | None,
    groupname: str | None,
    topicname: str | None,
    showclientip: str | None,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    show_ip = boolean("-s", showclientip)
    if show_ip and not groupname:
        raise UsageWanted("-s shows who reads the queues of one group: name it with -g")

    async def calls(client: AdminClient, report: Report) -> None:
        masters = await groups.one_of_each_set(client, namesrv, cluster)
        if groupname:
            await _one(client, report, masters, groupname, topicname, show_ip)
            return
        report.text(GROUP_HEADING)
        report.put(groups=[])
        for name in await groups.names(client, namesrv, masters):
            progress = await groups.progress(client, masters, name, topicname)
            members = await groups.consumers(client, masters, name)
            row = GroupRow(name, members, progress.consume_tps, progress.diff_total)
            report.text(format_group(row))
            report.add("groups", row)

    run(calls)


async def _one(
    client: AdminClient,
    report: Report,
    masters: list[str],
    group: str,
    topic: str | None,
    show_ip: bool,
) -> None:
    progress = await groups.progress(client, masters, group, topic)
    if not progress.offsets:
        of = f" of topic {topic}" if topic else ""
        raise AdminError(f"group {group} has committed no offset{of}; consumerProgress lists the groups")
    readers: Readers | None = None
    if show_ip:
        readers, silent = await clients.readers(client, masters, group)
        for line in silent:
            report.note(line)
    report.text(format_progress(progress, readers=readers))
    report.put(
        group=group,
        consume_tps=progress.consume_tps,
        diff_total=progress.diff_total,
        inflight_total=progress.inflight_total,
        queues=[
            {
                **plain(queue),
                **plain(row),
                **({} if readers is None else {"clientIp": readers.get(queue)}),
            }
            for queue, row in sorted(progress.offsets.items(), key=queue_order)
        ],
    )
