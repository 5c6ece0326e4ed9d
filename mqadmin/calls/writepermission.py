"""The common part of wipeWritePerm and addWritePerm: one request to every name server of the list."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import nameservers
from mqadmin.command import required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report


def format_done(verb: str, broker_name: str, namesrv: str, topics: int) -> str:
    """The line of one name server."""
    return f"{verb} write perm of broker[{broker_name}] in name server[{namesrv}] OK, {topics}\n"


def set_everywhere(namesrv: str | None, broker_name: str, *, allowed: bool) -> None:
    """Set the write permission of `broker_name`, and print the result of each name server. Raises `AdminError` at the end if a
    name server failed, or none knows the broker set."""
    addresses = split_addresses(required_namesrv(namesrv))
    verb = "add" if allowed else "wipe"

    async def calls(client: AdminClient, report: Report) -> None:
        failed: list[AdminError] = []
        for address in addresses:
            try:
                if broker_name not in (await client.cluster_info(address)).broker_sets:
                    why = f"{address} knows no broker set {broker_name}; clusterList shows what is registered"
                    raise AdminError(why)
                topics = await nameservers.set_write_permission(client, address, broker_name, allowed=allowed)
            except AdminError as error:
                failed.append(error)
                continue
            report.text(format_done(verb, broker_name, address, topics))
            report.add("nameServers", {"address": address, "topics": topics})
        if failed:
            others = f" ({len(failed)} of {len(addresses)} name servers failed)" if len(addresses) > 1 else ""
            raise AdminError(f"{failed[0]}{others}")

    run(calls)
