"""producerConnection: the producers that are connected for a group, at the masters that have a topic."""

from __future__ import annotations

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.versions import version_name
from remoting.bodies.heartbeats import Connection, ProducerConnection
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import ProducerGroupHeader


def format_producers(members: list[Connection]) -> str:
    """A numbered line for each; upstream has no heading."""
    return "".join(
        f"{number:04}  {row.client_id:<32} {row.client_addr:<22} {row.language:<8} {version_name(row.version)}\n"
        for number, row in enumerate(members, 1)
    )


@admin_command(
    "producerConnection",
    Argument("g", "producerGroup", "producer group name", required=True),
    Argument("t", "topic", "topic name", required=True),
)
def command(namesrvaddr: str | None, producergroup: str, topic: str) -> None:
    namesrv, group = required_namesrv(namesrvaddr), producergroup.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        members: dict[str, Connection] = {}
        for holder in await topics.holders(client, namesrv, topic.strip()):
            reply = await client.ask_for(
                holder.address,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                ProducerGroupHeader(group),
                absent=ResponseCode.SYSTEM_ERROR,
            )
            if reply is not None:
                found = body_of(ProducerConnection, holder.address, reply).connection_set
                members |= {member.client_id: member for member in found}
        if not members:
            raise AdminError(f"no producer of group {group} is connected where topic {topic} is")
        rows = [members[name] for name in sorted(members)]
        report.text(format_producers(rows))
        report.put(connection_set=[row.to_json() for row in rows])

    run(calls)
