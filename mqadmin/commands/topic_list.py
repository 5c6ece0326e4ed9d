"""topicList: the topics that the name server knows, on request with their clusters and consumer groups."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report

HEADING = "{:<20}  {:<48}  {:<48}\n".format("#Cluster Name", "#Topic", "#Consumer Group")


def format_row(cluster: str, topic: str, group: str) -> str:
    """A line under HEADING; names longer than 64 characters are cut, as upstream cuts them."""
    return f"{cluster[:20]:<20}  {topic[:64]:<64}  {group[:64]:<64}\n"


@admin_command(
    "topicList",
    Argument("c", "clusterModel", "clusterModel", is_flag=True),
)
def command(namesrvaddr: str | None, clustermodel: bool) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = await topics.all_topics(client, namesrv)
        if not clustermodel:
            report.text("".join(f"{name}\n" for name in names))
            report.put(topics=names)
            return
        report.text(HEADING)
        report.put(topics=[])
        skipped = (topics.RETRY_PREFIX, topics.DEAD_LETTER_PREFIX)
        failed: list[str] = []
        for name in names:
            if name.startswith(skipped):
                continue
            try:
                holders = await topics.holders(client, namesrv, name)
                groups = {
                    group for row in holders for group in await topics.groups_of(client, row.address, name)
                }
            except AdminError as error:
                failed.append(f"{name}: {error}")
                continue
            for group in sorted(groups) or [""]:
                report.text(format_row(holders[0].cluster, name, group))
            report.add("topics", {"cluster": holders[0].cluster, "topic": name, "groups": sorted(groups)})
        if failed:
            raise AdminError(f"{len(failed)} topics are missing from the list; the first is {failed[0]}")

    run(calls)
