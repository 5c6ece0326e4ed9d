"""Offset resets (222) of consuming groups: a reset survives masters, restarts and late commits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.tables.offsetlimits import ANSWERS_MAX
from broker.tables.offsetresets import RESETS_MAX, OffsetResets
from messagestore.systemtopics import HALF_TOPIC
from mqclient.client import Client
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.bodies.offsets import ConsumerOffsetWrapper, OffsetReset, OffsetResetTable
from remoting.bodies.queues import ConsumerStatusBody, MessageQueue, ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CloneGroupOffsetHeader, ConsumerStatusHeader
from remoting.headers.offsets import (
    QueryConsumerOffsetHeader,
    ResetOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.support.pullbench import pull

MOVE = ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=0)
SUSPEND = "2"
OLD_CPP = 27


async def ask(
    client: Client, address: str, code: int, header: object, body: bytes | None = None
) -> RemotingCommand:
    return await client.remoting.call(address, RemotingCommand.request(code, header, body))  # type: ignore[arg-type]


async def pulled(client: Client, address: str, offset: int, **fields: int) -> RemotingCommand:
    return await client.remoting.call(address, pull(queueId=1, queueOffset=offset, **fields), 30_000)


async def commit(client: Client, address: str, offset: int) -> None:
    header = UpdateConsumerOffsetHeader("CG", "orders", 1, offset)
    assert (await ask(client, address, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def committed(client: Client, address: str) -> int:
    header = QueryConsumerOffsetHeader("CG", "orders", 1)
    return int((await ask(client, address, RequestCode.QUERY_CONSUMER_OFFSET, header)).ext["offset"])


async def prepare(client: Client, address: str) -> None:
    """Sends three messages to queue 1, which group CG then has consumed."""
    producer = client.producer("PG")
    for body in (b"one", b"two", b"three"):
        await producer.send("orders", body, queue_id=1)
    group = SubscriptionGroupConfig("CG").encode()
    await ask(client, address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    await commit(client, address, 3)


async def move(client: Client, address: str, header: ResetOffsetHeader = MOVE) -> RemotingCommand:
    return await ask(client, address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def continues_from_the_beginning(client: Client, address: str) -> None:
    """A consumer of CG at the end, which commits late, gets the reset and continues from offset 0."""
    await commit(client, address, 3)
    assert await committed(client, address) == 0
    reply = await pulled(client, address, 3)
    assert (reply.code, reply.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert reply.ext["nextBeginOffset"] == "0"
    await commit(client, address, 3)
    assert await committed(client, address) == 0
    assert (await pulled(client, address, 0)).code == 0
    await commit(client, address, 2)
    assert await committed(client, address) == 2


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with World(51) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        yield cluster


def test_a_reset_survives_the_master_that_answered_it(cluster: Cluster) -> None:
    old: Node = cluster.master

    async def moved() -> None:
        address = cluster.app(old).address
        async with cluster.client() as client:
            await prepare(client, address)
            assert (await move(client, address)).code == 0
        old.kill()

    cluster.run(moved())
    cluster.brokers.remove(old)
    cluster.wait_in_sync(2, 20_000)

    async def consumed() -> None:
        async with cluster.client() as client:
            await continues_from_the_beginning(client, cluster.app(cluster.master).address)

    cluster.run(consumed())
    cluster.world.run_for_ms(500)
    assert [cluster.app(node).tables.resets.wrapper() for node in cluster.brokers] == [None, None]


def test_a_reset_survives_a_restart_of_all_brokers(cluster: Cluster) -> None:
    async def moved() -> None:
        address = cluster.app(cluster.master).address
        async with cluster.client() as client:
            await prepare(client, address)
            assert (await move(client, address)).code == 0

    cluster.run(moved())
    for node in cluster.brokers:
        node.kill()
    for node in cluster.brokers:
        cluster.start(node)
    cluster.wait_in_sync(3, 60_000)

    async def consumed() -> None:
        async with cluster.client() as client:
            await continues_from_the_beginning(client, cluster.app(cluster.master).address)

    cluster.run(consumed())


def test_a_held_pull_is_answered_at_once_with_the_reset_offset(cluster: Cluster) -> None:
    async def scenario() -> int:
        address = cluster.app(cluster.master).address
        async with cluster.client() as waiting, cluster.client() as client:
            await prepare(client, address)
            began_ms = client.clock.monotonic_ms()
            pulling = asyncio.ensure_future(
                pulled(waiting, address, 3, sysFlag=6, suspendTimeoutMillis=20_000)
            )
            await asyncio.sleep(0.1)
            await move(client, address)
            reply = await pulling
            assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
            return client.clock.monotonic_ms() - began_ms

    assert cluster.run(scenario()) < 1_000


def test_a_consumer_that_ignores_a_reset_gets_a_bounded_number_of_answers() -> None:
    offsets = ConsumerOffsets()
    offsets.reset({("CG", "orders", 1): 7})
    answers = [offsets.pulled("CG", "orders", 1, 100) for _ in range(ANSWERS_MAX + 2)]
    assert answers == [7] * ANSWERS_MAX + [None, None]
    offsets.commit("CG", "orders", 1, 101)
    assert offsets.find("CG", "orders", 1) == 101


def test_deleting_a_topic_or_group_removes_its_resets(cluster: Cluster) -> None:
    app = cluster.app(cluster.master)
    app.tables.offsets.reset({("CG", "orders", 1): 0, ("CG", "other", 0): 5, ("G2", "orders", 1): 1})
    app.tables.delete_topic("orders", 0)
    assert app.tables.resets.wrapper() == OffsetResetTable([OffsetReset("CG", "other", 0, 5)])
    app.tables.delete_group("CG", clean_offset=True)
    assert app.tables.resets.wrapper() is None


def test_pending_resets_are_bounded(cluster: Cluster) -> None:
    async def scenario() -> RemotingCommand:
        address = cluster.app(cluster.master).address
        async with cluster.client() as client:
            await prepare(client, address)
            resets = cluster.app(cluster.master).tables.resets
            resets.adopt(OffsetResetTable([OffsetReset("x", "y", n, 0) for n in range(RESETS_MAX)]))
            return await move(client, address)

    answer = cluster.run(scenario())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "too many groups" in (answer.remark or "")


def test_resets_are_saved_with_the_offsets_and_copied() -> None:
    resets, copy = OffsetResets(), OffsetResets()
    offsets = ConsumerOffsets(resets)
    assert "offsetResets" not in json.loads(offsets.encode())
    offsets.reset({("CG", "orders", 1): 7})
    written = json.loads(offsets.encode())
    assert written["offsetTable"] == {"orders@CG": {"1": 7}}
    assert written["offsetResets"] == {
        "resets": [{"group": "CG", "offset": 7, "queueId": 1, "topic": "orders"}]
    }
    ConsumerOffsets(copy).decode(offsets.encode())
    assert copy.find("CG", "orders", 1) == 7
    assert copy.adopt(resets.wrapper()) is None
    assert copy.adopt(None) == {} and copy.find("CG", "orders", 1) is None


class Consumer:
    """A consumer of CG that records the requests of its broker and reports its offsets."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.router = Router()
        self.router.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        self.router.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)

    def _reset(self, peer: Peer, command: RemotingCommand) -> None:
        self.requests.append(command)

    def _status(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self.requests.append(command)
        return command.reply(
            body=ConsumerStatusBody(message_queue_table={MessageQueue("orders", "broker-a", 1): 3}).encode()
        )

    async def beat(self, client: Client, address: str, name: str, language: str, version: int) -> None:
        data = HeartbeatData(
            name, [], [ConsumerData("CG", subscription_data_set=[SubscriptionData("orders")])]
        )
        beat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
        beat.language, beat.version = language, version
        assert (await client.remoting.call(address, beat)).code == 0


def test_without_server_side_resets_each_consumer_is_notified(cluster: Cluster) -> None:
    java, cpp = Consumer(), Consumer()

    async def scenario() -> None:
        app = cluster.app(cluster.master)
        app.settings.use_server_side_reset_offset = False
        address = app.address
        async with (
            cluster.client() as admin,
            cluster.client(java.router) as first,
            cluster.client(cpp.router) as second,
        ):
            await prepare(admin, address)
            nobody = await move(admin, address)
            assert nobody.code == ResponseCode.CONSUMER_NOT_ONLINE
            assert nobody.remark == (
                "Consumer not online, so can not reset offset, Group: CG Topic: orders Timestamp: 0"
            )
            await java.beat(first, address, "java", "JAVA", 479)
            await cpp.beat(second, address, "cpp", "CPP", OLD_CPP)
            old = await move(admin, address)
            assert (old.code, old.remark) == (1, "the client does not support this feature. version=27")
            assert java.requests == [] and await committed(admin, address) == 3
            await cpp.beat(second, address, "cpp", "CPP", 333)
            moved = await move(
                admin, address, ResetOffsetHeader("orders", "CG", 0, is_force=True, queue_id=1)
            )
            queue = MessageQueue("orders", "broker-a", 1)
            assert ResetOffsetBody.decode(moved.body).offset_table == {queue: 0}
            await asyncio.sleep(0.1)
            for consumer in (java, cpp):
                [request] = consumer.requests
                assert request.ext == {
                    "topic": "orders", "group": "CG", "timestamp": "0", "isForce": "false", "queueId": "-1",
                }  # fmt: skip
            assert ResetOffsetBody.decode(java.requests[0].body).offset_table == {queue: 0}
            row = {"brokerName": "broker-a", "offset": 0, "queueId": 1, "topic": "orders"}
            assert json.loads(bytes(cpp.requests[0].body or b"")) == {"offsetTable": [row]}

    cluster.run(scenario())


def test_a_reset_without_force_never_moves_a_consumer_forward(cluster: Cluster) -> None:
    java = Consumer()

    async def scenario() -> None:
        app = cluster.app(cluster.master)
        app.settings.use_server_side_reset_offset = False
        async with cluster.client() as admin, cluster.client(java.router) as consumer:
            await prepare(admin, app.address)
            await commit(admin, app.address, 1)
            await java.beat(consumer, app.address, "java", "JAVA", 479)
            for force, offset in ((False, 1), (True, 3)):
                header = ResetOffsetHeader("orders", "CG", -1, is_force=force, queue_id=1)
                table = ResetOffsetBody.decode((await move(admin, app.address, header)).body).offset_table
                assert table == {MessageQueue("orders", "broker-a", 1): offset}

    cluster.run(scenario())


def test_connected_consumers_report_their_offsets_by_client_id(cluster: Cluster) -> None:
    first, second = Consumer(), Consumer()

    async def scenario() -> None:
        address = cluster.app(cluster.master).address

        async def status(client_id: str | None = None) -> RemotingCommand:
            header = ConsumerStatusHeader("orders", "CG", client_id)
            return await ask(admin, address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)

        async with (
            cluster.client() as admin,
            cluster.client(first.router) as one,
            cluster.client(second.router) as two,
        ):
            nobody = await status()
            assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [CG]")
            await first.beat(one, address, "first", "JAVA", 479)
            await second.beat(two, address, "second", "JAVA", 479)
            at = {MessageQueue("orders", "broker-a", 1): 3}
            assert ConsumerStatusBody.decode((await status()).body).consumer_table == {
                "first": at,
                "second": at,
            }
            assert ConsumerStatusBody.decode((await status("second")).body).consumer_table == {"second": at}
            assert ConsumerStatusBody.decode((await status("third")).body).consumer_table == {}
            assert first.requests[0].ext == {"topic": "orders", "group": "CG"}

    cluster.run(scenario())


def test_a_reset_that_ended_under_another_master_is_dropped() -> None:
    """A master of upstream copies the offsets of groups, but no resets."""
    offsets = ConsumerOffsets()
    offsets.reset({("CG", "orders", 1): 0, ("CG", "orders", 2): 5})
    offsets.adopt(ConsumerOffsetWrapper({"orders@CG": {1: 1_000_000, 2: 5}}))
    assert [offsets.find("CG", "orders", queue_id) for queue_id in (1, 2)] == [1_000_000, 5]
    assert offsets.pulled("CG", "orders", 1, 1_000_000) is None
    assert offsets.pulled("CG", "orders", 2, 9) == 5, "the consumer may not have got the answer"


def test_offsets_of_the_brokers_own_group_cannot_be_reset_or_cloned(world: World) -> None:
    cluster = Cluster(world, 1)
    cluster.start_up()

    async def scenario() -> list[int]:
        address = cluster.app(cluster.master).address
        async with cluster.client() as client:
            group = SubscriptionGroupConfig(TRANSACTIONS_GROUP).encode()
            await ask(client, address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
            header = ResetOffsetHeader(HALF_TOPIC, TRANSACTIONS_GROUP, 0, queue_id=0, offset=0)
            clone = CloneGroupOffsetHeader("CG", TRANSACTIONS_GROUP, HALF_TOPIC)
            return [
                (await move(client, address, header)).code,
                (await ask(client, address, RequestCode.CLONE_GROUP_OFFSET, clone)).code,
            ]

    assert cluster.run(scenario()) == [ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION]
    assert cluster.app(cluster.master).tables.offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) is None
