"""Finds the brokers that a command addresses: the broker in -b, or those of the cluster in -c."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import required_namesrv
from mqadmin.errors import AdminError


async def wanted_masters(
    client: AdminClient, broker: str | None, namesrv: str | None, cluster: str | None
) -> list[str]:
    """The address `broker`, or the addresses of all masters of `cluster`. Raises `AdminError` if there is none."""
    if broker:
        return [broker]
    return await client.masters(required_namesrv(namesrv), cluster or "")


async def members_of(client: AdminClient, namesrv: str | None, cluster: str | None) -> list[str]:
    """The addresses of all brokers of `cluster`, masters and slaves. Raises `AdminError` if there is none."""
    sets = (await client.cluster_info(required_namesrv(namesrv))).sets_of(cluster)
    addresses = [address for brokers in sets for address in brokers.addresses.values()]
    if not addresses:
        raise AdminError(f"cluster {cluster} is unknown; clusterList shows what is registered")
    return addresses
