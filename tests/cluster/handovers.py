"""Hand-overs of a set's mastership to another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.switchover.forwardingstate import Stage
from simulation.kernel.node import Node
from tests.cluster.brokerset import Cluster


def another(cluster: Cluster, *but: Node) -> int | None:
    """The id of a broker that is neither the master nor one of `but`."""
    nodes = [node for node in cluster.brokers if node not in (cluster.master, *but)]
    return cluster.app(nodes[0]).membership.broker_id


def successor_of(cluster: Cluster, broker_id: int | None) -> Node:
    return next(node for node in cluster.brokers if cluster.app(node).membership.broker_id == broker_id)


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - the simulated world has no events for tests
        await asyncio.sleep(0.0002)


def stage_of(cluster: Cluster, node: Node) -> Stage:
    return cluster.app(node).requests.forwarding.state.stage
