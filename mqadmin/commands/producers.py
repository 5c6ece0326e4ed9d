"""producer: every producer that is connected to one broker, by group."""

from __future__ import annotations

from mqadmin.admin import AdminClient, body_of
from mqadmin.command import Argument, admin_command, run
from mqadmin.report import Report
from remoting.bodies.heartbeats import ProducerInfo, ProducerTable
from remoting.codes import RequestCode


def format_producer(group: str, producer: ProducerInfo) -> str:
    """The line of one, as upstream's object writes itself."""
    return (
        f"producer group ({group}) instance : clientId={producer.client_id},remoteIP={producer.remote_ip}, "
        f"language={producer.language}, version={producer.version}, "
        f"lastUpdateTimestamp={producer.last_update_timestamp}\n"
    )


@admin_command("producer", Argument("b", "broker", "broker address", required=True))
def command(namesrvaddr: str | None, broker: str) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(broker, RequestCode.GET_ALL_PRODUCER_INFO)
        table = body_of(ProducerTable, broker, reply)
        for group, members in sorted(table.data.items()):
            report.text("".join(format_producer(group, member) for member in members))
        report.put(groups=table.to_json()["data"])

    run(calls)
