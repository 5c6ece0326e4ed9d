"""Pulls that are held until messages arrive, against a scripted store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.pulls import held as held_pulls
from broker.pulls.held import HeldPull, HeldPulls
from broker.pulls.request import PullRequest
from messagestore.messages import QueueGrew
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import TopicConfig
from remoting.codes import ResponseCode
from tests.support.pullbench import HOLD, Bench, Limits, pull
from tests.support.recordingpeer import RecordingPeer


def test_a_pull_at_the_end_is_held_and_answered_by_the_next_message() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=1, **HOLD) is None
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert [reply.body for reply in bench.peer.replies] == [b"two"]
    assert len(bench.held) == 0


def test_a_held_pull_does_not_keep_the_body_of_its_request() -> None:
    """A client may send 16 MiB with each of the 100,000 held pulls."""
    bench = Bench(held=HeldPulls(16))
    bench.queues.messages = [("A", b"one")]
    tracemalloc.start()
    for _ in range(16):
        asked = pull(queueOffset=1, **HOLD, z="z" * (64 << 10))
        asked.body = bytes(1 << 20)
        assert bench.processor.handle(cast(Any, bench.peer), asked) is None
        del asked
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bench.held) == 16 and kept < 1 << 20
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert [(reply.opaque, reply.body) for reply in bench.peer.replies] == [(7, b"two")] * 16


def test_the_filters_of_held_pulls_are_limited_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull brings a list of up to 1,000 tags, which takes 60 KB while the pull is held."""
    monkeypatch.setattr(held_pulls, "CHARACTERS_MAX", 10_000)
    bench = Bench(held=HeldPulls(100))
    bench.queues.messages = [("A", b"one")]
    tags = "||".join(f"tag-{number}" for number in range(400))
    assert 3_000 < len(tags) < 5_000
    for _ in range(3):
        waits = [bench.pull(queueOffset=1, subscription=tags, **HOLD) is None for _ in range(4)]
        assert waits == [True, True, False, False]
        assert bench.pull(queueOffset=1, subscription="short", **HOLD) is None, "it takes little"
        bench.clock.ms += 20_000
        bench.processor.expire(bench.clock.ms)
    assert len(bench.held) == 0


def test_a_held_pull_is_not_woken_by_messages_without_its_tags() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=1, subscription="B", **HOLD) is None
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert bench.peer.replies == []
    bench.queues.messages.append(("B", b"three"))
    bench.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [reply.body for reply in bench.peer.replies] == [b"three"]


@pytest.mark.parametrize("waiting", [1, 2])
def test_a_match_beyond_the_reach_of_one_read_wakes_a_held_pull(waiting: int) -> None:
    bench = Bench()
    for _ in range(waiting):
        assert bench.pull(subscription="B", **HOLD) is None
    bench.queues.messages = [("A", b"one of a batch")] * 101 + [("B", b"the last one")]
    bench.processor.arrived([QueueGrew("orders", 0, 102)])
    assert [reply.body for reply in bench.peer.replies] == [b"the last one"] * waiting


def test_an_expired_pull_returns_the_offset_behind_the_checked_messages() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    bench.pull(queueOffset=1, subscription="B", **HOLD)
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    bench.processor.expire(14_999)
    assert bench.peer.replies == []
    bench.processor.expire(15_000)
    (reply,) = bench.peer.replies
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


def test_an_expired_pull_without_new_messages_ends_with_not_found() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.processor.expire(15_000)
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.PULL_NOT_FOUND]


def close_the_broker(bench: Bench) -> None:
    bench.limits.broker_permission = 2


def close_the_topic(bench: Bench) -> None:
    bench.topics.put(TopicConfig("orders", 4, 4, perm=2))


def shrink_the_topic(bench: Bench) -> None:
    bench.topics.put(TopicConfig("orders", 1, 1))


def delete_the_topic(bench: Bench) -> None:
    bench.topics.remove("orders")


def close_the_group(bench: Bench) -> None:
    bench.groups.put(SubscriptionGroupConfig("CG", consume_enable=False))


FORBIDDEN = [
    (close_the_broker, ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden"),
    (close_the_topic, ResponseCode.NO_PERMISSION, "the topic[orders] pulling message is forbidden"),
    (
        shrink_the_topic,
        ResponseCode.INVALID_PARAMETER,
        "queueId[3] is illegal, topic:[orders] topicConfig.readQueueNums:[1]",
    ),
    (delete_the_topic, ResponseCode.TOPIC_NOT_EXIST, "topic[orders] not exist, apply first please!"),
    (close_the_group, ResponseCode.NO_PERMISSION, "subscription group no permission, CG"),
]


@pytest.mark.parametrize(("forbid", "code", "why"), FORBIDDEN)
def test_a_held_pull_gets_no_message_that_was_forbidden_meanwhile(
    forbid: Callable[[Bench], None], code: ResponseCode, why: str
) -> None:
    bench = Bench()
    assert bench.pull(queueId=3, **HOLD) is None
    forbid(bench)
    bench.queues.messages = [("A", b"one")]
    bench.processor.arrived([QueueGrew("orders", 3, 1)])
    assert [(reply.code, reply.remark, reply.body) for reply in bench.peer.replies] == [(code, why, None)]
    assert len(bench.held) == 0


@pytest.mark.parametrize(("forbid", "code", "why"), FORBIDDEN)
def test_an_expired_pull_is_answered_with_the_refusal_that_applies_now(
    forbid: Callable[[Bench], None], code: ResponseCode, why: str
) -> None:
    bench = Bench()
    assert bench.pull(queueId=3, **HOLD) is None
    forbid(bench)
    bench.processor.expire(15_000)
    assert [(reply.code, reply.remark) for reply in bench.peer.replies] == [(code, why)]


def test_without_long_polling_a_pull_waits_a_second() -> None:
    bench = Bench(limits=Limits(long_polling_enable=False))
    bench.pull(**HOLD)
    bench.processor.expire(1_000)
    assert len(bench.peer.replies) == 1


def test_held_pulls_are_bounded() -> None:
    bench = Bench(held=HeldPulls(1))
    assert bench.pull(**HOLD) is None
    reply = bench.pull(**HOLD)
    assert reply is not None and reply.code == ResponseCode.PULL_NOT_FOUND


def test_held_pulls_are_bounded_per_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_pulls, "PER_CONNECTION_MAX", 2)
    bench, stranger, other = Bench(), RecordingPeer(), RecordingPeer()
    handle = bench.processor.handle
    answers = [handle(cast(Any, stranger), pull(queueId=queue, **HOLD)) for queue in (0, 1, 0)]
    assert [cast(Any, each) and cast(Any, each).code for each in answers] == [
        None,
        None,
        ResponseCode.SYSTEM_BUSY,
    ]
    assert handle(cast(Any, other), pull(**HOLD)) is None
    bench.queues.messages = [("A", b"one")]
    found = handle(cast(Any, stranger), pull(**HOLD))
    assert found is None and [reply.code for reply in stranger.replies] == [0], (
        "a pull that finds a message is answered"
    )
    bench.processor.arrived([QueueGrew("orders", 0, 1)])
    assert [len(peer.replies) for peer in (stranger, other)] == [2, 1] and len(bench.held) == 1
    bench.queues.messages = []
    assert handle(cast(Any, stranger), pull(**HOLD)) is None, "the connection has room again"


class CountedPull(HeldPull):
    """Counts attribute accesses of held pulls."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        CountedPull.looks += 1
        return super().__getattribute__(name)


def test_closing_a_connection_looks_at_its_own_held_pulls_only() -> None:
    held, stranger, guest = HeldPulls(10_000), RecordingPeer(), RecordingPeer()
    for number in range(1_000):
        request = PullRequest(pull(), "CG", f"topic-{number % 7}", 0, 0, 32, 1 << 18, None, 0)
        held.hold(CountedPull(cast(Any, stranger), request, 15_000))
    held.hold(
        CountedPull(
            cast(Any, guest), PullRequest(pull(), "CG", "topic-0", 0, 0, 32, 1 << 18, None, 0), 15_000
        )
    )
    CountedPull.looks = 0
    held.release_of(cast(Any, guest))
    assert len(held) == 1_000 and CountedPull.looks < 10
    held.release_of(cast(Any, guest))
    held.release_of(cast(Any, stranger))
    assert len(held) == 0 and held.queues() == []


def test_closing_a_connection_drops_its_held_pulls() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.pull(queueId=1, **HOLD)
    (closed,) = bench.peer.close_callbacks
    closed(bench.peer)
    assert len(bench.held) == 0
    bench.processor.expire(1 << 40)
    assert bench.peer.replies == []


def test_a_broker_that_may_not_serve_reads_answers_held_pulls_with_busy() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.processor.release_all()
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.SYSTEM_BUSY]


def test_answered_pulls_do_not_accumulate_in_the_deadline_queue() -> None:
    held = HeldPulls(10)
    for _ in range(10_000):
        request = PullRequest(pull(), "CG", "orders", 0, 0, 32, 1 << 18, None, 0)
        waiting = HeldPull(cast(Any, RecordingPeer()), request, 15_000)
        held.hold(waiting)
        assert held.release(waiting)
        assert not held.release(waiting)
    assert len(held._deadlines) < 200
