"""allocateMQ: how the queues of a topic are shared among consumers with the given addresses, as the default of clients has it.

Invariant: nobody is asked but the name server; each queue goes to exactly one of them."""

from __future__ import annotations

import json

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, UsageWanted, admin_command, required_namesrv, run
from mqadmin.report import Report, plain
from remoting.bodies.queues import MessageQueue
from remoting.bodies.topics import PERM_READ


def shares(queues: list[MessageQueue], consumers: list[str]) -> dict[str, list[MessageQueue]]:
    """Neighbouring queues to each consumer in turn, one more to the first where they do not come out even."""
    each, more = divmod(len(queues), len(consumers))
    found: dict[str, list[MessageQueue]] = {}
    start = 0
    for number, consumer in enumerate(consumers):
        count = each + (number < more)
        found[consumer] = queues[start : start + count]
        start += count
    return found


@admin_command(
    "allocateMQ",
    Argument("t", "topic", "topic name", required=True),
    Argument("i", "ipList", "ipList", required=True),
)
def command(namesrvaddr: str | None, topic: str, iplist: str) -> None:
    consumers = list(dict.fromkeys(part.strip() for part in iplist.split(",") if part.strip()))
    if not consumers:
        raise UsageWanted(f"-i {iplist}: give addresses of consumers, separated by commas")

    async def calls(client: AdminClient, report: Report) -> None:
        name = topic.strip()
        route = await client.topic_route(required_namesrv(namesrvaddr), name)
        queues = [
            MessageQueue(name, row["brokerName"], queue_id)
            for row in sorted(route.get("queueDatas") or (), key=lambda row: str(row["brokerName"]))
            for queue_id in range(row["readQueueNums"] if row["perm"] & PERM_READ else 0)
        ]
        found = shares(queues, consumers)
        result = {
            consumer: [
                queue.to_json()
                for queue in sorted(of_one, key=lambda queue: (queue.broker_name, queue.queue_id))
            ]
            for consumer, of_one in found.items()
        }
        report.text(json.dumps({"result": result}, separators=(",", ":")) + "\n")
        report.put(result=plain(result))

    run(calls)
