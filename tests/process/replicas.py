"""The stores of a running cluster's brokers, once all have saved the same bound."""

from __future__ import annotations

from localcluster.cluster import Cluster
from localcluster.waiting import NotYet, wait_for
from scripts.peers.waits import WAIT_MS
from sparkreplay.errors import LiveBrokerFailed
from sparkreplay.store.bound import checkpoint_bound
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.livebroker import view_of


def stores(cluster: Cluster) -> list[str]:
    return [cluster.layout.properties(name)["storePathRootDir"] for name in cluster.layout.broker_names]


async def until_all_hold_everything(cluster: Cluster) -> int:
    """Waits until all replicas have saved the same bound, the end of each log; returns it."""

    async def probe() -> int:
        bounds = {checkpoint_bound(LocalFiles(store)) for store in stores(cluster)}
        try:
            ends = {view_of(cluster.layout.address(name)).max_offset for name in cluster.layout.broker_names}
        except LiveBrokerFailed as error:
            raise NotYet(str(error)) from error
        if len(bounds | ends) != 1:
            raise NotYet(f"bounds {bounds}, ends {ends}")
        return bounds.pop()

    return await wait_for("one bound on all replicas", probe, WAIT_MS)
