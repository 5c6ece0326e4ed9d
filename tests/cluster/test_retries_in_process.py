"""Delayed delivery and retries of whole broker sets on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from messagestore.record import offset_message_id, pack_host
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.messages import ConsumerSendMsgBackHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.support.sendbacks import heartbeat, read, send_back, wait_for


def offset_id(message: StoredMessage) -> str:
    host, _, port = message.store_host.rpartition(":")
    return offset_message_id(pack_host(host, int(port)), message.physical_offset)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_delayed_message_is_delivered_when_it_is_due_and_not_before(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()

        async def scenario() -> tuple[list[bytes], int]:
            async with cluster.client() as client:
                producer = client.producer("PG")
                sent_ms = world.now_ms
                await producer.send("orders", b"later", queue_id=2, properties={"DELAY": "3"})
                await producer.send("orders", b"sooner", queue_id=2, properties={"DELAY": "2"})
                await producer.send("orders", b"now", queue_id=2)
                await asyncio.sleep(4.5)
                assert [message.body for message in await read(client, "orders")] == [b"now"]
                await asyncio.sleep(5)
                assert len(await read(client, "orders")) == 2
                found = await wait_for(client, "orders", 3)
                return [message.body for message in found], world.now_ms - sent_ms

        bodies, took_ms = cluster.run(scenario())
        assert bodies == [b"now", b"sooner", b"later"]
        assert 10_000 <= took_ms < 10_500
        world.run_for_ms(2_000)
        tables = [cluster.app(node).tables.delays for node in cluster.brokers]
        assert [(table.next_offset(2), table.next_offset(3)) for table in tables] == [(1, 1)] * 3
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1, "delivered records are replicated like others"


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_delayed_delivery_continues_under_the_next_master(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = {f"delayed {number}".encode() for number in range(40)}

        async def send() -> None:
            async with cluster.client() as client:
                producer = client.producer("PG")
                for number, body in enumerate(sorted(bodies)):
                    properties = {"DELAY": str(1 + number % 3)}
                    await producer.send("orders", body, properties=properties)

        async def collect() -> set[bytes]:
            async with cluster.client() as client:
                found: set[bytes] = set()
                while found != bodies:
                    found = {message.body for message in await read(client, "orders")}
                    await asyncio.sleep(0.2)
                return found

        cluster.run(send())
        world.run_for_ms(5_300)  # the delivery of level 2 has begun
        old = cluster.master
        old.kill(power_cut=seed == 5)
        cluster.wait_in_sync(2)
        assert cluster.run(collect()) == bodies
        cluster.start(old)
        cluster.wait_in_sync(3)


def test_the_offsets_of_delivery_survive_a_restart_of_the_whole_set() -> None:
    with World(6) as world:
        cluster = Cluster(world, 2, flushConsumerOffsetInterval=100)
        cluster.start_up()

        async def send_and_wait(count: int) -> int:
            async with cluster.client() as client:
                await client.producer("PG").send("orders", b"delayed", properties={"DELAY": "1"})
                return len(await wait_for(client, "orders", count))

        assert cluster.run(send_and_wait(1)) == 1
        world.run_for_ms(2_000)
        for node in cluster.brokers:
            node.kill(power_cut=True)
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(2, limit_ms=30_000)
        assert cluster.run(send_and_wait(2)) == 2
        world.run_for_ms(2_000)
        assert len(cluster.run(cluster.read_all())) == 2, "the first message was not delivered again"


def test_a_message_sent_back_is_retried_and_ends_as_a_dead_letter() -> None:
    with World(7) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        master = cluster.app(cluster.master).address

        async def scenario() -> None:
            async with cluster.client() as client:
                remoting = client.remoting
                assert (await remoting.call(master, heartbeat("CG"))).code == 0
                await asyncio.sleep(0.2)
                await client.producer("PG").send("orders", b"bad", tags="T", properties={"KEYS": "k"})
                (original,) = await wait_for(client, "orders")
                sent_ms = world.now_ms
                assert (await remoting.call(master, send_back("CG", original))).code == 0
                (first,) = await wait_for(client, "%RETRY%CG")
                assert 10_000 <= world.now_ms - sent_ms < 10_500, "level 3"
                assert (first.body, first.properties["TAGS"], first.properties["KEYS"]) == (b"bad", "T", "k")
                assert first.properties["RETRY_TOPIC"] == "orders"
                assert first.properties["ORIGIN_MESSAGE_ID"] == offset_id(original)
                assert first.properties["UNIQ_KEY"] == original.properties["UNIQ_KEY"]
                assert (await remoting.call(master, send_back("CG", first))).code == 0
                second = (await wait_for(client, "%RETRY%CG", 2))[1]
                assert (second.reconsume_times, second.properties["DELAY"]) == (2, "4")
                assert second.properties["ORIGIN_MESSAGE_ID"] == offset_id(original)
                assert (await remoting.call(master, send_back("CG", second, -1))).code == 0
                await asyncio.sleep(1)
                (dead,) = await wait_for(client, "%DLQ%CG")
                assert (dead.body, dead.reconsume_times) == (b"bad", 3)
                assert dead.properties["RETRY_TOPIC"] == "orders"

        cluster.run(scenario())


def test_a_send_back_that_names_another_message_is_refused() -> None:
    """After an election that lost messages, other messages are at their offsets."""
    with World(9) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        master = cluster.app(cluster.master).address

        def named(message: StoredMessage, name: str | None) -> RemotingCommand:
            header = ConsumerSendMsgBackHeader(message.physical_offset, "CG", 1, origin_msg_id=name)
            return RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)

        async def scenario() -> None:
            async with cluster.client() as client:
                remoting = client.remoting
                assert (await remoting.call(master, heartbeat("CG"))).code == 0
                await client.producer("PG").send("orders", b"there")
                (message,) = await wait_for(client, "orders")
                gone = message.properties["UNIQ_KEY"][:-1] + "Z"
                for refused in (gone, offset_id(message)[:-1] + "F"):
                    reply = await remoting.call(master, named(message, refused))
                    assert reply.code == ResponseCode.SYSTEM_ERROR
                    assert refused in str(reply.remark)
                own = message.properties["UNIQ_KEY"], offset_id(message), offset_id(message).lower(), "", None
                for name in own:
                    assert (await remoting.call(master, named(message, name))).code == 0, name
                assert len(await wait_for(client, "%RETRY%CG", len(own))) == len(own)

        cluster.run(scenario())


def test_a_send_back_is_answered_after_replication_and_refused_by_a_slave() -> None:
    with World(8) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()

        async def scenario() -> None:
            async with cluster.client() as client:
                remoting, master = client.remoting, cluster.app(cluster.master)
                slave = next(cluster.app(node) for node in cluster.brokers if node is not cluster.master)
                await client.producer("PG").send("orders", b"bad")
                (message,) = await wait_for(client, "orders")
                refused = await remoting.call(slave.address, send_back("CG", message))
                assert refused.code == ResponseCode.SYSTEM_BUSY
                message_nowhere = RemotingCommand.request(
                    RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackHeader(1 << 40, "CG", 0)
                )
                assert (
                    await remoting.call(master.address, message_nowhere)
                ).code == ResponseCode.SYSTEM_ERROR
                end = master.store.max_offset()
                assert (await remoting.call(master.address, send_back("CG", message))).code == 0
                assert slave.store.max_offset() > end, "code 0 means that the slave holds it"
                world.network.cut(*(node.host for node in cluster.brokers))
                unknown = await remoting.call(master.address, send_back("CG", message), 10_000)
                assert unknown.code == ResponseCode.SYSTEM_ERROR
                try:
                    result = await client.producer("PG").send("orders", b"after")
                except (SendRefused, SendOutcomeUnknown):
                    return
                assert not result.acknowledged, "the client waits as long as the master"

        cluster.run(scenario())


@pytest.mark.parametrize("tries", [-3, -(2**31), 2**31 - 1])
def test_no_number_of_tries_that_a_sender_chose_stops_the_broker(tries: int) -> None:
    with World(9) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        sent = {
            "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0", "i": "",
            "j": str(tries), "k": "false", "m": "false",
        }  # fmt: skip
        address = cluster.app(cluster.master).address
        reply = cluster.run(cluster.ask(address, RequestCode.SEND_MESSAGE_V2, sent, b"bad"))
        assert reply.code == 0

        async def scenario() -> None:
            async with cluster.client() as client:
                (message,) = await wait_for(client, "orders")
                answer = await client.remoting.call(address, send_back("CG", message))
                assert answer.code == (0 if tries < 0 else ResponseCode.SYSTEM_ERROR)
                if tries < 0:
                    (again,) = await wait_for(client, "%RETRY%CG")
                    assert again.body == b"bad"

        cluster.run(scenario())
        assert cluster.masters == [cluster.master]
