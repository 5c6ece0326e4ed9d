"""The port at which a server of a cluster serves its pages for metrics and probes."""

from __future__ import annotations

from localcluster.cluster import Cluster


def pages_port(cluster: Cluster, name: str) -> int:
    """A port outside the leased block of the cluster and below those of outgoing connections."""
    return int(cluster.layout.address(name).rpartition(":")[2]) - 12_000
