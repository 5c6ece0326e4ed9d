"""statsAll: how much comes to each topic and goes to each of its groups, a second and in 24 hours."""

from __future__ import annotations

from typing import Any, NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.calls import brokerstats, groups, topics
from mqadmin.calls.brokerstats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, day_sum
from mqadmin.calls.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report

HEADING = (
    f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} {'#OutTPS':>11} "
    f"{'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
)


class Flow(NamedTuple):
    """One topic and one of its groups; no group where nobody consumes it."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_day: int
    out_day: int


def format_flow(row: Flow) -> str:
    """A line under HEADING."""
    out_tps, out_day = f"{row.out_tps:.2f}", str(row.out_day)
    if row.group is None:
        out_tps, out_day = "", "NO_CONSUMER"
    return (
        f"{row.topic[:64]:<64}  {(row.group or '')[:64]:<64} {row.accumulation:>12} {row.in_tps:>11.2f} {out_tps:>11} "
        f"{row.in_day:>14} {out_day:>14}\n"
    )


def as_json(row: Flow) -> dict[str, Any]:
    """One row for scripts."""
    return {
        "topic": row.topic,
        "group": row.group,
        "accumulation": row.accumulation,
        "inTps": row.in_tps,
        "outTps": row.out_tps,
        "in24Hour": row.in_day,
        "out24Hour": row.out_day,
    }


@admin_command(
    "statsAll",
    Argument("a", "activeTopic", "print active topic only", is_flag=True),
    Argument("t", "topic", "print select topic only"),
)
def command(namesrvaddr: str | None, activetopic: bool, topic: str | None) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = [topic.strip()] if topic else await topics.all_topics(client, namesrv)
        heading = iter([HEADING])
        report.put(topics=[])
        for name in names:
            if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
                continue
            try:
                flows = await _flows(client, namesrv, name)
            except AdminError as error:
                if topic:
                    raise
                report.note(f"topic {name} is not shown: {error}")
                continue
            report.text(next(heading, ""))
            for row in flows:
                if not activetopic or row.in_day or row.out_day:
                    report.text(format_flow(row))
                    report.add("topics", as_json(row))

    run(calls)


async def _flows(client: AdminClient, namesrv: str, topic: str) -> list[Flow]:
    masters = [holder.address for holder in await topics.holders(client, namesrv, topic)]
    puts = [await brokerstats.recent(client, master, TOPIC_PUT_NUMS, topic) for master in masters]
    in_tps, in_day = sum(row.stats_minute.tps for row in puts), sum(map(day_sum, puts))
    names = {name for master in masters for name in await topics.groups_of(client, master, topic)}
    flows = []
    for name in sorted(names):
        gets = [
            await brokerstats.recent(client, master, GROUP_GET_NUMS, f"{topic}@{name}") for master in masters
        ]
        behind = (await groups.progress(client, masters, name, topic)).diff_total
        out_tps, out_day = sum(row.stats_minute.tps for row in gets), sum(map(day_sum, gets))
        flows.append(Flow(topic, name, max(behind, 0), in_tps, out_tps, in_day, out_day))
    return flows or [Flow(topic, None, 0, in_tps, 0.0, in_day, 0)]
