"""deleteTopic: takes a topic from the masters of a cluster and from the name servers."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report


def format_deleted(topic: str, cluster: str) -> str:
    return (
        f"delete topic [{topic}] from cluster [{cluster}] success.\n"
        f"delete topic [{topic}] from NameServer success.\n"
    )


@admin_command(
    "deleteTopic",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "clusterName", "delete topic from which cluster", required=True),
)
def command(namesrvaddr: str | None, topic: str, clustername: str) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        masters = await client.masters(namesrv, clustername)
        there = [await client.knows_topic(master, topic) for master in masters]
        if not any(there) and not await topics.is_routed(client, namesrv, topic):
            raise AdminError(
                f"no broker of cluster {clustername} has topic {topic}; topicList shows what is there"
            )
        for master in masters:
            await topics.delete_on_broker(client, master, topic)
        await topics.delete_on_name_servers(client, namesrv, topic, clustername)
        report.text(format_deleted(topic, clustername))
        report.put(topic=topic, cluster_name=clustername, brokers=masters)

    run(calls)
