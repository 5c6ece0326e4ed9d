"""Members of a group on simulated hosts: the node around the core, its disk and its connections."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from dledger.node.applying import APPLIED_A_TURN
from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.actions import PersistThenSend, Role
from dledger.raft.errors import NotLeader, OutcomeUnknown
from dledger.raft.messages import PushRequest, PushType, Request, ResultCode, TransferRequest, VoteRequest
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from simulation.raft.check import entries_of
from simulation.raft.group import SETTINGS, RaftGroup
from simulation.raft.member import MemberApp
from tests.simulation.raftscene import commit, leader_of, others, proposing, started


def test_three_members_elect_a_serving_leader_within_two_seconds() -> None:
    with World(1) as world:
        group = RaftGroup(world, 3)
        group.start_all()
        world.run_until(lambda: len(group.active()) == 1, 2_500)
        node, member = leader_of(group)
        world.run_for_ms(500)
        for each in group.members():
            assert (each.leader_id, each.leader_address) == (node.name, f"{node.host}:9877")
        app = node.app
        assert isinstance(app, MemberApp) and app.roles[-1] == (Role.LEADER, member.term)


def test_a_group_of_one_serves_at_once_and_again_after_a_power_cut() -> None:
    with World(2) as world:
        group = RaftGroup(world, 1)
        group.start_all()
        world.run_until(lambda: bool(group.active()), 100)
        outcome = proposing(*leader_of(group), b"x", b"y")
        world.run_until(lambda: bool(outcome), 100)
        assert outcome == [[1, 2]]
        group.nodes[0].kill(power_cut=True)
        group.start_all()
        world.run_until(lambda: bool(group.active()), 100)
        _, member = leader_of(group)
        assert member.core is not None
        assert [entry.body for entry in entries_of(member).values()] == [b"", b"x", b"y", b""]


def test_a_proposal_returns_its_apply_result_and_is_on_a_majority_of_disks() -> None:
    with World(3) as world:
        group = started(world)
        outcome = proposing(*leader_of(group), b"first", b"second")
        world.run_until(lambda: bool(outcome), 500)
        assert outcome == [[1, 2]]
        for node in group.nodes:
            node.kill(power_cut=True)
        holders = [
            node
            for node in group.nodes
            if b"second" in (node.disk.content(f"dledger-{node.name}/data/{0:020d}") or b"")
        ]
        assert len(holders) >= 2


def test_proposals_of_one_turn_share_one_push_per_member_and_one_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(33) as world:
        group = started(world)
        node, member = leader_of(group)
        pushed, synced = list[int](), list[int]()
        ask, persist = member._transport.ask, member.store.persist

        def asking(to: str, request: Request) -> None:
            if isinstance(request, PushRequest) and request.entries:
                pushed.append(len(request.entries))
            ask(to, request)

        async def persisting(
            steps: Sequence[PersistThenSend], meanwhile: Callable[[], Awaitable[None]]
        ) -> None:
            synced.append(sum(len(step.entries) for step in steps))
            await persist(steps, meanwhile)

        monkeypatch.setattr(member._transport, "ask", asking)
        monkeypatch.setattr(member.store, "persist", persisting)
        outcomes = [proposing(node, member, b"%d" % number, b"more") for number in range(100)]
        world.run_until(lambda: all(outcomes), 1_000)
        results = [outcome[0] for outcome in outcomes]
        assert sorted(index for indexes in results for index in indexes) == list(range(1, 201))
        assert all(second == first + 1 for first, second in results)
        assert (pushed, synced) == ([200, 200], [200])


def test_entries_committed_at_once_are_applied_in_turns_and_reads_wait_for_all() -> None:
    with World(35) as world:
        group = started(world)
        node, member = leader_of(group)
        applied, read_at = [member.applied_index], list[int]()
        world.after_each_step(lambda: applied.append(member.applied_index))
        outcomes = [proposing(node, member, b"%d" % number) for number in range(500)]

        async def read() -> None:
            await member.read_barrier()
            read_at.append(member.applied_index)

        def read_once_committed() -> None:
            assert member.core is not None
            if member.core.committed_index >= 500 and not reading:
                reading.append(member.applied_index)
                node.spawn(read())

        reading: list[int] = []
        world.after_each_step(read_once_committed)
        world.run_until(lambda: all(outcomes) and bool(read_at), 1_000)
        assert max(after - before for before, after in pairwise(applied)) <= APPLIED_A_TURN
        assert reading[0] < 500 <= read_at[0], "the read began in between"
        world.run_until(lambda: all(one.applied_index >= 500 for one in group.members()), 1_000)


FORGETFUL = replace(SETTINGS, recent_bytes_max=0)


def test_a_starting_member_replays_its_log_in_turns_and_votes_meanwhile() -> None:
    with World(36) as world:
        group = RaftGroup(world, 3, settings=FORGETFUL)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        commit(group, 2_000)
        world.run_for_ms(FORGETFUL.checkpoint_interval_ms + 1_000)
        node, _ = leader_of(group)
        late = others(group, node)[0]
        late.kill(power_cut=True)
        group.start(late)
        world.run_until(lambda: group.member(late) is not None, 1_000)
        member = group.member(late)
        assert member is not None and member.applied_index < 2_000
        applied, replayed = [member.applied_index], list[int]()
        world.after_each_step(lambda: applied.append(member.applied_index))

        async def replay() -> None:
            await member.replayed()
            replayed.append(member.applied_index)

        late.spawn(replay())
        world.run_until(lambda: bool(replayed), 1_000)
        assert max(after - before for before, after in pairwise(applied)) <= APPLIED_A_TURN
        assert replayed[0] >= 2_000
        assert member.core is not None and not member.core.log.holds(5)


def test_a_member_with_much_to_replay_votes_and_does_not_lead() -> None:
    with World(43) as world:
        group = RaftGroup(world, 3, settings=FORGETFUL)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        commit(group, 4_000)
        world.run_for_ms(FORGETFUL.checkpoint_interval_ms + 1_000)
        node, _ = leader_of(group)
        late, ready = sorted(others(group, node), key=lambda each: each.name)
        late.kill()
        late.disk.read_us = (400_000, 400_000)
        group.start(late)
        world.run_for_ms(2_500)
        member = group.member(late)
        assert member is not None and member.applied_index < 4_000
        node.kill()
        world.run_until(lambda: group.active() == [ready], 2_500)
        assert member.applied_index < 4_000 and member.leader_id == ready.name
        late.disk.read_us = (50, 400)
        world.run_until(lambda: member.applied_index > 4_000, 3_000)


def test_a_follower_far_behind_gets_entries_read_from_the_leaders_disk() -> None:
    with World(37) as world:
        group = RaftGroup(world, 3, settings=replace(FORGETFUL, push_entries_max=100))
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, member = leader_of(group)
        away = others(group, node)[0]
        away.kill()
        commit(group, 1_000)
        assert member.core is not None and member.core.log.recent_from > 900
        group.start(away)
        world.run_until(group.agreed, 3_000)
        assert (
            entries_of(group.members()[0]) == entries_of(group.members()[1]) == entries_of(group.members()[2])
        )


def test_a_snapshot_is_installed_while_entries_are_appended() -> None:
    """Newer snapshots are made meanwhile, and the log behind them is deleted."""
    settings = replace(
        FORGETFUL,
        snapshot_entries=40,
        snapshot_margin_entries=100,
        snapshot_chunk_bytes=1,
        data_file_bytes=4096,
    )
    with World(39) as world:
        group = RaftGroup(world, 3, settings=settings)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, member = leader_of(group)
        away = others(group, node)[0]
        away.kill()
        core = member.core
        assert core is not None
        while core.log.first_index < 100:
            commit(group, 50)

        async def load() -> None:
            while True:
                await asyncio.gather(asyncio.sleep(0.002), member.propose([b"more" * 20], 3000))

        world.network.delay(node.host, away.host, 2, 2)
        node.spawn(load())
        group.start(away)
        world.run_until(lambda: bool(core.progress[away.name].install.offset), 2_000)
        began = member.applied_index
        world.run_until(lambda: group.check.snapshots["installed"] > 0, 2_000)
        assert member.applied_index > began + 10
        late = group.member(away)
        assert late is not None
        world.run_until(lambda: late.applied_index > member.applied_index - 10, 1_000)
        before, made = member.applied_index, member.store.snapshot_index
        world.run_for_ms(300)
        assert member.applied_index > before + 60 and member.store.snapshot_index > made
        assert late.applied_index > member.applied_index - 10
        assert group.check.snapshots["installed"] == 1


def test_a_leader_survives_a_damaged_index_of_entries_that_a_follower_needs() -> None:
    with World(38) as world:
        group = RaftGroup(world, 3, settings=FORGETFUL)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, _ = leader_of(group)
        away = others(group, node)[0]
        away.kill()
        commit(group, 100)
        node.disk.flip_bit(f"dledger-{node.name}/index/{0:020d}", 32 * 50 + 20)
        group.start(away)
        world.run_until(group.agreed, 10_000)
        assert node.running and away.running


def test_a_proposal_not_appended_before_the_leader_is_deposed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(34) as world:
        group = started(world)
        node, member = leader_of(group)
        append = member._append_gathered

        def deposed_before() -> None:
            assert member.core is not None
            assert member.last_index == member.core.log.last_index + 1
            member._suppress_elections(4_000)
            append()

        monkeypatch.setattr(member, "_append_gathered", deposed_before)
        outcome = proposing(node, member, b"late")
        world.run_until(lambda: bool(outcome), 1_000)
        assert isinstance(outcome[0], NotLeader)
        world.run_until(group.agreed, 5_000)
        assert b"late" not in {entry.body for entry in group.check.committed_log}


def test_a_follower_answers_proposals_with_the_leaders_name() -> None:
    with World(4) as world:
        group = started(world)
        node, _ = leader_of(group)
        follower = others(group, node)[0]
        member = group.member(follower)
        assert member is not None
        outcome = proposing(follower, member, b"x")
        world.run_for_ms(5)
        assert isinstance(outcome[0], NotLeader) and outcome[0].leader_id == node.name


def test_a_deposed_leader_answers_the_proposals_that_it_had_committed() -> None:
    with World(39) as world:
        group = started(world)
        node, member = leader_of(group)
        outcomes = [proposing(node, member, b"%d" % number) for number in range(500)]
        assert member.core is not None
        world.run_until(lambda: member.core.committed_index >= 500, 1_000)  # type: ignore[union-attr]
        assert member.applied_index < 500
        member._suppress_elections(4_000)
        world.run_until(lambda: all(outcomes), 1_000)
        assert [outcome[0] for outcome in outcomes] == [[index] for index in range(1, 501)]


def test_proposals_of_a_deposed_leader_fail_at_once_and_are_not_repeated() -> None:
    with World(5) as world:
        group = started(world)
        node, member = leader_of(group)
        for other in others(group, node):
            world.network.cut(node.host, other.host)
        outcome = proposing(node, member, b"lost", timeout_ms=60_000)
        world.run_until(lambda: bool(outcome), 3_000)
        assert isinstance(outcome[0], OutcomeUnknown) and not member.is_active
        world.network.heal()
        world.run_until(group.agreed, 5_000)
        assert b"lost" not in {entry.body for entry in group.check.committed_log}


def test_a_partitioned_leader_serves_no_read_though_it_still_leads() -> None:
    with World(6) as world:
        group = started(world)
        node, member = leader_of(group)
        outcome: list[str] = []

        async def read() -> None:
            try:
                await member.read_barrier(500)
                outcome.append("served")
            except NotLeader:
                outcome.append("refused")

        node.spawn(read())
        world.run_until(lambda: bool(outcome), 100)
        for other in others(group, node):
            world.network.cut(node.host, other.host)
        node.spawn(read())
        world.run_until(lambda: len(outcome) == 2, 600)
        assert outcome == ["served", "refused"]


def test_a_leader_whose_disk_fails_becomes_silent_and_is_replaced() -> None:
    with World(7) as world:
        group = started(world)
        node, member = leader_of(group)
        node.disk.fail_next("sync", OSError(errno.EIO, "Input/output error"))
        outcome = proposing(node, member, b"x")
        world.run_until(lambda: not node.running, 500)
        assert isinstance(node.failure, OSError)
        world.run_until(lambda: bool(group.active()), 3_000)
        group.start(node)
        world.run_until(group.agreed, 5_000)
        committed = [[entry.index] for entry in group.check.committed_log if entry.body == b"x"]
        assert outcome in ([], committed) or isinstance(outcome[0], OutcomeUnknown)


def test_a_leader_with_a_hanging_disk_commits_by_the_others_and_hands_over() -> None:
    with World(8) as world:
        group = started(world)
        node, member = leader_of(group)
        node.disk.stall(20_000)
        outcome = proposing(node, member, b"x")
        world.run_until(lambda: bool(outcome), 100)
        assert outcome == [[1]]
        world.run_until(lambda: any(each is not node for each in group.active()), 4_000)
        assert not member.is_active


@pytest.mark.parametrize("sync_ms", [250, 350])
def test_a_group_on_slow_disks_always_has_a_leader(sync_ms: int) -> None:
    with World(14) as world:
        group = RaftGroup(world, 3)
        for node in group.nodes:
            node.disk.slow_down(sync_ms, sync_ms)
        group.start_all()
        world.run_until(lambda: bool(group.active()), 8_000)
        node, member = leader_of(group)
        term = member.term
        for number in range(20):
            outcome = proposing(node, member, b"%d" % number)
            world.run_until(lambda outcome=outcome: bool(outcome), 3_000)  # type: ignore[misc]
            assert isinstance(outcome[0], list)
        assert (group.active(), member.term) == ([node], term)


def test_a_killed_leader_is_replaced_long_before_an_election_timeout() -> None:
    with World(15) as world:
        group = started(world)
        node, _ = leader_of(group)
        node.kill()
        world.run_until(lambda: bool(group.active()), 400)


def test_a_leader_hands_over_within_some_round_trips_and_proposals_wait() -> None:
    with World(17) as world:
        group = started(world)
        node, member = leader_of(group)
        target = others(group, node)[1]
        proposing(node, member, *(b"%d" % number for number in range(20)))
        codes: list[ResultCode] = []

        async def hand_over() -> None:
            codes.append(await member.transfer_leadership(target.name))

        node.spawn(hand_over())
        world.run_until(lambda: member.core is not None and member.core.transfers, 10)
        held = proposing(node, member, b"held")
        world.run_until(lambda: group.active() == [target], 60)
        world.run_until(lambda: bool(codes) and bool(held), 60)
        assert codes == [ResultCode.SUCCESS]
        assert isinstance(held[0], NotLeader) and held[0].leader_id == target.name
        assert b"held" not in {entry.body for entry in group.check.committed_log}


def test_a_leader_that_cannot_hand_over_keeps_leading_and_commits_waiting_ones() -> None:
    with World(18) as world:
        group = started(world)
        node, member = leader_of(group)
        behind, other = others(group, node)
        behind.disk.stall(5_000)
        proposing(node, member, b"missed")
        world.run_for_ms(20)
        codes: list[ResultCode] = []

        async def hand_over() -> None:
            codes.append(await member.transfer_leadership(behind.name))
            codes.append(await member.transfer_leadership("nobody"))

        node.spawn(hand_over())
        world.run_for_ms(10)
        held = proposing(node, member, b"held")
        world.run_until(lambda: len(codes) == 2 and bool(held), 1_300)
        assert codes == [ResultCode.TAKE_LEADERSHIP_FAILED, ResultCode.UNKNOWN_MEMBER]
        assert held == [[2]] and group.active() == [node]


def test_an_operator_makes_the_leader_transfer_its_leadership() -> None:
    with World(19) as world:
        group = started(world)
        node, member = leader_of(group)
        target = others(group, node)[0]
        client = RemotingClient(clock=SimulatedClock(node))

        def asked(whom: str, transferee: str) -> int:
            wish = TransferRequest(-1, whom, transferee, -1)
            body = encode_request(Envelope("g", "", whom), wish)
            command = RemotingCommand.request(51005, body=body)
            reply = world.run(client.call(group.peers[whom], command))
            code: int = json.loads(bytes(reply.body or b""))["code"]
            return code

        assert asked(target.name, node.name) == ResultCode.NOT_LEADER
        assert asked(node.name, target.name) == ResultCode.SUCCESS
        world.run_until(lambda: group.active() == [target], 50)
        assert not member.is_active
        assert asked(target.name, "") == ResultCode.SUCCESS
        world.run(client.close())


def test_no_answered_proposal_is_lost_when_all_members_lose_power() -> None:
    with World(9) as world:
        group = started(world, 5)
        outcome = proposing(*leader_of(group), *(b"%d" % number for number in range(300)))
        world.run_until(lambda: bool(outcome), 2_000)
        for node in group.nodes:
            node.kill(power_cut=True)
        group.start_all()
        world.run_until(group.agreed, 8_000)
        _, member = leader_of(group)
        assert member.core is not None
        assert [entry.body for entry in entries_of(member).values() if entry.body] == [
            b"%d" % number for number in range(300)
        ]


def test_an_idle_group_sends_heartbeats_only() -> None:
    with World(10) as world:
        group = started(world)
        _, member = leader_of(group)
        codes: list[int] = []
        call = RemotingClient.call

        async def counted(
            self: RemotingClient, address: str, command: RemotingCommand, timeout_ms: int = 3000
        ) -> RemotingCommand:
            codes.append(command.code)
            return await call(self, address, command, timeout_ms)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RemotingClient, "call", counted)
            world.run_for_ms(3_000)
        assert set(codes) == {51002} and len(codes) <= 2 * 21
        assert member.is_active


FORGED = PushRequest((1 << 62) - 1, PushType.COMMIT, -1, -1, -1)


@pytest.mark.parametrize(
    ("code", "body", "answer"),
    [
        (51001, b"", 411),
        (51004, b"{}", 411),
        (51001, encode_request(Envelope("g", "n1", "n9"), VoteRequest(9, -1, -1)), 401),
        (51001, encode_request(Envelope("other", "n1", "n0"), VoteRequest(9, -1, -1)), 400),
        (51004, encode_request(Envelope("g", "n7", "n0"), FORGED), 401),
        (51004, encode_request(Envelope("g", "n0", "n0"), FORGED), 401),
        (51001, encode_request(Envelope("g", "n1", "n0"), VoteRequest((1 << 63) - 1, -1, -1)), 411),
        (51004, encode_request(Envelope("g", "n1", "n0"), PushRequest(0, PushType.COMMIT, -1, -1, -1)), 401),
    ],
)
def test_a_hostile_request_is_answered_with_a_body_and_changes_nothing(
    code: int, body: bytes, answer: int
) -> None:
    with World(11) as world:
        group = started(world)
        before = [(core.role, core.term, core.committed_index) for core in group.running_cores()]
        client = RemotingClient(clock=SimulatedClock(group.nodes[0]))
        reply = world.run(client.call(group.peers["n0"], RemotingCommand.request(code, body=body)))
        assert reply.code == 200 and reply.body is not None
        assert json.loads(bytes(reply.body))["code"] == answer
        world.run(client.close())
        assert [(core.role, core.term, core.committed_index) for core in group.running_cores()] == before


def test_a_state_machine_that_raises_ends_its_member() -> None:
    with World(12) as world:
        group = started(world)
        node, member = leader_of(group)
        app = node.app
        assert isinstance(app, MemberApp)

        def apply(index: int, body: bytes) -> object:
            raise OSError(errno.EIO, f"entry {index} cannot be applied")

        app.node._applier.state_machine.apply = apply  # type: ignore[method-assign]
        outcome = proposing(node, member, b"x")
        world.run_until(lambda: not node.running, 500)
        assert "entry 1 cannot be applied" in str(node.failure)
        assert outcome == [] or isinstance(outcome[0], OutcomeUnknown)
