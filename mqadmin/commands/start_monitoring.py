"""startMonitoring: once a minute, how far each group is behind and what looks wrong with its consumers.

Invariant: what upstream writes to a log file stands on standard output; a group that cannot be asked is named and costs the
others nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.calls import clients, groups, topics
from mqadmin.calls.groups import Progress
from mqadmin.calls.topics import RETRY_PREFIX
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.runninginfo import same_subscription, troubles
from remoting.bodies.queues import ConsumerQueues, OffsetWrapper

INTERVAL = "60"
PREFIX, NOTIFY = "[MONITOR] ", "[MONITOR]  [NOTIFY] "
RULE = "=" * 41


class Undone(NamedTuple):
    """What a group has not consumed of one topic; the time is from the last that it consumed until now, ms, and 0 where it is
    level."""

    group: str
    topic: str
    total: int
    most_in_one_queue: int
    delay_ms: int


def format_undone(row: Undone) -> str:
    """As upstream's object writes itself."""
    return (
        f"{PREFIX}reportUndoneMsgs: UndoneMsgs [consumerGroup={row.group}, topic={row.topic}, "
        f"undoneMsgsTotal={row.total}, undoneMsgsSingleMQ={row.most_in_one_queue}, "
        f"undoneMsgsDelayTimeMills={row.delay_ms}]\n"
    )


def undone_of(group: str, progress: Progress, now_ms: int) -> list[Undone]:
    """By topic."""
    of_topic: dict[str, list[OffsetWrapper]] = {}
    for queue, row in progress.offsets.items():
        of_topic.setdefault(queue.topic, []).append(row)
    found = []
    for topic, rows in sorted(of_topic.items()):
        behind = [(row, row.broker_offset - row.consumer_offset) for row in rows]
        delays = [now_ms - row.last_timestamp for row, left in behind if left > 0 and row.last_timestamp > 0]
        total = sum(left for _, left in behind if left > 0)
        found.append(Undone(group, topic, total, max(left for _, left in behind), max(delays, default=0)))
    return found


def as_json(row: Undone) -> dict[str, Any]:
    """One row for scripts, named as upstream's object names them."""
    return {
        "topic": row.topic,
        "undoneMsgsTotal": row.total,
        "undoneMsgsSingleMQ": row.most_in_one_queue,
        "undoneMsgsDelayTimeMills": row.delay_ms,
    }


@admin_command(
    "startMonitoring",
    Argument("once", "once", "one round, then end (not an option of upstream's)", is_flag=True),
)
def command(namesrvaddr: str | None, once: bool) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = [
            topic.removeprefix(RETRY_PREFIX)
            for topic in await topics.all_topics(client, namesrv)
            if topic.startswith(RETRY_PREFIX)
        ]
        masters = await groups.one_of_each_set(client, namesrv)
        report.text(f"{PREFIX}{RULE}beginRound\n")
        report.put(groups=[])
        for name in sorted(names):
            try:
                await _look_at(client, report, masters, name)
            except AdminError as error:
                report.note(f"group {name} cannot be looked at: {error}")
        report.text(f"{PREFIX}{RULE}endRound\n")

    run(calls, interval=None if once else INTERVAL)


async def _look_at(client: AdminClient, report: Report, masters: list[str], group: str) -> None:
    """Of a group that is online."""
    connected = await groups.consumers(client, masters, group)
    if connected is None:
        return
    now_ms = client.clock.now_ms()
    undone = undone_of(group, await groups.progress(client, masters, group), now_ms)
    report.text("".join(map(format_undone, undone)))
    infos: dict[str, ConsumerQueues] = {}
    for member in connected.connection_set:
        for master in masters:
            try:
                infos[member.client_id] = await clients.queues_of(client, master, group, member.client_id)
                break
            except AdminError:  # another broker has its connection
                continue
    notices: list[str] = []
    if infos and not same_subscription(infos, now_ms):
        notices.append("Subscription different")
    for name, info in sorted(infos.items()):
        notices += [f"ClientId: {name}, {line}" for line in troubles(name, info, now_ms)]
    for notice in notices:
        report.text(f"{NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {group}, {notice}\n")
    report.add("groups", {"group": group, "undone": [as_json(row) for row in undone], "notices": notices})
