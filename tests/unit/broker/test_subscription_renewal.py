"""Asking a client for the subscription that its heartbeats have not brought yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker.clients.groups import ConsumerGroups
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.renewal import SubscriptionRenewal
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost

VECTORS = Path(__file__).parents[2] / "vectors" / "broker"
JAVA_ANSWER = (
    VECTORS / "consumer-running-info.json"
).read_bytes()  # a Java 5.3.3 push consumer's, with P1386
GROUP, TOPIC, TOLD_VERSION = "G13865", "P1386", 1795269813247


class AskedPeer:
    """A connection whose client answers every call as told."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand]) -> None:
        self.answer = answer
        self.calls: list[RemotingCommand] = []

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.calls.append(command)
        await asyncio.sleep(0)
        return self.answer(command)


def asked(
    answer: Callable[[RemotingCommand], RemotingCommand], times: int = 1
) -> tuple[ConsumerGroups, AskedPeer]:
    """A client whose heartbeat brought version 5 is asked; what is known of it afterwards."""
    consumers, peer = ConsumerGroups(), AskedPeer(answer)
    consumer = ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC, "Old", sub_version=5)])
    consumers.heartbeat(cast(Any, peer), HeartbeatData("c1", [], [consumer]), "JAVA", 479)

    async def ask() -> None:
        failures: list[BaseException] = []
        tasks = Tasks(failures.append)
        early = ProvisionalSubscriptions(consumers)
        renewal = SubscriptionRenewal(consumers, early, tasks, lambda peer: False)
        for _ in range(times):
            renewal.ask(cast(Any, peer), GROUP)
            renewal.ask(cast(Any, peer), "a group that it is not in")
            renewal.ask(cast(Any, AskedPeer(answer)), GROUP)  # a connection without a client
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


def test_what_the_java_client_answers_is_its_subscription_from_now_on() -> None:
    consumers, peer = asked(lambda command: command.reply(body=JAVA_ANSWER))
    assert known_version(consumers) == TOLD_VERSION
    subscription = consumers.subscription(GROUP, TOPIC)
    assert subscription is not None and subscription.data.sub_string == "Tag"
    [question] = peer.calls
    assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert question.ext == {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "false"}


def test_pulls_that_come_together_ask_once() -> None:
    _, peer = asked(lambda command: command.reply(body=JAVA_ANSWER), times=4)
    assert len(peer.calls) == 1


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
def test_without_a_newer_answer_the_heartbeat_counts(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    consumers, _ = asked(answer)
    assert known_version(consumers) == 5
