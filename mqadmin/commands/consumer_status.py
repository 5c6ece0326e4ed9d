"""consumerStatus: what the connected consumers of a group say of themselves: one on the screen, or each in a file, and what
looks wrong among them."""

from __future__ import annotations

import re
from pathlib import Path

from mqadmin.admin import AdminClient
from mqadmin.calls import clients, groups
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.commands.consumer_connection import must_be_online
from mqadmin.errors import AdminError
from mqadmin.exports import write_text
from mqadmin.report import Report
from mqadmin.runninginfo import format_info, same_subscription, troubles
from mqadmin.versions import version_name
from remoting.bodies.heartbeats import Connection
from remoting.bodies.queues import ConsumerQueues

COLUMNS = "{:<10} {:<40} {:<20} {}\n"
HEADING = COLUMNS.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
UNSAFE = re.compile(r"[^0-9A-Za-z@._#-]")


def format_verdict(infos: dict[str, ConsumerQueues], now_ms: int) -> str:
    """What looks wrong in a group, or that nothing does."""
    if not same_subscription(infos, now_ms):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    lines = [line for name, info in sorted(infos.items()) for line in troubles(name, info, now_ms)]
    return "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" + "".join(
        f"{line}\n" for line in lines
    )


def file_for(folder: str, client_id: str) -> Path:
    """Below the working directory, as upstream's; a client id cannot lead elsewhere."""
    return Path(folder) / (UNSAFE.sub("_", client_id).lstrip(".") or "_")


@admin_command(
    "consumerStatus",
    Argument("g", "consumerGroup", "consumer group name", required=True),
    Argument("i", "clientId", "The consumer's client id"),
    Argument("b", "brokerAddr", "broker address"),
    Argument("s", "jstack", "Run jstack command in the consumer progress", is_flag=True),
)
def command(
    namesrvaddr: str | None, consumergroup: str, clientid: str | None, brokeraddr: str | None, jstack: bool
) -> None:
    group = consumergroup.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        found = await must_be_online(client, namesrvaddr, brokeraddr, group)
        masters = (
            [brokeraddr]
            if brokeraddr
            else await groups.one_of_each_set(client, required_namesrv(namesrvaddr))
        )
        if clientid:
            info = await _told(client, masters, group, clientid.strip(), jstack)
            report.text(format_info(info))
            report.put(clients={clientid.strip(): info.to_json()})
            return
        infos: dict[str, ConsumerQueues] = {}
        folder = str(client.clock.now_ms())
        report.text(HEADING)
        for member in found.connection_set:
            try:
                infos[member.client_id] = await _told(client, masters, group, member.client_id, jstack)
            except AdminError as error:
                report.note(f"{member.client_id} does not tell of itself: {error}")
                continue
            _show(report, len(infos), member, infos[member.client_id], folder)
        if not infos:
            raise AdminError(f"no consumer of group {group} tells of itself")
        report.text(format_verdict(infos, client.clock.now_ms()))
        report.put(clients={name: info.to_json() for name, info in infos.items()})

    run(calls)


def _show(report: Report, number: int, member: Connection, info: ConsumerQueues, folder: str) -> None:
    if not report.as_json:
        path = write_text(file_for(folder, member.client_id), format_info(info))
        report.text(COLUMNS.format(number, member.client_id, version_name(member.version), path))


async def _told(
    client: AdminClient, masters: list[str], group: str, client_id: str, jstack: bool
) -> ConsumerQueues:
    """Through the first broker that has the client's connection."""
    failed: AdminError | None = None
    for master in masters:
        try:
            return await clients.queues_of(client, master, group, client_id, jstack=jstack)
        except AdminError as error:
            failed = failed or error
    assert failed is not None, "there is a master, for the group is online there"
    raise failed
