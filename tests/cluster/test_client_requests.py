"""Unusual requests of clients, each over the wire: long headers, odd delays, names at their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from mqadmin.admin import AdminClient
from mqadmin.calls import groups
from mqclient.errors import PullFailed
from mqclient.message import decode_messages
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import JSON, ROCKETMQ, RemotingCommand
from remoting.frame import HEADER_BYTES_MAX
from remoting.headers.admin import TopicHeader
from remoting.headers.messages import ConsumerSendMsgBackHeader, QueryMessageHeader
from remoting.headers.pull import PullMessageHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import NAMESRV, Pair
from tests.cluster.served import Served
from tests.unit.messagestore.storehelp import encode_batch

PROPERTIES_MAX = 32_767


@pytest.fixture
def served() -> Iterator[Served]:
    with World(11) as world:
        yield Served(world)


def send_ext(properties: str, **more: str) -> dict[str, str]:
    """The header of a send to queue 2 of topic orders, as Java writes it."""
    ext = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return ext | more


def asked_over_one_connection(served: Served, requests: list[RemotingCommand]) -> list[RemotingCommand]:
    async def ask() -> list[RemotingCommand]:
        async with served.cluster.client() as client:
            return [await client.remoting.call(served.master.address, each) for each in requests]

    replies: list[RemotingCommand] = served.cluster.run(ask())
    return replies


def send(properties: str, kind: int = JSON, **more: str) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_ext(properties, **more), b"body")
    request.serialize_type = kind
    return request


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_properties_are_accepted_or_refused_by_their_own_length(served: Served, kind: int) -> None:
    """Each pair has two separators, six bytes each in JSON: 3,700 properties are a normal request."""
    added = 150  # UNIQ_KEY and what the broker adds
    pairs = "".join(f"k{number:04}\x01v\x02" for number in range((PROPERTIES_MAX - added) // 8))
    escaped = "k\x01" + "\x03" * (PROPERTIES_MAX - added) + "\x02"
    over = "k\x01" + "\x03" * PROPERTIES_MAX + "\x02"
    far_over = "k\x01" + "\x03" * HEADER_BYTES_MAX + "\x02"
    replies = asked_over_one_connection(
        served, [send(text, kind) for text in (pairs, over, escaped, far_over, "k\x01v\x02")]
    )
    assert [reply.code for reply in replies] == [0, 13, 0, 13, 0]
    assert str(PROPERTIES_MAX) in (replies[1].remark or "")
    assert "header of" in (replies[3].remark or "")
    read = [message for message in served.cluster.run(served.cluster.read_all()) if message.queue_id == 2]
    assert sorted(len(message.properties) for message in read) == sorted([len(pairs) // 8 + 4, 5, 5])


def test_an_oversized_header_refuses_its_own_request_only(served: Served) -> None:
    header = {"topic": "orders", "queueId": "1"}
    requests = [
        RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header | {"z": "z" * HEADER_BYTES_MAX}),
        RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header),
    ]
    refused, answered = asked_over_one_connection(served, requests)
    assert (refused.code, "header of" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert answered.ext["offset"] == "3"


HOUR_MS = 3_600_000


def heartbeat(expression: str, version: int) -> RemotingCommand:
    subscription = SubscriptionData("orders", expression, sub_version=version)
    data = HeartbeatData("c1", [], [ConsumerData("CG", subscription_data_set=[subscription])])
    return RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())


def pull(version: int) -> RemotingCommand:
    header = PullMessageHeader("CG", "orders", 1, 0, 32, 0, 0, 0, version)
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def test_a_client_with_a_clock_set_back_gets_its_newest_subscription(served: Served) -> None:
    """Queue 1 has messages with the tags one, two and three."""
    _, first, _, second = asked_over_one_connection(
        served,
        [
            heartbeat("one", 9 * HOUR_MS),
            pull(9 * HOUR_MS),
            heartbeat("two || three", 8 * HOUR_MS),
            pull(8 * HOUR_MS),
        ],
    )
    assert [
        [message.body for message in decode_messages(bytes(reply.body or b""))] for reply in (first, second)
    ] == [
        [b"one"],
        [b"two", b"three"],
    ]


# -- topics that were deleted and recreated


def controlled(world: World) -> Cluster:
    return Cluster(world, 3, minInSyncReplicas=2)


def raft_mode(world: World) -> GroupSet:
    return GroupSet(world)


SETS: dict[str, Callable[[World], Cluster]] = {"controllers": controlled, "Raft mode": raft_mode}
ORDERS = TopicHeader("orders")


def delete(cluster: Cluster) -> None:
    address = cluster.app(cluster.master).address
    assert cluster.run(cluster.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, ORDERS)).code == 0


def shown(cluster: Cluster | Pair, node: Node) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The bodies that a new group reads from this broker, and the begin and end of each queue."""
    store = cluster.app(node).store

    async def read() -> list[bytes]:
        found = []
        for queue_id in range(4):
            offset, end = 0, store.max_queue_offset("orders", queue_id)
            while offset < end:
                result = store.get("orders", queue_id, offset, 32, 1 << 20, None)
                await store.load(result)
                records = b"".join(map(bytes, result.buffers))
                found += [message.body for message in decode_messages(records)]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
        return found

    ends = [
        (store.min_queue_offset("orders", queue_id), store.max_queue_offset("orders", queue_id))
        for queue_id in range(4)
    ]
    return cluster.run(read()), ends


def test_in_a_pair_a_recreated_topic_shows_no_message_from_before_its_deletion() -> None:
    with World(13) as world:
        pair = Pair(world)
        pair.start_up()
        pair.send(*(b"former %d" % number for number in range(8)))
        world.run_for_ms(300)
        master = pair.app(pair.master).address
        by_key = QueryMessageHeader("orders", "k", 9, 0, 1 << 60)
        reply = pair.run(pair.asked(master, send("KEYS\x01k\x02")))
        assert reply.code == 0
        world.run_for_ms(300)
        assert len(pair.ask(pair.master, RequestCode.QUERY_MESSAGE, by_key).body or b"") > 0
        assert pair.ask(pair.master, RequestCode.DELETE_TOPIC_IN_BROKER, ORDERS).code == 0
        pair.create_topic()
        pair.send(*(b"news %d" % number for number in range(4)))
        world.run_for_ms(12_000)  # slaves request tables
        assert pair.ask(pair.master, RequestCode.QUERY_MESSAGE, by_key).code == ResponseCode.QUERY_NOT_FOUND

        def all_are_news() -> None:
            for node in pair.nodes:
                bodies, ends = shown(pair, node)
                assert sorted(bodies) == [b"news %d" % number for number in range(4)], node.name
                assert all(first > 0 for first, _ in ends)

        all_are_news()
        for node in pair.nodes:
            node.kill()
            node.disk.wipe("consumequeue/")
        pair.start(*pair.nodes)
        world.run_until(lambda: pair.leads() and pair.caught_up(), 20_000)
        world.run_for_ms(1_000)
        all_are_news()


@pytest.mark.parametrize("mode", SETS)
def test_a_recreated_topic_shows_no_message_from_before_its_deletion_under_any_master(mode: str) -> None:
    former, news = (
        [b"former %d" % number for number in range(40)],
        [b"news %d" % number for number in range(8)],
    )
    with World(12) as world:
        cluster = SETS[mode](world)
        cluster.start_up()
        cluster.run(cluster.send_all(former))
        world.run_for_ms(300)
        assert sorted(shown(cluster, cluster.master)[0]) == sorted(former)
        delete(cluster)
        cluster.create_topic()
        world.run_for_ms(300)
        assert {node.name: shown(cluster, node) for node in cluster.brokers} == {
            node.name: ([], [(10, 10)] * 4) for node in cluster.brokers
        }
        results = cluster.run(cluster.send_all(news))
        assert sorted(result.queue_offset for result in results) == [10] * 4 + [11] * 4
        world.run_for_ms(300)
        wanted = sorted(news), [(10, 12)] * 4
        for node in cluster.brokers:
            bodies, ends = shown(cluster, node)
            assert (sorted(bodies), ends) == wanted, node.name
        for node in cluster.brokers:  # and once the queues are rebuilt from the log and the tables
            node.kill()
            node.disk.wipe("consumequeue/")
        for node in cluster.brokers:
            cluster.start(node)
        world.run_until(lambda: len(cluster.masters) == 1, 60_000)
        world.run_for_ms(2_000)
        for node in cluster.brokers:
            bodies, ends = shown(cluster, node)
            assert (sorted(bodies), ends) == wanted, node.name
        first = cluster.master
        first.kill()
        world.run_until(lambda: any(node is not first for node in cluster.masters), 60_000)
        bodies, ends = shown(cluster, cluster.master)
        assert (sorted(bodies), ends) == wanted


def test_a_pairs_slave_serves_reads_after_its_master_is_gone() -> None:
    """It serves messages, bounds and offsets; a commit still needs a master."""
    bodies = [b"%d" % number for number in range(8)]
    with World(14) as world:
        pair = Pair(world, master_role="ASYNC_MASTER", slaveReadEnable=True)
        pair.start_up()
        pair.send(*bodies)
        world.run_for_ms(3_000)

        async def read() -> list[bytes]:
            found: list[bytes] = []
            async with pair.client() as client:
                consumer = client.consumer("readers")
                queues = await consumer.queues("orders")
                await consumer.commit(queues[0], 1)
            await asyncio.sleep(3)
            pair.master.kill()
            await asyncio.sleep(1)
            async with pair.client() as client:
                consumer = client.consumer("readers")
                for queue in queues:
                    first, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                    found += [message.body async for message in consumer.read(queue, first, end)]
                    pulled = await consumer.pull(queue, first)
                    assert len(pulled.messages) == end - first
                assert await consumer.committed(queues[0]) == 1
                with pytest.raises(PullFailed, match="no master"):
                    await consumer.commit(queues[0], 2)
                admin = AdminClient(client.clock)
                members = await groups.one_of_each_set(admin, NAMESRV)
                progress = await groups.progress(admin, members, "readers")
                rows = {queue.queue_id: row for queue, row in progress.offsets.items()}
                assert (rows[0].consumer_offset, rows[0].broker_offset) == (1, 2)
                await admin.close()
            return found

        assert sorted(pair.run(read())) == bodies


def test_a_pull_error_names_slave_read_enable_when_only_a_slave_is_left() -> None:
    with World(15) as world:
        pair = Pair(world, master_role="ASYNC_MASTER")
        pair.start_up()
        pair.send(b"one")

        async def read() -> None:
            await asyncio.sleep(1)
            pair.master.kill()
            await asyncio.sleep(1)
            async with pair.client() as client:
                consumer = client.consumer("readers")
                (queue, *_) = await consumer.queues("orders")
                with pytest.raises(PullFailed, match="slaveReadEnable=true"):
                    await consumer.pull(queue, 0)

        pair.run(read())


# -- names, numbers and sizes at their limits


def test_oversized_sends_are_refused_with_their_size_and_the_limit() -> None:
    with World(16) as world:
        served = Served(world)
        batch = encode_batch([(0, bytes(3 << 20), b""), (0, bytes(3 << 20), b"")])
        requests = [send("k\x01v\x02"), send("k\x01v\x02", m="true"), send("k\x01" + "v" * 32_800 + "\x02")]
        requests[0].body, requests[1].body = bytes((4 << 20) + 1), batch
        broken = send("k\x01v\x02", m="true")
        broken.body = batch[:-1][:50]
        codes, remarks = zip(
            *(
                (reply.code, reply.remark or "")
                for reply in asked_over_one_connection(served, [*requests, broken])
            ),
            strict=True,
        )
        assert codes == (13, 13, 13, 13)
        assert remarks[0] == "a body of 4194305 bytes; 4194304 are allowed (maxMessageSize)"
        assert remarks[1] == f"a batch of {len(batch)} bytes; 4194304 are allowed (maxMessageSize)"
        assert remarks[2].startswith("properties of 32") and remarks[2].endswith("32767 are allowed")
        assert remarks[3].startswith("batch body at 0:")


def test_a_negative_queue_id_means_any_queue(served: Served) -> None:
    requests = [send("k\x01v\x02", e=text) for text in ("-1", str(-(2**31)), str(-(2**31) - 1), str(2**31))]
    replies = asked_over_one_connection(served, requests)
    assert [reply.code for reply in replies] == [0, 0, 1, 1]
    assert {reply.ext["queueId"] for reply in replies[:2]} <= set("0123")


def test_a_message_that_repeats_a_key_is_found_once(served: Served) -> None:
    assert asked_over_one_connection(served, [send("KEYS\x01dup dup other\x02")])[0].code == 0
    served.world.run_for_ms(200)
    reply = served.ask(RequestCode.QUERY_MESSAGE, QueryMessageHeader("orders", "dup", 9, 0, 1 << 60))
    assert len(decode_messages(bytes(reply.body or b""))) == 1


@pytest.mark.parametrize(("length", "made"), [(121, True), (248, True), (249, False), (255, False)])
def test_a_group_is_created_only_if_the_name_of_its_retry_topic_fits(
    served: Served, length: int, made: bool
) -> None:
    group = "g" * length
    consumer = ConsumerData(group, subscription_data_set=[SubscriptionData("orders")])
    body = HeartbeatData("c1", [], [consumer]).encode()
    assert served.ask(RequestCode.HEART_BEAT, None, body).code == 0
    back = ConsumerSendMsgBackHeader(int(served.results[0].offset_message_id[-16:], 16), group, 3)
    reply = served.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    wanted = 0 if made else ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert reply.code == wanted, reply.remark
    assert (served.master.tables.groups.find(group) is not None) == made
