"""Members that read frames and members of the earlier version in one group, as during a rolling upgrade."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.node.messageframe import is_framed
from dledger.node.node import DLedgerNode
from dledger.node.transport import PeerTransport
from dledger.raft.messages import MessageCode
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup
from simulation.raft.oldversion import OldConversation


def member_of(group: RaftGroup, node: Node) -> DLedgerNode:
    member = group.member(node)
    assert member is not None
    return member


def conversation(group: RaftGroup, node: Node) -> PeerTransport:
    return member_of(group, node)._transport


def append(group: RaftGroup, count: int) -> None:
    [leader] = group.active()
    done: list[Any] = []

    async def propose() -> None:
        for number in range(count):
            done.append(await member_of(group, leader).propose([b"%d" % number]))

    leader.spawn(propose())
    group.world.run_until(lambda: len(done) == count and group.agreed(), 10_000)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The address of each PUSH with entries, and whether it was framed."""
    found: list[tuple[str, bool]] = []
    call = RemotingClient.call

    async def watched(
        self: RemotingClient, address: str, command: RemotingCommand, timeout_ms: int = 3000
    ) -> RemotingCommand:
        body = bytes(command.body or b"")
        if command.code == MessageCode.PUSH and b'"APPEND"' in body:
            found.append((address, is_framed(memoryview(body))))
        return await call(self, address, command, timeout_ms)

    monkeypatch.setattr(RemotingClient, "call", watched)
    return found


def test_members_of_one_version_send_entries_in_frames(sent: list[tuple[str, bool]]) -> None:
    with World(3) as world:
        group = RaftGroup(world, 3)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        append(group, 20)
        assert sent and all(framed for _, framed in sent)


def test_a_group_is_upgraded_and_downgraded_member_by_member(sent: list[tuple[str, bool]]) -> None:
    with World(4) as world:
        group = RaftGroup(world, 3)
        group.old.update(group.peers)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        for version, wanted in (("new", True), ("old", False)):
            for node in group.nodes:
                node.kill()
                group.old ^= {node.name}
                group.start(node)
                world.run_until(group.agreed, 5_000)
                append(group, 10)
            sent.clear()
            append(group, 10)
            assert {framed for _, framed in sent} == {wanted}, version


def test_a_downgraded_member_gets_one_frame_and_then_json(sent: list[tuple[str, bool]]) -> None:
    with World(5) as world:
        group = RaftGroup(world, 3)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        append(group, 3)
        [leader] = group.active()
        node = next(each for each in group.nodes if each is not leader)
        node.kill()
        group.old.add(node.name)
        group.start(node)
        world.run_until(lambda: group.member(node) is not None, 5_000)
        conversation(group, leader).reads_frames.add(node.name)  # as if it had sent nothing since
        sent.clear()
        append(group, 3)
        old = conversation(group, node)
        assert isinstance(old, OldConversation) and old.frames_refused <= 1
        to_it = [framed for address, framed in sent if address == group.peers[node.name]]
        assert False in to_it and True not in to_it[to_it.index(False) :]
