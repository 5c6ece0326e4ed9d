"""A log with each entry at one position on all members: reserved, readable and dropped entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from dledger.node.node import DLedgerNode
from dledger.node.proposals import Proposals
from dledger.raft.actions import Role
from dledger.raft.entries import block_of
from dledger.raft.errors import EntryMisplaced, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.messages import PushRequest, Request
from dledger.storage.entry import ENTRY_HEADER_BYTES
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.mutants.raft import planted
from simulation.raft.group import SETTINGS, RaftGroup
from simulation.raft.member import MemberApp
from simulation.raft.positions import placed_body

T = TypeVar("T")

POSITIONS = replace(SETTINGS, same_positions=True, data_file_bytes=4096, checkpoint_interval_ms=200)


PLACED = block_of(3, [b"placed", b"too"])


def started(world: World, **changes: Any) -> RaftGroup:
    group = RaftGroup(world, 3, settings=replace(POSITIONS, **changes))
    group.start_all()
    world.run_until(lambda: len(group.active()) == 1, 5_000)
    return group


def leader_of(group: RaftGroup) -> tuple[Node, DLedgerNode]:
    (node,) = group.active()
    member = group.member(node)
    assert member is not None
    return node, member


def in_a_turn(world: World, node: Node, call: Callable[[], T]) -> T:
    """Calls `call` in a turn of the loop of `node`; returns or raises its outcome."""
    done: list[T | BaseException] = []

    async def turn() -> None:
        try:
            done.append(call())
        except Exception as error:
            done.append(error)

    node.spawn(turn())
    world.run_until(lambda: bool(done), 100)
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def filled(positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    return [placed_body(at, b"").ljust(size, b"x") for at, size in zip(positions, sizes, strict=True)]


def append_now(member: DLedgerNode, *sizes: int) -> list[int]:
    """Appends entries of these sizes; each body contains its own position."""
    positions = member.reserve(sizes)
    member.append_reserved(filled(positions, sizes))
    return positions


def append(group: RaftGroup, member: DLedgerNode, *sizes: int) -> list[int]:
    return in_a_turn(group.world, group.world.nodes[member.self_id], lambda: append_now(member, *sizes))


def caught_up(group: RaftGroup) -> bool:
    """Whether all members have the complete log readable."""
    members = group.members()
    return len(members) == len(group.nodes) and all(
        member.readable() == members[0].readable() and member.readable()[1] == member.log_end()
        for member in members
    )


def test_entries_are_stored_at_their_reserved_positions_on_all_members() -> None:
    with World(1) as world:
        group = started(world)
        node, member = leader_of(group)
        end = member.log_end()

        def two() -> list[int]:
            first = append_now(member, 100, 700)
            assert first == [end, end + ENTRY_HEADER_BYTES + 100]
            assert member.log_end() == first[1] + ENTRY_HEADER_BYTES + 700, "gathered entries count"
            return append_now(member, *[1000] * 8)

        more = in_a_turn(world, node, two)
        assert 4096 in more and member.last_index == 10, "an entry that does not fit begins the next file"
        world.run_until(lambda: caught_up(group), 1_000)
        index, end = member.readable()
        assert (index, end) == (10, more[-1] + ENTRY_HEADER_BYTES + 1000)
        for each in group.members():
            assert each.applied_index == 10
            file = each.data.file_at(4096)
            assert file is not None and file.name == f"{4096:020d}"
            assert bytes(file.view()[ENTRY_HEADER_BYTES : ENTRY_HEADER_BYTES + 11]) == placed_body(4096, b"")


def test_reserved_and_proposed_entries_of_one_turn_share_a_push_and_a_sync() -> None:
    with World(2) as world:
        group = started(world)
        node, member = leader_of(group)
        pushed, outcomes = list[int](), list[Any]()
        ask = member._transport.ask

        def asking(to: str, request: Request) -> None:
            if isinstance(request, PushRequest) and request.entries:
                pushed.append(len(request.entries))
            ask(to, request)

        async def all_of_it() -> None:
            append_now(member, 50)
            outcomes.append((await member.propose([b"one", b"two"])).first_index)

        async def more() -> None:
            assert append_now(member, 60, 70)[0] == member.log_end() - 2 * ENTRY_HEADER_BYTES - 130

        member._transport.ask = asking  # type: ignore[method-assign]
        node.spawn(all_of_it())
        node.spawn(more())
        world.run_until(lambda: bool(outcomes), 1_000)
        assert (pushed, outcomes) == ([5, 5], [2])


def test_a_reservation_beyond_the_limits_is_refused() -> None:
    with World(3) as world:
        group = started(world, pending_proposals_max=5, pending_bytes_max=1000)
        node, member = leader_of(group)
        with pytest.raises(ValueError, match="1 to 1024 bytes, not 0"):
            member.reserve([10, 0])
        with pytest.raises(ValueError, match="not 1025"):
            member.reserve([1025])
        with pytest.raises(TooManyProposals, match="0 entries"):
            member.reserve([1] * 6)

        def too_much() -> None:
            append_now(member, 500, 400)
            with pytest.raises(TooManyProposals, match="996 bytes"):
                member.reserve([5])

        in_a_turn(world, node, too_much)
        world.run_until(lambda: caught_up(group), 1_000)
        append(group, member, 15)
        follower = next(each for each in group.members() if each is not member)
        with pytest.raises(NotLeader):
            follower.reserve([5])
        world.run_until(lambda: caught_up(group), 1_000)
        node.disk.stall(60_000)
        append(group, member, 900)
        world.run_for_ms(500)
        assert member.applied_index == member.last_index, "the others have committed it"
        with pytest.raises(TooManyProposals):
            member.reserve([500])


def test_no_position_is_reserved_during_a_leadership_transfer() -> None:
    with World(4) as world:
        group = started(world)
        node, member = leader_of(group)
        assert member.core is not None
        for each in group.nodes:
            if each is not node:
                world.network.cut(node.host, each.host)
        node.spawn(member.transfer_leadership())
        world.run_until(lambda: member.core is not None and member.core.transfers, 100)
        with pytest.raises(NotLeader):
            member.reserve([5])


def test_gathered_entries_keep_their_positions_through_a_failed_transfer() -> None:
    """A leader with a hanging disk begins a transfer between gathering and the end of the turn."""
    with World(3) as world:
        group = started(world)
        node, leader = leader_of(group)
        target = next(each for each in group.nodes if each is not node)
        target.disk.stall(4_000)  # it cannot vote for itself, so it does not take over

        def gather() -> tuple[list[int], list[bytes]]:
            positions = leader.reserve([100, 200])
            bodies = filled(positions, [100, 200])
            leader.append_reserved(bodies)
            assert leader.core is not None
            core = leader.core
            leader._take(lambda now_ms: core.transfer_leadership(target.name, now_ms))
            return positions, bodies

        term = leader.term
        positions, bodies = in_a_turn(world, node, gather)
        end = positions[-1] + ENTRY_HEADER_BYTES + 200
        world.run_until(lambda: leader.readable()[1] >= end, 10_000)
        assert leader.term == term
        for position, body in zip(positions, bodies, strict=True):
            stored = leader.data.rest_of_file(position)[ENTRY_HEADER_BYTES : ENTRY_HEADER_BYTES + len(body)]
            assert bytes(stored) == body


def test_entries_gathered_in_an_ended_term_are_not_appended() -> None:
    with World(5) as world:
        group = started(world)
        node, member = leader_of(group)
        core = member.core
        assert core is not None
        before, end = member.last_index, member.log_end()

        def lose() -> None:
            append_now(member, 50)
            assert member.log_end() > end
            core.become_follower(core.term + 1, None)
            member._take(lambda now_ms: core.actions())
            member._append_gathered()
            assert (member.last_index, member.log_end()) == (before, end)

        in_a_turn(world, node, lose)
        world.run_until(lambda: len(group.active()) == 1 and caught_up(group), 10_000)
        _, later = leader_of(group)
        append(group, later, 60)
        world.run_until(lambda: caught_up(group), 1_000)


def test_a_body_with_another_position_is_not_appended() -> None:
    with World(6) as world:
        group = started(world)
        node, member = leader_of(group)

        def tries() -> None:
            (at,) = member.reserve([20])
            with pytest.raises(AssertionError, match="other positions were reserved"):
                member.append_reserved(filled([at + 1], [20]))
            with pytest.raises(AssertionError, match="other positions were reserved"):
                member.append_reserved(filled([at], [20]))
            assert member.reserve([21]) == [at]
            with pytest.raises(AssertionError, match="other positions were reserved"):
                member.append_reserved(filled([at], [20]))
            assert append_now(member, 20) == [at]
            assert member.reserve([]) == []
            member.append_reserved([])

        in_a_turn(world, node, tries)


def test_a_member_that_would_store_an_entry_at_another_position_ends_first() -> None:
    with World(7) as world:
        group = started(world)
        leader, member = leader_of(group)
        odd = next(node for node in group.nodes if node is not leader)
        group.empty(odd)
        group.settings = replace(POSITIONS, data_file_bytes=8192)
        group.start(odd)
        places = append(group, member, *[900] * 8)
        misplaced = places.index(4096)
        world.run_until(lambda: not odd.running, 2_000)
        error = odd.failure
        assert isinstance(error, EntryMisplaced) and "mappedFileSizeCommitLog" in str(error)
        assert (error.position, error.wanted) == (4096, places[misplaced - 1] + ENTRY_HEADER_BYTES + 900)
        assert not odd.disk.durably_holds(f"dledger-{odd.name}/data/", placed_body(4096, b""))


def test_an_opened_member_does_not_take_part_until_it_is_started() -> None:
    with World(8) as world:
        group = started(world)
        leader, member = leader_of(group)
        append(group, member, *[300] * 20)
        world.run_until(lambda: caught_up(group), 1_000)
        world.run_for_ms(300)
        node = next(each for each in group.nodes if each is not leader)
        known = group.member(node)
        assert known is not None
        readable = known.readable()
        node.kill()
        opened: list[DLedgerNode] = []

        async def open_only(self: MemberApp) -> None:
            await self.node.open()
            self.check.positions.opened(self.node)
            await self.server.start()
            opened.append(self.node)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemberApp, "start", open_only)
            group.start(node)
            world.run_until(lambda: bool(opened), 1_000)
        (each,) = opened
        assert each.readable() == readable and each.applied_index == readable[0], (
            "the position of its checkpoint"
        )
        assert each.data.rest_of_file(0)[:ENTRY_HEADER_BYTES] and each.log_begin() == 0
        sent, core = list[object](), each.core
        assert core is not None
        each._transport.ask = lambda to, request: sent.append(request)  # type: ignore[method-assign]
        append(group, member, 50)
        world.run_for_ms(5_000)
        assert not sent and (each.term, each.leader_id, each.last_index) == (core.term, None, readable[0])
        del each._transport.ask  # type: ignore[attr-defined]
        app = node.app
        assert isinstance(app, MemberApp)
        node.spawn(each.start())
        app.core_number = group.check.new_core(each)
        world.run_until(lambda: caught_up(group), 3_000)
        assert member.role is Role.LEADER, "a returning member does not start an election at once"


def test_unneeded_files_are_deleted_and_a_lagging_member_gets_the_leaders_log_start() -> None:
    with World(9) as world:
        group = started(world)
        leader, member = leader_of(group)
        append(group, member, *[900] * 20)
        world.run_until(lambda: caught_up(group), 1_000)
        done: list[str] = []

        async def begin() -> None:
            for position in (8192, 4096):
                await member.advance_log_start(position)
                done.append(f"{member.log_begin()}: {member.data.directory.names()[0][0]}")

        leader.spawn(begin())
        world.run_until(lambda: len(done) == 2, 1_000)
        assert done == [f"8192: {8192:020d}"] * 2
        (emptied,) = [node for node in group.nodes if node is not leader][:1]
        group.empty(emptied)
        group.start(emptied)
        world.run_until(lambda: caught_up(group), 5_000)
        back = group.member(emptied)
        assert back is not None and (back.log_begin(), back.data.begin) == (8192, 8192)
        append(group, member, *[800] * 9)
        world.run_until(lambda: caught_up(group), 1_000)
        for node in group.nodes:
            node.kill(power_cut=True)
            group.start(node)
        world.run_until(lambda: len(group.active()) == 1 and caught_up(group), 5_000)
        assert sorted(each.log_begin() for each in group.members()) == [0, 8192, 8192]


def test_a_full_disk_does_not_move_the_log_start() -> None:
    with World(10) as world:
        group = started(world)
        leader, member = leader_of(group)
        append(group, member, *[900] * 20)
        world.run_until(lambda: caught_up(group), 1_000)
        outcomes: list[str] = []

        async def begin(position: int) -> None:
            try:
                await member.advance_log_start(position)
                outcomes.append("done")
            except (OSError, OutcomeUnknown) as error:
                outcomes.append(type(error).__name__)

        leader.disk.fail_next("replace", OSError(28, "No space left on device"))
        leader.spawn(begin(8192))
        world.run_until(lambda: bool(outcomes), 1_000)
        assert (outcomes, member.log_begin()) == (["OSError"], 0)
        leader.spawn(begin(8192))
        world.run_until(lambda: len(outcomes) == 2, 1_000)
        assert (outcomes[1], member.log_begin()) == ("done", 8192)
        leader.disk.stall(60_000)
        leader.spawn(begin(12288))
        world.run_for_ms(10)
        leader.spawn(member.stop())
        world.run_until(lambda: len(outcomes) == 3, 1_000)
        assert outcomes[2] == "OutcomeUnknown"


def test_reserved_entries_of_another_term_are_dropped_and_proposals_are_not() -> None:
    async def gathered() -> Proposals:
        proposals = Proposals(SETTINGS)
        proposals.gather_reserved(PLACED)
        proposals.gather([b"waited for"], 3)
        return proposals

    assert asyncio.run(gathered()).append(7, 3) == [PLACED, b"waited for"]
    assert asyncio.run(gathered()).append(7, 4) == [b"waited for"]
    with planted("lands-in-a-later-term"):
        assert asyncio.run(gathered()).append(7, 4) != [b"waited for"]
