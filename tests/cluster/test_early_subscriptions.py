"""Pulls of push consumers before their first heartbeat at a new master: it requests their subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
from tests.cluster.brokerset import Cluster
from tests.support.askedclient import GROUP, JAVA_ANSWER, TOPIC, VERSION, AskedClient
from tests.support.doubles import ManualClock
from tests.support.pullbench import Bench, pull
from tests.support.recordingpeer import RecordingPeer


class NewMaster:
    """A broker that got no heartbeat."""

    def __init__(self, *, former: bool = False) -> None:
        consumers = ConsumerGroups()
        self.early = ProvisionalSubscriptions(consumers)
        tasks = Tasks(self._fails)
        renewal = SubscriptionRenewal(consumers, self.early, tasks, lambda peer: former, ManualClock())
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

    async def pull(self, peer: RecordingPeer, version: int = VERSION) -> RemotingCommand:
        """A pull of a push consumer, whose subscription only heartbeats carry."""
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


def test_a_consumer_without_a_heartbeat_is_asked_for_its_subscription_and_answered() -> None:
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
        assert master.early.subscribed(cast(Any, client), GROUP, TOPIC) is not None, "so it can be forwarded"

    asyncio.run(pulls())


def test_a_provisional_subscription_serves_one_connection_and_ends_with_it() -> None:
    async def pulls() -> None:
        master, client, other = NewMaster(), AskedClient(java), AskedClient(silent)
        await master.pull(client)
        assert (await master.pull(other)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        client.closed = True
        for closed in client.close_callbacks:
            closed(client)
        assert master.early.find(cast(Any, client), GROUP, TOPIC) is None

    asyncio.run(pulls())


def test_a_heartbeat_replaces_the_provisional_subscription() -> None:
    async def pulls() -> None:
        master, client = NewMaster(), AskedClient(java)
        await master.pull(client)
        master.heartbeat(client, VERSION)
        assert bytes((await master.pull(client)).body or b"") == b"two"
        assert len(client.questions) == 1

    asyncio.run(pulls())


def test_an_older_subscription_of_the_group_does_not_hide_the_provisional_one() -> None:
    async def pulls() -> None:
        master, client = NewMaster(), AskedClient(java)
        master.heartbeat(RecordingPeer(), VERSION - 1)
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
def test_a_pull_without_a_usable_subscription_answer_is_refused_as_upstream_does(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    client = AskedClient(answer)
    assert asyncio.run(NewMaster().pull(client)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert len(client.questions) == 1


def test_a_pull_is_passed_to_the_new_master_when_the_role_changes_meanwhile(world: World) -> None:
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


def test_a_connection_of_a_former_master_is_not_asked_for_subscriptions() -> None:
    client = AskedClient(java)
    assert asyncio.run(NewMaster(former=True).pull(client)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert client.questions == []


def test_subscription_questions_and_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pulls() -> None:
        monkeypatch.setattr(renewal_module, "FIRST_MAX", 8)
        master, clients = NewMaster(), [AskedClient(java) for _ in range(9)]
        codes = [answer.code for answer in await asyncio.gather(*map(master.pull, clients))]
        assert codes.count(ResponseCode.SUBSCRIPTION_NOT_EXIST) == 1
        assert sum(len(client.questions) for client in clients) == 8
        monkeypatch.setattr(early_module, "KEPT_CHARACTERS_MAX", 0)
        assert (await master.pull(AskedClient(java))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    asyncio.run(pulls())


def test_the_forwarded_subscription_is_the_newest_of_group_and_client() -> None:
    async def pulls() -> None:
        master, client, member = NewMaster(), AskedClient(java), RecordingPeer()
        master.heartbeat(member, VERSION - 1)
        await master.pull(client)
        forwarded = master.early.subscribed(cast(Any, client), GROUP, TOPIC)
        assert forwarded is not None and (forwarded.sub_string, forwarded.sub_version) == ("Tag", VERSION)
        master.heartbeat(member, VERSION + 1)
        forwarded = master.early.subscribed(cast(Any, client), GROUP, TOPIC)
        assert forwarded is not None and (forwarded.sub_string, forwarded.sub_version) == (
            "Other",
            VERSION + 1,
        )

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
