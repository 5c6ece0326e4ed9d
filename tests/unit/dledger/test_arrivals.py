"""Entries that were committed before they arrived count as history, not as live entries."""

from __future__ import annotations

from dledger.node.proposals import LiveEntries
from dledger.raft.entries import Entry
from dledger.raft.messages import HeartBeatRequest, Message, PushRequest, PushType
from tests.unit.dledger.raftharness import core, entries


def append(prev: tuple[int, int], *new: Entry, commit: int = -1) -> PushRequest:
    return PushRequest(1, PushType.APPEND if new else PushType.COMMIT, *prev, commit, tuple(new))


def test_entries_committed_before_they_arrived_are_history() -> None:
    raft = core("b", log=entries(1, 1))
    arrivals = LiveEntries(raft.log.last_index)
    assert arrivals.history_end == 1, "the disk does not record what was committed"

    def receive(request: Message, now_ms: int) -> tuple[int, int]:
        arrivals.received(request, raft.receive("a", request, now_ms))
        return raft.committed_index, arrivals.history_end

    assert receive(append((1, 1), *entries(1, 1, 1, 1)[2:], commit=2), 10) == (2, 2)
    assert receive(append((3, 1), commit=3), 20) == (3, 2)
    assert receive(append((3, 1), Entry(4, 1, b"x"), commit=9), 30) == (4, 4)


def test_only_new_entries_move_the_end_of_the_history() -> None:
    raft = core("b", log=entries(1, 1))
    arrivals = LiveEntries(raft.log.last_index)
    for request in (
        append((1, 1), Entry(2, 1, b"x"), commit=1),
        append((1, 1), Entry(2, 1, b"x"), commit=2),
        append((9, 1), Entry(10, 1, b"too far"), commit=9),
        HeartBeatRequest(1),
    ):
        arrivals.received(request, raft.receive("a", request, 10))
    assert (raft.committed_index, arrivals.history_end) == (2, 1)
