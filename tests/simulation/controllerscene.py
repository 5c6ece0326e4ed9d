"""Three controllers over three scripted brokers, all in sync, and requests to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.controller import ElectMasterHeader
from simulation.controllers.scriptedbroker import BROKER_NAME, CLUSTER_NAME
from simulation.controllers.setmodel import SetState
from simulation.controllers.world import PEERS, ControllerWorld
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World


@contextmanager
def whole_cluster(seed: int, **settings: object) -> Iterator[ControllerWorld]:
    """All brokers are in the SyncStateSet. `settings` are the controllers' own."""
    with World(seed) as world:
        cluster = ControllerWorld(world, **settings)
        cluster.start_all()
        world.run_until(cluster.whole, limit_ms=30_000)
        yield cluster


def survive_faults(cluster: ControllerWorld) -> None:
    """A minute of faults, until all brokers are in sync again."""
    cluster.world.run(cluster.misbehave(60_000), limit_ms=200_000)
    cluster.world.run_until(cluster.whole, limit_ms=60_000)


def recorded(cluster: ControllerWorld) -> SetState:
    return cluster.checker.state(BROKER_NAME)


def master_of(cluster: ControllerWorld) -> Node:
    master = cluster.master()
    assert master is not None
    return master


def leader_of(cluster: ControllerWorld) -> Node:
    leader = cluster.leader()
    assert leader is not None
    return leader


def asked(cluster: ControllerWorld, node: Node, request: RemotingCommand) -> RemotingCommand:
    """The answer of the controller on `node`."""

    async def call() -> RemotingCommand:
        client = RemotingClient(clock=SimulatedClock(node))
        ask = cluster.checker.sent("a test", request)
        try:
            reply = await client.call(PEERS[node.name], request)
            cluster.checker.answered(ask, reply)
            return reply
        finally:
            await client.close()

    return cluster.world.run(call())


def elect(cluster: ControllerWorld, broker_id: int, *, designate: bool) -> RemotingCommand:
    header = ElectMasterHeader(BROKER_NAME, CLUSTER_NAME, broker_id, designate)
    request = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
    return asked(cluster, leader_of(cluster), request)
