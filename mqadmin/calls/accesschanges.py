"""The common part of the commands that change users and rights: one change for one broker, or for each broker of a cluster.

Java's slaves copy no users, so each needs the change. A slave of this project answers that it succeeded once it has the change
from its master."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.command import required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report

Change = Callable[[AdminClient, str], Awaitable[None]]
"""The requests to one broker, at this address."""


def format_changed(done: str, address: str) -> str:
    """The line of one broker, with upstream's wording: it says "to" for deletions, too."""
    return f"{done} to {address} success.\n"


def change_brokers(
    done: str, broker: str | None, namesrv: str | None, cluster: str | None, change: Change, **members: Any
) -> None:
    """Make a change on `broker`, or on every broker of `cluster`, masters first, and print a line for each that made it.
    `members` describe the change in JSON.

    Raises: `AdminError` at the end if some brokers did not make it, with the first error and the number of errors."""

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(**members, brokers=[])
        wanted = [broker] if broker else await _members(client, required_namesrv(namesrv), cluster)
        failed: list[AdminError] = []
        for address in wanted:
            try:
                await change(client, address)
            except AdminError as error:
                failed.append(error)
            else:
                report.text(format_changed(done, address))
                report.add("brokers", address)
        if failed:
            others = f" ({len(failed)} of {len(wanted)} brokers failed)" if len(wanted) > 1 else ""
            raise AdminError(f"{failed[0]}{others}")

    run(calls)


async def _members(client: AdminClient, namesrv: str, cluster: str | None) -> list[str]:
    """The addresses of all brokers of a cluster, masters first. Raises `AdminError` for an unknown cluster."""
    sets = (await client.cluster_info(namesrv)).sets_of(cluster)
    found = sorted((role_id, address) for row in sets for role_id, address in row.addresses.items())
    if not found:
        raise AdminError(f"cluster {cluster} is unknown; clusterList shows what is registered")
    return [address for _, address in found]
