"""topicRoute: which brokers serve a topic, as JSON in upstream's layout or as a list."""

from __future__ import annotations

import json
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.replies import BrokerSet
from mqadmin.report import Report, java_map

LIST_COLUMNS = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"
LIST_HEADING = LIST_COLUMNS.format(
    "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
)
LIST_RULE = "-" * 158 + "\n"


def format_json(route: dict[str, Any]) -> str:
    """The route as upstream's JSON library prints it: tabs, sorted keys, bare and unbroken broker ids."""
    return _pretty({key: value for key, value in route.items() if value is not None}, 0) + "\n"


def format_list(route: dict[str, Any]) -> str:
    """One line per broker set and a total."""
    sets = {row["brokerName"]: BrokerSet.from_json(row) for row in route.get("brokerDatas") or ()}
    queues = [row for row in route.get("queueDatas") or () if row["brokerName"] in sets]
    lines = [LIST_HEADING]
    for row in queues:
        brokers = sets[row["brokerName"]]
        lines.append(
            LIST_COLUMNS.format(
                brokers.cluster,
                brokers.broker_name,
                java_map(brokers.addresses),
                row["readQueueNums"],
                row["writeQueueNums"],
                row["perm"],
            )
        )
    total_read = sum(row["readQueueNums"] for row in queues)
    total_write = sum(row["writeQueueNums"] for row in queues)
    total = LIST_COLUMNS.format("Total:", len(queues), "", total_read, total_write, "")
    return "".join([*lines, LIST_RULE, total])


def _pretty(value: Any, depth: int) -> str:
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict) and value:
        if all(key.isdecimal() for key in value):
            rows = sorted(value.items(), key=lambda row: int(row[0]))
            return "{" + ",".join(f"{key}:{_pretty(item, depth + 1)}" for key, item in rows) + outer + "}"
        rows = sorted(value.items())
        return (
            "{" + ",".join(f'{inner}"{key}":{_pretty(item, depth + 1)}' for key, item in rows) + outer + "}"
        )
    if isinstance(value, list) and value:
        return "[" + ",".join(inner + _pretty(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


@admin_command(
    "topicRoute",
    Argument("t", "topic", "topic name", required=True),
    Argument("l", "list", "Use list format to print data", is_flag=True),
)
def command(namesrvaddr: str | None, topic: str, list: bool) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        route = await client.topic_route(required_namesrv(namesrvaddr), topic)
        report.text(format_list(route) if list else format_json(route))
        report.put(route=route)

    run(calls)
