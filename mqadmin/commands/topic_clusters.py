"""topicClusterList: the clusters that have a topic."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report


@admin_command("topicClusterList", Argument("t", "topic", "topic name", required=True))
def command(namesrvaddr: str | None, topic: str) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        holders = await topics.holders(client, namesrv, topic.strip())
        clusters = sorted({holder.cluster for holder in holders})
        report.text("".join(f"{cluster}\n" for cluster in clusters))
        report.put(topic=topic.strip(), clusters=clusters)

    run(calls)
