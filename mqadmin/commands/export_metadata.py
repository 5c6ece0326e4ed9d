"""exportMetadata: the topics and groups of a cluster, or of one broker, as a JSON file.

Invariant: the system's own are left out; of several broker sets the queue numbers are added up, as upstream has it."""

from __future__ import annotations

from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.calls import metadata
from mqadmin.command import Argument, UsageWanted, admin_command, one_wanted, required_namesrv, run
from mqadmin.exports import write_json
from mqadmin.report import Report

FILES = {"topicConfigTable": "topic.json", "subscriptionGroupTable": "subscriptionGroup.json"}
BOTH = "metadata.json"


def add_up(total: dict[str, Any], table: dict[str, Any], counts: tuple[str, ...]) -> None:
    """The rows of one broker set more; `counts` are added to those of a row that is there."""
    for name, row in table.items():
        known = total.get(name)
        total[name] = row if known is None else row | {key: known[key] + row[key] for key in counts}


@admin_command(
    "exportMetadata",
    Argument("c", "clusterName", "choose a cluster to export"),
    Argument("b", "brokerAddr", "choose a broker to export"),
    Argument("f", "filePath", "export metadata.json path | default /tmp/rocketmq/export"),
    Argument("t", "topic", "only export topic metadata", is_flag=True),
    Argument("g", "subscriptionGroup", "only export subscriptionGroup metadata", is_flag=True),
    Argument("s", "specialTopic", "need retryTopic and dlqTopic", is_flag=True),
)
def command(
    namesrvaddr: str | None,
    clustername: str | None,
    brokeraddr: str | None,
    filepath: str | None,
    topic: bool,
    subscriptiongroup: bool,
    specialtopic: bool,
) -> None:
    one_wanted(brokeraddr, clustername)
    if topic and subscriptiongroup:
        raise UsageWanted("-t and -g each leave out the other: give neither for both")

    async def calls(client: AdminClient, report: Report) -> None:
        masters = (
            [brokeraddr]
            if brokeraddr
            else await client.masters(required_namesrv(namesrvaddr), clustername or "")
        )
        tables: dict[str, dict[str, Any]] = {}
        for master in masters:
            if not subscriptiongroup:
                found = await metadata.user_topics(client, master, with_special=specialtopic)
                add_up(tables.setdefault("topicConfigTable", {}), found, ("readQueueNums", "writeQueueNums"))
            if not topic:
                found = await metadata.user_groups(client, master)
                add_up(tables.setdefault("subscriptionGroupTable", {}), found, ("retryQueueNums",))
        name = BOTH if len(tables) > 1 else FILES[next(iter(tables))]
        path = write_json(filepath, name, {**tables, "exportTime": client.clock.now_ms()})
        report.text(f"export {path} success\n")
        report.put(file=str(path), **tables)

    run(calls)
