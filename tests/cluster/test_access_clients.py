"""What a user who may only connect gets of other users' clients: no half, no reply, no client id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqclient.errors import SubscriptionFailed
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionState
from remoting.bodies.access import UserInfo
from remoting.bodies.heartbeats import (
    ConsumerData,
    ConsumerRunningInfo,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.access import UserHeader
from remoting.headers.admin import ConsumerGroupHeader, UnregisterClientHeader
from remoting.headers.offsets import GetMaxOffsetHeader
from remoting.headers.pull import SYS_FLAG_SUSPEND, PullMessageHeader
from remoting.router import Router
from remoting.signing import Credentials, Signer
from simulation.kernel.world import World
from tests.cluster.guardedset import ALICE, GuardedCluster

MALLORY = Credentials("mallory", "mallory-password")
SOON = {"transactionTimeOut": 500, "transactionCheckInterval": 1_000, "transactionCheckMax": 3}
ID = "10.0.4.1@app"


@pytest.fixture
def cluster() -> Iterator[GuardedCluster]:
    """alice may send to `orders`; mallory has no rights."""
    with World(951) as world:
        cluster = GuardedCluster(world, 2, **SOON)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Pub"]))
        cluster.create_user(MALLORY)
        yield cluster


def noted(bodies: list[bytes], state: TransactionState) -> Callable[[StoredMessage], TransactionState]:
    def check(message: StoredMessage) -> TransactionState:
        bodies.append(message.body)
        return state

    return check


def test_a_half_is_shown_only_to_producers_that_may_send_to_its_topic(cluster: GuardedCluster) -> None:
    hers: list[bytes] = []
    mallorys: list[bytes] = []

    async def play() -> None:
        spy = cluster.client(credentials=MALLORY)
        asks = noted(mallorys, TransactionState.ROLLBACK)
        async with spy, spy.transactions("PG", asks, client_id="spy", topics=["orders"]):
            await asyncio.sleep(3)
            async with cluster.client(credentials=ALICE) as client:
                async with client.transactions("PG", noted(hers, TransactionState.UNKNOWN)) as producer:
                    await producer.send("orders", b"half")
            await asyncio.sleep(15)  # longer than all checks take
            assert hers == mallorys == []
            async with cluster.client(credentials=ALICE) as client:
                checked = noted(hers, TransactionState.COMMIT)
                async with client.transactions("PG", checked, topics=["orders"]):
                    await asyncio.sleep(10)

    cluster.run(play())
    assert (hers, mallorys) == ([b"half"], []), "checks that nobody may answer do not count"
    assert cluster.bodies() == [b"half"]


async def call(
    cluster: GuardedCluster, client: Any, user: Credentials, code: int, header: Any, body: bytes | None
) -> RemotingCommand:
    request = RemotingCommand.request(code, header, body)
    Signer(user).sign(request)
    reply: RemotingCommand = await client.remoting.call(cluster.app(cluster.master).address, request, 15_000)
    return reply


async def beat(cluster: GuardedCluster, client: Any, user: Credentials, group: str) -> int:
    body = HeartbeatData(ID, [ProducerData(group)], []).encode()
    return (await call(cluster, client, user, Code.HEART_BEAT, None, body)).code


def reply_to(client_id: str) -> dict[str, str]:
    return {
        "a": "repliers", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "1795000000000", "h": "0", "i": f"REPLY_TO_CLIENT\x01{client_id}\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def question_of(client_id: str) -> dict[str, str]:
    properties = f"MSG_TYPE\x01request\x02REPLY_TO_CLIENT\x01{client_id}\x02CORRELATION_ID\x01c1\x02"
    return reply_to(client_id) | {"b": "orders", "i": properties}


def router(pushed: list[RemotingCommand]) -> Router:
    def push(peer: Any, command: RemotingCommand) -> RemotingCommand:
        pushed.append(command)
        return command.reply()

    router = Router()
    router.add(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, push)
    return router


def test_a_client_id_of_another_users_connection_cannot_be_taken(cluster: GuardedCluster) -> None:
    hers: list[RemotingCommand] = []
    mallorys: list[RemotingCommand] = []
    cluster.allow(ALICE, ("Topic:*", ["Pub"]))

    async def reply() -> int:
        async with cluster.client() as replying:
            return (
                await call(cluster, replying, ALICE, Code.SEND_REPLY_MESSAGE_V2, reply_to(ID), b"answer")
            ).code

    async def play() -> None:
        async with cluster.client(router(hers)) as own, cluster.client(router(mallorys)) as spy:
            assert await beat(cluster, own, ALICE, "askers") == 0
            assert await beat(cluster, spy, MALLORY, "spies") == ResponseCode.SYSTEM_ERROR
            leaves = UnregisterClientHeader(ID, producer_group="askers")
            assert (await call(cluster, spy, MALLORY, Code.UNREGISTER_CLIENT, leaves, None)).code == 0
            assert await reply() == 0
            assert (len(hers), len(mallorys)) == (1, 0)
            assert (await call(cluster, own, ALICE, Code.UNREGISTER_CLIENT, leaves, None)).code == 0
            assert await reply() == ResponseCode.SYSTEM_ERROR

    cluster.run(play())


def test_replies_go_to_the_user_who_asked_even_if_the_client_is_gone(cluster: GuardedCluster) -> None:
    mallorys: list[RemotingCommand] = []
    cluster.allow(ALICE, ("Topic:*", ["Pub"]))

    async def play() -> None:
        async with cluster.client(router([])) as own:
            asked = await call(cluster, own, ALICE, Code.SEND_MESSAGE_V2, question_of(ID), b"?")
            assert asked.code == 0
        async with cluster.client(router(mallorys)) as spy, cluster.client() as replying:
            assert await beat(cluster, spy, MALLORY, "spies") == 0
            answer = await call(cluster, replying, ALICE, Code.SEND_REPLY_MESSAGE_V2, reply_to(ID), b"answer")
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert mallorys == []

    cluster.run(play())


@pytest.mark.parametrize("beats", [True, False])
def test_who_asks_first_with_another_users_client_id_gets_no_reply_of_that_user(
    cluster: GuardedCluster, beats: bool
) -> None:
    """With heartbeats the id is known to be alice's. Without them mallory came first, and alice gets to know that at once."""
    hers: list[RemotingCommand] = []
    mallorys: list[RemotingCommand] = []
    cluster.allow(ALICE, ("Topic:*", ["Pub"]))
    cluster.allow(MALLORY, ("Topic:mine", ["Pub"]))

    async def play() -> None:
        async with cluster.client(router(hers)) as own, cluster.client(router(mallorys)) as spy:
            if beats:
                assert await beat(cluster, own, ALICE, "askers") == 0
            first = question_of(ID) | {"b": "mine"}
            code = (await call(cluster, spy, MALLORY, Code.SEND_MESSAGE_V2, first, b"?")).code
            assert code == (ResponseCode.NO_PERMISSION if beats else 0)
            asked = await call(cluster, own, ALICE, Code.SEND_MESSAGE_V2, question_of(ID), b"?")
            assert asked.code == (0 if beats else ResponseCode.NO_PERMISSION)
            if not beats:
                assert await beat(cluster, own, ALICE, "askers") == 0
            async with cluster.client() as replying:
                answer = await call(cluster, replying, ALICE, Code.SEND_REPLY_MESSAGE_V2, reply_to(ID), b"!")
                assert answer.code == (0 if beats else ResponseCode.SYSTEM_ERROR)

    cluster.run(play())
    assert (len(hers), len(mallorys)) == (int(beats), 0)


def test_a_client_may_repeat_the_request_of_another_user_who_gets_the_reply(cluster: GuardedCluster) -> None:
    hers: list[RemotingCommand] = []
    mallorys: list[RemotingCommand] = []
    cluster.allow(ALICE, ("Topic:*", ["Pub"]))
    cluster.allow(MALLORY, ("Topic:mine", ["Pub"]))

    async def play() -> None:
        async with cluster.client(router(hers)) as own, cluster.client(router(mallorys)) as passing:
            assert await beat(cluster, own, ALICE, "askers") == 0
            body = HeartbeatData("another id", [ProducerData("routers")], []).encode()
            assert (await call(cluster, passing, MALLORY, Code.HEART_BEAT, None, body)).code == 0
            again = question_of(ID) | {"b": "mine"}
            asked = await call(cluster, passing, MALLORY, Code.SEND_MESSAGE_V2, again, b"?")
            assert asked.code == 0
            async with cluster.client() as replying:
                answer = await call(cluster, replying, ALICE, Code.SEND_REPLY_MESSAGE_V2, reply_to(ID), b"!")
                assert answer.code == 0

    cluster.run(play())
    assert (len(hers), len(mallorys)) == (1, 0)


def deny(cluster: GuardedCluster, resource: str) -> None:
    cluster.allow(MALLORY, (resource, ["All"]), decision="Deny")


def slow(code: int, wait_s: float, body: bytes | None = None) -> Router:
    """The requests of this code to a client are answered late."""

    async def answer(peer: Any, command: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(wait_s)
        return command.reply(body=body)

    router = Router()
    router.add(code, answer)
    return router


def test_a_pull_is_checked_again_after_its_client_was_asked_for_subscriptions(
    cluster: GuardedCluster,
) -> None:
    cluster.allow(MALLORY, ("Topic:orders", ["Sub"]), ("Group:spies", ["Sub"]))
    cluster.send_as(ALICE)
    info = ConsumerRunningInfo(subscription_set=[SubscriptionData("orders")]).encode()
    header = PullMessageHeader("spies", "orders", 0, 0, 32, SYS_FLAG_SUSPEND, 0, 600_000, sub_version=0)
    codes: list[int] = []

    async def pull() -> None:
        async with cluster.client(slow(Code.GET_CONSUMER_RUNNING_INFO, 0.9, info)) as spy:
            codes.append((await call(cluster, spy, MALLORY, Code.PULL_MESSAGE, header, None)).code)

    pulling = cluster._client_node.spawn(pull())
    cluster.world.run_for_ms(300)
    deny(cluster, "Topic:orders")
    cluster.run(asyncio.wait_for(pulling, 20))
    assert codes == [ResponseCode.NO_PERMISSION]


def test_a_reply_is_not_stored_once_the_right_is_revoked(cluster: GuardedCluster) -> None:
    replies = "DefaultCluster_REPLY_TOPIC"
    cluster.allow(MALLORY, (f"Topic:{replies}", ["Pub"]))
    codes: list[int] = []

    async def reply() -> None:
        async with cluster.client(slow(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, 8)) as spy:
            assert await beat(cluster, spy, MALLORY, "askers") == 0
            codes.append(
                (await call(cluster, spy, MALLORY, Code.SEND_REPLY_MESSAGE_V2, reply_to(ID), b"!")).code
            )

    replying = cluster._client_node.spawn(reply())
    cluster.world.run_for_ms(500)
    deny(cluster, f"Topic:{replies}")
    cluster.run(asyncio.wait_for(replying, 20))
    assert codes == [0], "the client got it before"
    assert cluster.app(cluster.master).store.max_queue_offset(replies, 0) == 0


@pytest.mark.parametrize("revoked", ["Group:billing", "Topic:orders"])
def test_a_consumer_leaves_its_group_once_its_user_lost_a_right(
    cluster: GuardedCluster, revoked: str
) -> None:
    """The other members are notified at once, and share its queues."""
    notified: list[str] = []

    def hears(name: str) -> Router:
        router = Router()
        router.add(Code.NOTIFY_CONSUMER_IDS_CHANGED, lambda peer, command: notified.append(name))
        return router

    for user in (ALICE, MALLORY):
        cluster.allow(user, ("Topic:orders", ["Sub"]), ("Group:billing", ["Sub"]))
    consumer = ConsumerData("billing", subscription_data_set=[SubscriptionData("orders")])

    async def join(client: Any, user: Credentials, client_id: str) -> None:
        body = HeartbeatData(client_id, [], [consumer]).encode()
        assert (await call(cluster, client, user, Code.HEART_BEAT, None, body)).code == 0

    async def members(client: Any) -> list[str]:
        header = ConsumerGroupHeader("billing")
        reply = await call(cluster, client, ALICE, Code.GET_CONSUMER_LIST_BY_GROUP, header, None)
        listed: list[str] = json.loads(reply.body or b"")["consumerIdList"]
        return listed

    async def play() -> None:
        async with cluster.client(hears("alice")) as own, cluster.client(hears("mallory")) as other:
            await join(own, ALICE, "1@alice")
            await join(other, MALLORY, "2@mallory")
            assert await members(own) == ["1@alice", "2@mallory"]
            await left.wait()
            assert await members(own) == ["1@alice"]

    left = asyncio.Event()
    playing = cluster._client_node.spawn(play())
    cluster.world.run_for_ms(2_000)
    notified.clear()
    deny(cluster, revoked)
    cluster.world.run_for_ms(900)
    assert notified == ["alice"]
    left.set()
    cluster.run(asyncio.wait_for(playing, 20))


def change_password(cluster: GuardedCluster, user: Credentials, password: str) -> Credentials:
    body = UserInfo(user.access_key, password).encode()
    assert cluster.request(Code.AUTH_UPDATE_USER, UserHeader(user.access_key), body).code == 0
    return Credentials(user.access_key, password)


def test_clients_with_a_former_password_leave_their_groups_and_get_no_halves(cluster: GuardedCluster) -> None:
    """An open connection does not keep the rights of a password that was changed."""
    cluster.allow(ALICE, ("Topic:orders", ["Pub", "Sub"]), ("Group:billing", ["Sub"]))
    master = cluster.app(cluster.master)
    shown: list[RemotingCommand] = []
    router = Router()
    router.add(Code.CHECK_TRANSACTION_STATE, lambda peer, command: shown.append(command))
    consumer = ConsumerData("billing", subscription_data_set=[SubscriptionData("orders")])
    done = asyncio.Event()

    async def stay() -> None:
        async with cluster.client(router) as client:
            for body in (
                HeartbeatData("spy", [ProducerData("PG")], []),
                HeartbeatData("1@spy", [], [consumer]),
            ):
                assert (await call(cluster, client, ALICE, Code.HEART_BEAT, None, body.encode())).code == 0
            await done.wait()

    staying = cluster._client_node.spawn(stay())
    cluster.world.run_for_ms(500)
    known = master.requests.consumers
    assert known.find("billing") is not None and known.producers("PG") != []
    renewed = change_password(cluster, ALICE, "a new password")
    cluster.world.run_for_ms(900)
    assert known.find("billing") is None and known.producers("PG") == []

    async def send() -> None:
        async with cluster.client(credentials=renewed) as client:
            async with client.transactions("PG", noted([], TransactionState.UNKNOWN)) as producer:
                await producer.send("orders", b"half")

    cluster.run(send())
    cluster.world.run_for_ms(5_000)  # longer than two checks take
    assert shown == []
    done.set()
    cluster.run(asyncio.wait_for(staying, 20))


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_wheel_timer"])
def test_a_topic_with_messages_of_all_users_must_be_named(cluster: GuardedCluster, topic: str) -> None:
    cluster.allow(ALICE, ("*", ["All"]), ("Topic:*", ["All"]), ("Topic:RMQ_*", ["All"]))

    def asked() -> int:
        return cluster.request(Code.GET_MAX_OFFSET, GetMaxOffsetHeader(topic, 0), by=ALICE).code

    assert asked() == ResponseCode.NO_PERMISSION
    cluster.allow(ALICE, (f"Topic:{topic}", ["Get"]))
    assert asked() == 0


def test_a_user_needs_the_rights_of_a_consumer_and_learns_that_they_are_revoked(
    cluster: GuardedCluster,
) -> None:
    """Also to hand a message back, and to get it again from the retry topic."""
    got: list[tuple[bytes, int]] = []
    failures: list[str] = []
    cluster.allow(MALLORY, ("Topic:orders", ["Sub"]), ("Group:billing", ["Sub"]))
    cluster.send_as(ALICE)

    async def play() -> None:
        async with cluster.client(credentials=MALLORY) as client:
            async with client.subscribe("orders", group="billing", start="first") as messages:
                message = await messages.take()
                await messages.hand_back(message)
                again = await messages.take()
                got.extend(
                    [(message.stored.topic.encode(), message.attempt), (again.topic.encode(), again.attempt)]
                )
                messages.acknowledge(again)
                try:
                    await messages.take()
                except SubscriptionFailed as failed:
                    failures.append(str(failed))

    playing = cluster._client_node.spawn(play())
    cluster.world.run_for_ms(15_000)
    assert got == [(b"orders", 1), (b"orders", 2)]
    deny(cluster, "Group:billing")
    cluster.run(asyncio.wait_for(playing, 30))
    assert len(failures) == 1 and "Group:billing" in failures[0]
