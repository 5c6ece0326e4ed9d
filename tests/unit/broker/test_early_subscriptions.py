"""Pulls of push consumers whose first heartbeat a new master has not heard: it asks them, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker.clients import provisionalsubscriptions as early_module
from broker.clients import renewal as renewal_module
from broker.clients.groups import ConsumerGroups
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.renewal import SubscriptionRenewal
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import CallTimeout
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster
from tests.unit.broker.pullbench import Bench, pull
from tests.unit.broker.recordingpeer import RecordingPeer

JAVA_ANSWER = (Path(__file__).parents[2] / "vectors" / "broker" / "consumer-running-info.json").read_bytes()
GROUP, TOPIC, TOLD_VERSION = "G13865", "P1386", 1795269813247
"""What that Java 5.3.3 push consumer subscribes to with `Tag`."""


class AskedClient(RecordingPeer):
    """A connection whose client answers 307 as told."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand]) -> None:
        super().__init__()
        self.closed = False
        self.answer = answer
        self.questions: list[RemotingCommand] = []

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.questions.append(command)
        await asyncio.sleep(0)
        return self.answer(command)


class NewMaster:
    """A broker that heard no heartbeat."""

    def __init__(self, *, former: bool = False) -> None:
        consumers = ConsumerGroups()
        self.early = ProvisionalSubscriptions(consumers)
        renewal = SubscriptionRenewal(consumers, self.early, Tasks(self._fails), lambda peer: former)
        self.bench = Bench(consumers=consumers, early=self.early, renewal=renewal)
        self.bench.topics.ensure(TOPIC, 4)
        self.bench.queues.messages = [("Tag", b"one"), ("Other", b"two")]

    def _fails(self, error: BaseException) -> None:
        raise AssertionError from error

    def heartbeat(self, peer: RecordingPeer, version: int) -> None:
        consumer = ConsumerData(
            GROUP, subscription_data_set=[SubscriptionData(TOPIC, "Other", sub_version=version)]
        )
        self.bench.consumers.heartbeat(cast(Any, peer), HeartbeatData("c1", [], [consumer]), "JAVA", 479)

    async def pull(self, peer: RecordingPeer, version: int = TOLD_VERSION) -> RemotingCommand:
        """A push consumer's: what it wants is for heartbeats to say."""
        ext = {"consumerGroup": GROUP, "topic": TOPIC, "sysFlag": 0, "subVersion": version}
        before = len(peer.replies)
        handled: Any = self.bench.processor.handle(cast(Any, peer), pull(**ext))
        if isinstance(handled, Awaitable):
            handled = await handled
        return cast(RemotingCommand, handled or peer.replies[before])


def java(command: RemotingCommand) -> RemotingCommand:
    return command.reply(body=JAVA_ANSWER)


def silent(command: RemotingCommand) -> RemotingCommand:
    raise CallTimeout("10.0.0.9:5000", "no answer")


def test_a_consumer_that_was_not_heard_is_asked_and_answered() -> None:
    async def pulls() -> None:
        master, client = NewMaster(), AskedClient(java)
        answers = await asyncio.gather(*(master.pull(client) for _ in range(3)))
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
        assert bytes(answers[0].body or b"") == b"one"  # by its tag
        [question] = client.questions
        assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert question.ext["consumerGroup"] == GROUP and question.ext["clientId"]
        assert (await master.pull(client)).code == ResponseCode.SUCCESS and len(client.questions) == 1
        assert master.bench.consumers.find(GROUP) is None, "no heartbeat came"
        assert master.early.subscribed(cast(Any, client), GROUP, TOPIC) is not None, "so it can be passed on"

    asyncio.run(pulls())


def test_what_one_connection_said_serves_no_other_and_ends_with_it() -> None:
    async def pulls() -> None:
        master, client, other = NewMaster(), AskedClient(java), AskedClient(silent)
        await master.pull(client)
        assert (await master.pull(other)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        client.closed = True
        for closed in client.close_callbacks:
            closed(client)
        assert master.early.find(cast(Any, client), GROUP, TOPIC) is None

    asyncio.run(pulls())


def test_a_heartbeat_over_the_connection_counts_from_then_on() -> None:
    async def pulls() -> None:
        master, client = NewMaster(), AskedClient(java)
        await master.pull(client)
        master.heartbeat(client, TOLD_VERSION)
        assert bytes((await master.pull(client)).body or b"") == b"two"
        assert len(client.questions) == 1

    asyncio.run(pulls())


def test_another_client_of_the_group_with_an_older_subscription_does_not_hide_it() -> None:
    async def pulls() -> None:
        master, client = NewMaster(), AskedClient(java)
        master.heartbeat(RecordingPeer(), TOLD_VERSION - 1)
        assert bytes((await master.pull(client)).body or b"") == b"one"

    asyncio.run(pulls())


OTHER_TOPIC = b'{"subscriptionSet":[{"topic":"elsewhere","subString":"*","subVersion":4}]}'
BAD_TAGS = b'{"subscriptionSet":[{"topic":"P1386","subString":"||","subVersion":1795269813247}]}'


@pytest.mark.parametrize(
    "answer",
    [
        silent,
        lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "The Consumer Group <G> not exist"),
        lambda command: command.reply(body=b"no JSON"),
        lambda command: command.reply(body=OTHER_TOPIC),
        lambda command: command.reply(body=BAD_TAGS),
    ],
)
def test_without_an_answer_it_is_refused_as_upstream_does(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    client = AskedClient(answer)
    assert asyncio.run(NewMaster().pull(client)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert len(client.questions) == 1


def test_where_the_role_changes_meanwhile_the_pull_goes_to_the_new_master(world: World) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    former = cluster.master
    [successor, _] = [node for node in cluster.brokers if node is not former]
    version = 7
    body = b'{"subscriptionSet":[{"topic":"orders","subString":"*","subVersion":%d}]}' % version

    async def answer(peer: Peer, command: RemotingCommand) -> RemotingCommand:
        await cluster.designate(cluster.app(successor).membership.broker_id)
        await asyncio.sleep(0.2)
        assert not cluster.app(former).membership.accepts_sends
        return command.reply(body=body)

    async def pulled() -> RemotingCommand:
        router = Router()
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, answer)
        async with cluster.client(router) as client:
            question = pull(sysFlag=0, subVersion=version)
            return await client.remoting.call(cluster.app(former).address, question)

    reply = world.run(pulled(), limit_ms=10_000)
    assert reply.code == ResponseCode.PULL_NOT_FOUND, reply.remark


def test_a_former_master_is_not_asked_for_its_clients() -> None:
    client = AskedClient(java)
    assert asyncio.run(NewMaster(former=True).pull(client)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert client.questions == []


def test_questions_and_what_is_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pulls() -> None:
        monkeypatch.setattr(renewal_module, "FIRST_MAX", 8)
        master, clients = NewMaster(), [AskedClient(java) for _ in range(9)]
        codes = [answer.code for answer in await asyncio.gather(*map(master.pull, clients))]
        assert codes.count(ResponseCode.SUBSCRIPTION_NOT_EXIST) == 1
        assert sum(len(client.questions) for client in clients) == 8
        monkeypatch.setattr(early_module, "KEPT_CHARACTERS_MAX", 0)
        assert (await master.pull(AskedClient(java))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    asyncio.run(pulls())


def test_what_is_passed_on_is_the_newest_that_the_group_or_the_client_said() -> None:
    async def pulls() -> None:
        master, client, heard = NewMaster(), AskedClient(java), RecordingPeer()
        master.heartbeat(heard, TOLD_VERSION - 1)
        await master.pull(client)
        told = master.early.subscribed(cast(Any, client), GROUP, TOPIC)
        assert told is not None and (told.sub_string, told.sub_version) == ("Tag", TOLD_VERSION)
        master.heartbeat(heard, TOLD_VERSION + 1)
        told = master.early.subscribed(cast(Any, client), GROUP, TOPIC)
        assert told is not None and (told.sub_string, told.sub_version) == ("Other", TOLD_VERSION + 1)

    asyncio.run(pulls())


def test_groups_that_subscribe_to_nothing_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def said() -> None:
        early, client = ProvisionalSubscriptions(ConsumerGroups()), AskedClient(java)
        monkeypatch.setattr(early_module, "KEPT_CHARACTERS_MAX", 1_000)
        for number in range(50):
            early.said(cast(Any, client), f"G{number}", [])
        assert len(early._known[cast(Any, client)]) == 4
        for closed in client.close_callbacks:
            closed(client)
        assert not early._known and early._characters == 0

    asyncio.run(said())
