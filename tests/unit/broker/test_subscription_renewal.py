"""Requests to a client for a subscription that its heartbeats have not brought yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.clients import renewal as renewal_module
from broker.clients.groups import ConsumerGroups
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.renewal import SubscriptionRenewal
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import ConsumerData, ConsumerRunningInfo, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost
from tests.support.askedclient import GROUP, JAVA_ANSWER, TOPIC, VERSION, AskedClient
from tests.support.doubles import ManualClock


def asked(
    answer: Callable[[RemotingCommand], RemotingCommand], times: int = 1
) -> tuple[ConsumerGroups, AskedClient]:
    """Asks a client whose heartbeat brought version 5, and returns the known groups afterwards."""
    consumers, peer = ConsumerGroups(), AskedClient(answer)
    consumer = ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC, "Old", sub_version=5)])
    consumers.heartbeat(cast(Any, peer), HeartbeatData("c1", [], [consumer]), "JAVA", 479)

    async def ask() -> None:
        failures: list[BaseException] = []
        tasks = Tasks(failures.append)
        early = ProvisionalSubscriptions(consumers)
        renewal = SubscriptionRenewal(consumers, early, tasks, lambda peer: False, ManualClock())
        for _ in range(times):
            renewal.ask(cast(Any, peer), GROUP)
            renewal.ask(cast(Any, peer), "a group that it is not in")
            renewal.ask(cast(Any, AskedClient(answer)), GROUP)  # a connection without a client
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(tasks) == 0 and failures == []

    asyncio.run(ask())
    return consumers, peer


def known_version(consumers: ConsumerGroups) -> int:
    subscription = consumers.subscription(GROUP, TOPIC)
    assert subscription is not None
    return subscription.version


def lost(command: RemotingCommand) -> RemotingCommand:
    raise ConnectionLost("10.0.0.9:5000", "closed by the other end")


def test_the_answer_of_a_java_client_becomes_its_subscription() -> None:
    consumers, peer = asked(lambda command: command.reply(body=JAVA_ANSWER))
    assert known_version(consumers) == VERSION
    subscription = consumers.subscription(GROUP, TOPIC)
    assert subscription is not None and subscription.data.sub_string == "Tag"
    [question] = peer.questions
    assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert question.ext == {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "false"}


def test_concurrent_pulls_ask_the_client_once() -> None:
    _, peer = asked(lambda command: command.reply(body=JAVA_ANSWER), times=4)
    assert len(peer.questions) == 1


OLDER = b'{"subscriptionSet":[{"topic":"P1386","subString":"Older","subVersion":4}]}'


@pytest.mark.parametrize(
    "answer",
    [
        lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "The Consumer Group <G> not exist"),
        lambda command: command.reply(body=b"no JSON"),
        lambda command: command.reply(body=b'{"subscriptionSet":null}'),
        lambda command: command.reply(body=OLDER),
        lost,
    ],
)
def test_without_a_newer_answer_the_subscription_of_the_heartbeat_is_kept(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    consumers, _ = asked(answer)
    assert known_version(consumers) == 5


def test_answers_without_a_subscription_are_logged_once_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer decides how often it is asked, and what it answers."""
    caplog.set_level(logging.INFO)
    failing: list[BaseException] = []
    consumers, clock = ConsumerGroups(), ManualClock()
    peer = AskedClient(lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "no"))
    consumer = ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC, "Old", sub_version=5)])
    consumers.heartbeat(cast(Any, peer), HeartbeatData("c1", [], [consumer]), "JAVA", 479)

    async def ask() -> None:
        early = ProvisionalSubscriptions(consumers)
        renewal = SubscriptionRenewal(consumers, early, Tasks(failing.append), lambda peer: False, clock)
        for _ in range(20):
            renewal.ask(cast(Any, peer), GROUP)
            for _ in range(5):
                await asyncio.sleep(0)
            clock.ms += 2_000

    asyncio.run(ask())
    assert (len(peer.questions), failing) == (20, [])
    assert len([record for record in caplog.records if record.message == "no subscription reported"]) == 2


def test_answers_that_come_together_are_decoded_in_one_turn_of_the_loop_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients may hold their answers back, and send all of them at once."""
    turn = 0
    decoded: list[int] = []
    read = ConsumerRunningInfo.from_request

    def noted(*data: Any, **how: Any) -> ConsumerRunningInfo:
        decoded.append(turn)
        return read(*data, **how)

    async def play() -> None:
        nonlocal turn
        released = asyncio.Event()

        class Waiting(AskedClient):
            async def call(self, command: RemotingCommand, timeout_ms: int = 0) -> RemotingCommand:
                await released.wait()
                return command.reply(body=JAVA_ANSWER)

        consumers, tasks = ConsumerGroups(), Tasks(lambda error: None)
        early = ProvisionalSubscriptions(consumers)
        renewal = SubscriptionRenewal(consumers, early, tasks, lambda peer: False, ManualClock())
        for number in range(8):
            peer = cast(Any, Waiting(lambda command: command.reply()))
            consumer = ConsumerData(f"{GROUP}-{number}", subscription_data_set=[SubscriptionData(TOPIC)])
            consumers.heartbeat(peer, HeartbeatData(f"c{number}", [], [consumer]), "JAVA", 479)
            renewal.ask(peer, f"{GROUP}-{number}")
        await asyncio.sleep(0)
        released.set()
        while len(decoded) < 8:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(renewal_module, "LONG_ANSWER_BYTES", 100)
    monkeypatch.setattr(ConsumerRunningInfo, "from_request", noted)
    asyncio.run(play())
    assert len(set(decoded)) == 8
