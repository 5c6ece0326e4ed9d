"""Asks brokers to delete files."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.wanted import members_of
from remoting.codes import RequestCode

DONE = "success\n"


async def ask_brokers(
    client: AdminClient,
    report: Report,
    code: RequestCode,
    broker: str | None,
    namesrv: str | None,
    cluster: str | None,
) -> None:
    """Ask `broker`, or every replica of `cluster`, because each has its own log. Without `cluster` the replicas of all
    clusters are asked. Raises `AdminError` at the end if a request failed."""
    addresses = [broker] if broker else await members_of(client, namesrv, cluster)
    failed: list[AdminError] = []
    report.put(brokers=[])
    for address in addresses:
        try:
            await client.ask(address, code)
        except AdminError as error:
            failed.append(error)
        else:
            report.add("brokers", address)
    if failed:
        others = f" ({len(failed)} of {len(addresses)} brokers failed)" if len(addresses) > 1 else ""
        raise AdminError(f"{failed[0]}{others}")
    report.text(DONE)
