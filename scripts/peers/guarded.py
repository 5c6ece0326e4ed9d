"""Secure clusters that are changed before their start: with plain ports, or without access control."""

from __future__ import annotations

from localcluster.cluster import Cluster


def let_plain_connections_in(cluster: Cluster) -> None:
    """Clients may connect with or without TLS. Servers use no TLS among themselves, so only their signatures prove who they
    are."""
    _replace(cluster, "tls.server.mode=enforcing", "tls.server.mode=permissive")


def check_nobody(cluster: Cluster) -> None:
    """Turn access control off. Servers and clients still sign."""
    for key in ("authenticationEnabled", "authorizationEnabled"):
        _replace(cluster, f"{key}=true", f"{key}=false")


def _replace(cluster: Cluster, before: str, after: str) -> None:
    for name in cluster.layout.names:
        file = cluster.directory / f"{name}.conf"
        file.write_text(file.read_text().replace(before, after))
