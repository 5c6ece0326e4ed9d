"""Latencies of answers in a broker with metrics."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.metrics.latencies import HANDLER_FAILED, Call, Creation, Latencies, name_of
from broker.replication.pending import PendingSend, PendingSends
from broker.tables.topics import Topics
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RESPONSE_BIT, RemotingCommand
from remoting.router import Router
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer

SEND_WAIT_MS = 3_000
V1, V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.latencies = Latencies(self.clock, Topics(self.clock, [], lambda: None), SEND_WAIT_MS)
        self.peer = RecordingPeer()
        self.pending = PendingSends(100, self.latencies.sends_settled)

    def stored(self, end: int, request_code: int) -> None:
        """A send that arrived now waits for its replicas."""
        reply = RemotingCommand(0, end, RESPONSE_BIT)
        deadline_ms = self.clock.ms + SEND_WAIT_MS
        self.pending.add(PendingSend(end, deadline_ms, cast(Any, self.peer), reply, request_code))

    def handle(self, request: RemotingCommand, handler: Any) -> Any:
        router = Router()
        router.add(request.code, handler)
        self.latencies.watch(router)
        return router.handlers[request.code](cast(Any, self.peer), request)

    def counts(self) -> dict[Call, int]:
        return {call: sum(histogram.counts) for call, histogram in self.latencies.calls.items()}


def test_sends_of_one_receive_are_observed_together_when_they_are_answered() -> None:
    bench = Bench()
    for end in (100, 200, 300):
        bench.stored(end, V2)
    bench.stored(400, V1)
    bench.clock.ms = 4
    bench.pending.acknowledged(200)
    assert bench.counts() == {Call(V2, 0): 2}
    bench.clock.ms = 50
    bench.pending.acknowledged(400)
    assert bench.counts() == {Call(V2, 0): 3, Call(V1, 0): 1}
    assert bench.latencies.calls[Call(V2, 0)].sum == 4 + 4 + 50


def test_expired_sends_are_observed_with_flush_slave_timeout() -> None:
    bench = Bench()
    bench.stored(100, V2)
    bench.clock.ms = SEND_WAIT_MS
    bench.pending.expire(bench.clock.ms, 0)
    assert bench.counts() == {Call(V2, ResponseCode.FLUSH_SLAVE_TIMEOUT): 1}


def test_immediate_refusals_are_observed_with_their_code() -> None:
    bench = Bench()
    requests = [RemotingCommand(V2, opaque) for opaque in range(3)]
    replies = [requests[0].reply(ResponseCode.SYSTEM_BUSY), requests[2].reply(ResponseCode.SYSTEM_BUSY)]
    bench.latencies.answered_at_once(requests, replies, 0)
    assert bench.counts() == {Call(V2, ResponseCode.SYSTEM_BUSY): 2}


def test_an_immediate_answer_is_observed_and_a_deferred_one_is_not() -> None:
    bench = Bench()
    request = RemotingCommand(RequestCode.GET_MAX_OFFSET)
    assert bench.handle(request, lambda peer, command: command.reply()) is not None
    assert bench.handle(request, lambda peer, command: None) is None
    assert bench.counts() == {Call(RequestCode.GET_MAX_OFFSET, 0): 1}


def test_the_latency_of_an_awaited_answer_includes_the_wait() -> None:
    bench = Bench()

    async def handle(peer: Any, command: RemotingCommand) -> RemotingCommand:
        bench.clock.ms += 700
        return command.reply(ResponseCode.SYSTEM_ERROR)

    async def story() -> None:
        await bench.handle(RemotingCommand(RequestCode.GET_MIN_OFFSET), handle)

    asyncio.run(story())
    (histogram,) = bench.latencies.calls.values()
    assert histogram.sum == 700


def test_a_failing_handler_is_observed_as_handler_failed() -> None:
    bench = Bench()

    def fail(peer: Any, command: RemotingCommand) -> RemotingCommand:
        raise ValueError

    with pytest.raises(ValueError):
        bench.handle(RemotingCommand(RequestCode.GET_MAX_OFFSET), fail)
    call = Call(RequestCode.GET_MAX_OFFSET, ResponseCode.SYSTEM_ERROR, result=HANDLER_FAILED)
    assert bench.counts() == {call: 1}


def test_a_one_way_request_is_not_observed() -> None:
    bench = Bench()
    request = RemotingCommand(RequestCode.HEART_BEAT, flag=ONEWAY_BIT)
    bench.handle(request, lambda peer, command: command.reply())
    assert bench.counts() == {}


def test_topic_and_group_creations_are_counted_by_result() -> None:
    bench = Bench()
    topic = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext={"topic": "orders"})
    bench.handle(topic, lambda peer, command: command.reply(ResponseCode.INVALID_PARAMETER))
    body = SubscriptionGroupConfig("CID_RMQ_SYS_TRANS").encode()
    group = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    bench.handle(group, lambda peer, command: command.reply())
    assert set(bench.latencies.creations) == {
        Creation(topic.code, "failure", False),
        Creation(group.code, "success", True),
    }


def test_codes_are_shown_by_name_and_unknown_ones_by_number() -> None:
    assert name_of(310, RequestCode) == "send_message_v2"
    assert name_of(0, ResponseCode) == "success"
    assert name_of(9999, ResponseCode) == "9999"
