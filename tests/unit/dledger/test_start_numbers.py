"""Start numbers: how they are drawn, stored and exchanged, how members confirm a disk, and limits of a
restored one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.node.messagejson import Envelope, decode_envelope, encode_request
from dledger.node.starts import Starts
from dledger.raft.actions import Forgot, PersistThenSend, Role, Vote
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushResponse,
    RecoveryRequest,
    ResultCode,
    VoteRequest,
    VoteResult,
)
from dledger.raft.raft import Raft
from dledger.raft.rejoin import DiskFreshnessCheck
from dledger.raft.startnumbers import (
    BEYOND,
    NUMBER_MAX,
    TEXT_MAX,
    NewNumbers,
    Start,
    StartNumbers,
    decode,
    encode,
)
from dledger.storage.hardstate import StartsFile
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.tasks import Tasks
from scripts.peers.waits import WAIT_S
from tests.unit.dledger.raftharness import core, elected, entries, replies, sent

MEMBERS = ("a", "b", "c")


def numbers(own: Start | None = None, **known: Start) -> StartNumbers:
    return StartNumbers("a", own, known, life=77)


# Numbers that others report


@pytest.mark.parametrize(
    ("heard", "set_back"),
    [
        (Start(4, 9), False),
        (Start(5, 9), False),
        (Start(5, 8), True),
        (Start(6, 8), True),
        (Start(900, 9), True),
    ],
)
def test_a_newer_start_number_or_another_life_shows_a_restored_disk(heard: Start, set_back: bool) -> None:
    mine = numbers(Start(5, 9))
    mine.receive("b", encode({"a": heard, "b": Start(1, 1)}), MEMBERS)
    assert mine.set_back is set_back


def test_a_disk_without_a_start_number_draws_a_greater_one_than_others_report() -> None:
    mine = numbers()
    mine.receive("b", encode({"a": Start(6, 3)}), MEMBERS)
    assert not mine.set_back
    assert mine.next(above_claimed=True) == Start(7, 77)
    assert mine.next(above_claimed=False) == Start(1, 77)
    mine.drawn(Start(7, 77))
    assert mine.text == "a=7:77" and not mine.set_back


def test_a_member_forwards_the_start_numbers_of_others() -> None:
    b = StartNumbers("b", Start(1, 2), {}, life=3)
    assert b.receive("c", "a=20:4;c=2:2", MEMBERS) == NewNumbers(sender_began=True, others=True)
    assert b.text == "a=20:4;b=1:2;c=2:2"
    mine = numbers(Start(12, 4))
    mine.receive("b", b.text, MEMBERS)
    assert mine.set_back


def test_known_start_numbers_only_grow_and_unknown_members_are_ignored() -> None:
    mine = numbers(Start(1, 1), b=Start(8, 5))
    assert mine.receive("c", "b=7:6;x=3:3", MEMBERS) == NewNumbers()
    assert mine.known == {"b": Start(8, 5)}
    assert mine.receive("b", "b=9:5", MEMBERS) == NewNumbers(sender_began=False, others=True)
    assert mine.receive("b", "b=10:6", MEMBERS) == NewNumbers(sender_began=True, others=True)


def test_messages_carry_the_start_numbers_of_current_members_only() -> None:
    mine = numbers(Start(1, 1), b=Start(8, 5), removed=Start(3, 3))
    mine.members_are({"b"})
    assert mine.text == "a=1:1;b=8:5"
    mine.members_are({"b", "removed"})
    assert mine.text == "a=1:1;b=8:5;removed=3:3"


def test_late_messages_of_an_earlier_life_are_recognised() -> None:
    mine = numbers(Start(1, 1), b=Start(8, 5))
    for text, is_late in (("b=7:4", True), ("b=7:5", False), ("b=8:5", False), ("b=8:4", True), ("", False)):
        mine.receive("b", text, MEMBERS)
        assert mine.is_of_former_life("b") is is_late, text
        assert mine.receive("b", text, MEMBERS) == NewNumbers() and mine.is_of_former_life("b") is is_late


@pytest.mark.parametrize(
    "text", ["a", "a=", "a=1", "a=1:x", "a=-1:2", "=1:2", "a=1:2;;", "a=9007199254740992:1"]
)
def test_a_malformed_start_number_text_decodes_to_nothing(text: str) -> None:
    assert decode(text) == {}


def test_a_too_long_text_is_ignored_and_the_number_has_a_maximum() -> None:
    assert decode("a=1:1;" * TEXT_MAX) == {}
    mine = numbers(Start(NUMBER_MAX, 1))
    assert mine.next(above_claimed=True).number == NUMBER_MAX


def test_each_message_carries_start_numbers_and_older_members_send_none() -> None:
    request = HeartBeatRequest(3)
    body = encode_request(Envelope("g", "a", "b", "a-h:1", start_numbers="a=2:3"), request)
    assert decode_envelope(body)[0].start_numbers == "a=2:3"
    body = encode_request(Envelope("g", "a", "b", "a-h:1"), request)
    assert b"startNumbers" not in body and decode_envelope(body)[0].start_numbers == ""


# The file


def test_the_start_number_file_stores_all_known_numbers(tmp_path: Path) -> None:
    file = StartsFile(RealSmallFiles(tmp_path), "starts", "a")

    async def story() -> None:
        loaded = await file.load(life=5)
        assert not loaded.is_there and loaded.own == Start()
        loaded.receive("b", "b=4:2", MEMBERS)
        await file.store(loaded.next(above_claimed=False), loaded)
        again = await file.load(life=6)
        assert (again.own, again.known, again.is_there) == (Start(1, 5), {"b": Start(4, 2)}, True)

    asyncio.run(story())


@pytest.mark.parametrize(
    "content", [b"", b"self=b\nown=3:3\n", b"self=a\nself=a\n", b"\xff\xfe", b"self=a\nown=3\n"]
)
def test_a_damaged_or_foreign_start_number_file_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "starts").write_bytes(content)
    loaded = asyncio.run(StartsFile(RealSmallFiles(tmp_path), "starts", "a").load(life=5))
    assert not loaded.is_there and loaded.own == Start() and loaded.known == {}


# Confirmation by other members


def test_proving_waits_for_reachable_members_and_then_needs_a_majority() -> None:
    others = ("b", "c", "d", "e")
    proving = DiskFreshnessCheck(0, wait_ms=600)
    proving.vouched("b")
    assert not proving.is_enough(others, 3, 5_000)
    proving.vouched("c")
    assert not proving.is_enough(others, 3, 599)
    assert proving.is_enough(others, 3, 600)
    proving.unreached("d")
    proving.unreached("e")
    assert proving.is_enough(others, 3, 0)
    assert DiskFreshnessCheck(0, wait_ms=600).is_enough((), 1, 0)


def test_an_unproven_member_does_not_vote_start_elections_or_count() -> None:
    raft = core(vote=Vote(3), log=entries(3), proven=False)
    assert [to for to, _ in sent(raft.tick(0))] == ["b", "c"], "it asks for confirmation at once"
    assert raft.on_vote_request("b", VoteRequest(4, 9, 3)) is VoteResult.REJECT_NEWCOMER
    raft.tick(10_000)
    assert raft.role is Role.FOLLOWER and not raft.wants_proof
    (said,) = replies(raft.receive("b", HeartBeatRequest(5), 10_000, 1))
    assert isinstance(said, HeartBeatResponse) and said.newcomer
    raft.vouched("b", 10_000)
    assert raft.wants_proof and not raft.counts, "its next number is to be durable first"
    raft.proved(10_000)
    assert raft.counts and not raft.wants_proof
    (said,) = replies(raft.receive("b", HeartBeatRequest(5), 10_001, 2))
    assert isinstance(said, HeartBeatResponse) and not said.newcomer


def test_a_group_of_one_is_proven_at_once() -> None:
    raft = core("a", ["a"], proven=False)
    raft.tick(0)
    assert raft.role is Role.LEADER


def test_a_leader_with_a_restored_disk_steps_down_and_becomes_a_newcomer() -> None:
    raft = elected(core())
    steps = [step for step in raft.set_back(700) if isinstance(step, PersistThenSend)]
    assert [step.vote for step in steps] == [Vote(1, "a", newcomer=True)]
    assert raft.role is Role.FOLLOWER and not raft.counts and raft.rejoin.set_back
    asked = [request for _, request in sent(raft.tick(700))]
    assert asked and all(isinstance(request, RecoveryRequest) and request.session for request in asked)
    raft.proved(710)
    assert not raft.counts, "a leader must catch it up"
    assert raft.set_back(720) == [], "once is enough"


def test_a_restored_disk_draws_a_number_only_after_newcomer_state_is_durable(tmp_path: Path) -> None:
    """An unknown member cannot mark a disk as restored."""
    (tmp_path / "starts").write_text("self=a\nown=3:1\n")
    raft, forgotten = core(vote=Vote(1), log=entries(1), proven=False), []

    async def story() -> None:
        proved = asyncio.Event()

        def take(turn: Callable[[int], object]) -> None:
            turn(0)
            if raft.proven:
                proved.set()

        tasks = Tasks(lambda error: None)
        starts = Starts(
            RealSmallFiles(tmp_path), "starts", "a", chance=random.Random(1), tasks=tasks, members=lambda: MEMBERS,
            take=take, on_memory_lost=lambda: forgotten.append(True),
        )  # fmt: skip
        await starts.open()
        starts.begin(raft)
        await starts.heed("x", "a=9:9")
        assert not raft.rejoin.newcomer and not forgotten
        for member in ("b", "b", "c"):
            await starts.heed(member, f"a=9:9;{member}=1:1")
        assert raft.rejoin.newcomer and forgotten == [True] and raft.wants_proof
        starts.look()
        assert len(tasks) == 1, "only the clock runs"
        starts.persisted(Vote(1, newcomer=True))
        starts.look()
        await proved.wait()
        assert starts.numbers.own.number == 10 and not raft.counts
        await tasks.stop()

    asyncio.run(asyncio.wait_for(story(), WAIT_S))


def test_a_newcomer_contradicted_by_a_leader_draws_a_newer_start_number(tmp_path: Path) -> None:
    """An emptied member has proven its new disk; then a leader detects the loss and adds BEYOND to its
    number."""
    raft = core(vote=Vote(0, newcomer=True), proven=False)

    async def story() -> None:
        proved = asyncio.Event()

        def take(turn: Callable[[int], object]) -> None:
            turn(0)
            if raft.proven:
                proved.set()

        tasks = Tasks(lambda error: None)
        starts = Starts(
            RealSmallFiles(tmp_path), "starts", "a", chance=random.Random(1), tasks=tasks, members=lambda: MEMBERS,
            take=take, on_memory_lost=lambda: None,
        )  # fmt: skip
        await starts.open()
        starts.begin(raft)
        for member in ("b", "c"):
            await starts.heed(member, f"{member}=1:1")
        starts.look()
        await proved.wait()
        assert starts.numbers.own.number == 1
        await starts.heed("b", f"a={BEYOND + 1}:9;b=1:1")
        assert not raft.proven
        proved.clear()
        starts.look()
        await proved.wait()
        assert starts.numbers.own.number == BEYOND + 2 and raft.rejoin.newcomer
        await tasks.stop()

    asyncio.run(asyncio.wait_for(story(), WAIT_S))


# Losses that a leader detects


def answered(index: int, code: ResultCode = ResultCode.SUCCESS, *, end: int = 0) -> PushResponse:
    return PushResponse(1, code, index, 1 if code is ResultCode.SUCCESS else 0, end, 0, 0)


def leader_with_follower() -> Raft:
    """`b` has acknowledged entry 0; only the notice that it is committed is in flight to `b`."""
    leader = elected(core())
    for _ in range(2):  # its vote, and its entry
        leader.persisted(600)
    leader.receive("b", answered(0), 610)
    assert leader.committed_index == 0
    return leader


def test_a_restarted_follower_that_lost_acknowledged_entries_is_not_counted() -> None:
    leader = leader_with_follower()
    leader.restarted("b", 620)
    actions = leader.receive("b", answered(1, ResultCode.INCONSISTENT_STATE, end=-1), 630)
    assert Forgot("b", 0, 1) in actions
    progress = leader.progress["b"]
    assert progress.match_index == -1 and progress.newcomer
    leader.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS), 640)
    assert progress.newcomer and not progress.votes_since(0)
    assert not any(to == "b" for to, _ in sent(leader.tick(690)) if not isinstance(_, HeartBeatRequest))
    leader.receive("b", RecoveryRequest(1, 9), 700)
    assert not leader.progress["b"].forgot, "its next life starts without state"


def test_a_mismatch_of_a_follower_that_was_not_restarted_proves_no_loss() -> None:
    leader = leader_with_follower()
    actions = leader.receive("b", answered(1, ResultCode.INCONSISTENT_STATE, end=-1), 630)
    assert not any(isinstance(action, Forgot) for action in actions)
    assert leader.progress["b"].match_index == 0
