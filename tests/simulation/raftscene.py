"""A simulated group with a leader, and proposals to it."""

from __future__ import annotations

from typing import Any

from dledger.node.node import DLedgerNode
from dledger.raft.errors import NotLeader, OutcomeUnknown, TooManyProposals
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup


def started(world: World, size: int = 3) -> RaftGroup:
    group = RaftGroup(world, size)
    group.start_all()
    world.run_until(lambda: len(group.active()) == 1 and group.agreed(), 5_000)
    return group


def leader_of(group: RaftGroup) -> tuple[Node, DLedgerNode]:
    (node,) = group.active()
    member = group.member(node)
    assert member is not None
    return node, member


def others(group: RaftGroup, node: Node) -> list[Node]:
    return [each for each in group.nodes if each is not node]


def proposing(node: Node, member: DLedgerNode, *bodies: bytes, timeout_ms: int = 3000) -> list[Any]:
    """Starts a proposal in the node's process; its outcome is appended to the list."""
    outcome: list[Any] = []

    async def propose() -> None:
        try:
            outcome.append((await member.propose(list(bodies), timeout_ms)).results)
        except (NotLeader, OutcomeUnknown, TooManyProposals) as error:
            outcome.append(error)

    node.spawn(propose())
    return outcome


def commit(group: RaftGroup, count: int) -> None:
    """Proposes `count` entries to the leader and waits until they are committed."""
    outcome = proposing(*leader_of(group), *(b"%d" % number for number in range(count)))
    group.world.run_until(lambda: bool(outcome), 2_000)
    assert len(outcome[0]) == count
