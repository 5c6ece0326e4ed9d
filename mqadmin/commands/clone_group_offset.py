"""cloneGroupOffset: lets one consumer group go on where another one is, in a topic.

Invariant: each broker moves its queues in one step, and only the topic that is named (upstream's tool moves every topic of the
source group, at the offsets of that moment, queue by queue)."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import groups, topics
from mqadmin.command import Argument, admin_command, boolean, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from remoting.codes import RequestCode
from remoting.headers.admin import CloneGroupOffsetHeader


def format_done(source: str, target: str, topic: str) -> str:
    """Upstream's line, which it does not end."""
    return f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"


@admin_command(
    "cloneGroupOffset",
    Argument("s", "srcGroup", "set source consumer group", required=True),
    Argument("d", "destGroup", "set destination consumer group", required=True),
    Argument("t", "topic", "set the topic", required=True),
    Argument("o", "offline", "the group or the topic is offline"),
)
def command(namesrvaddr: str | None, srcgroup: str, destgroup: str, topic: str, offline: str | None) -> None:
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
        report.text(format_done(source, target, name))
        report.put(source=source, target=target, topic=name, brokers=masters)

    run(calls)
