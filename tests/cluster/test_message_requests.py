"""Lookups, listings and reads of messages at masters, and at slaves that serve reads."""

from __future__ import annotations

from mqclient.message import OutgoingMessage, decode_messages
from mqruntime.javahash import java_string_hash
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import (
    TopicHeader,
)
from remoting.headers.messages import QueryConsumeQueueHeader, QueryMessageHeader, ViewMessageHeader
from remoting.headers.offsets import (
    UpdateConsumerOffsetHeader,
)
from simulation.kernel.node import EPOCH_MS
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.served import Served
from tests.support.pullbench import pull


def test_a_message_is_shown_by_its_physical_offset(served: Served) -> None:
    physical = int(served.results[1].offset_message_id[16:], 16)
    reply = served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(physical))
    (message,) = decode_messages(bytes(reply.body or b""))
    assert message.body == b"two"
    assert served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(physical + 1)).code == 1
    assert served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(1 << 40)).code == 1


def test_a_record_that_no_queue_lists_is_read_by_its_physical_offset(served: Served) -> None:
    """A slave repairs any record from its master with this request."""
    physical = int(served.results[1].offset_message_id[16:], 16)
    assert served.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("orders")).code == 0
    assert served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(physical)).code == 0


def test_messages_are_found_by_key_and_by_the_unique_id_of_their_producer(served: Served) -> None:
    async def send() -> str:
        async with served.cluster.client() as client:
            producer = client.producer("PG")
            for number in range(3):
                result = await producer.send(
                    "orders", b"keyed %d" % number, queue_id=number, properties={"KEYS": "k1 k2"}
                )
            return result.message_ids[0]

    unique = served.cluster.run(send())
    served.world.run_for_ms(100)

    def query(key: str, count: int = 64, unique_key: bool | None = None) -> list[bytes]:
        header = QueryMessageHeader("orders", key, count, 0, 1 << 62, unique_key)
        assert served.ask(RequestCode.QUERY_MESSAGE, header, slave=True).code == ResponseCode.SYSTEM_BUSY
        reply = served.ask(RequestCode.QUERY_MESSAGE, header)
        assert int(reply.ext["indexLastUpdateTimestamp"]) > EPOCH_MS
        assert int(reply.ext["indexLastUpdatePhyoffset"]) > 0
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        return [message.body for message in decode_messages(bytes(reply.body or b""))]

    assert query("k1") == query("k2") == [b"keyed 2", b"keyed 1", b"keyed 0"]
    assert query("k1", 2) == [b"keyed 2", b"keyed 1"]
    assert query(unique, 1, True) == [b"keyed 2"]
    assert query("k3") == []
    index_repair = served.master.store._index_mending
    assert index_repair is not None
    index_repair.fills = True
    reply = served.ask(RequestCode.QUERY_MESSAGE, QueryMessageHeader("orders", "k3", 1, 0, 1 << 62))
    assert reply.code == ResponseCode.QUERY_NOT_FOUND and "index files are being rebuilt" in (
        reply.remark or ""
    )
    index_repair.fills = False

    async def forge() -> None:
        async with served.cluster.client() as client:
            forged = OutgoingMessage(b"forged", {"UNIQ_KEY": unique})
            await client.producer("Strangers").send_message("orders", forged, queue_id=0)

    served.cluster.run(forge())
    served.world.run_for_ms(100)
    assert query(unique, 2, True) == [b"forged", b"keyed 2"], (
        "a message with a copied id does not hide the original"
    )


def test_a_queue_listing_has_upstreams_form_and_a_topic_lists_its_groups(served: Served) -> None:
    header = QueryConsumeQueueHeader("orders", 1, 1, 5, "CG")
    listed = served.json(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert (listed["minQueueIndex"], listed["maxQueueIndex"]) == (0, 3)
    assert listed["filterData"] == "CG@orders is not online!"
    positions = [int(result.offset_message_id[16:], 16) for result in served.results[1:]]
    assert [entry["physicOffset"] for entry in listed["queueData"]] == positions
    assert set(listed["queueData"][0]) == {"eval", "physicOffset", "physicSize", "tagsCode"}
    assert listed["queueData"][0]["tagsCode"] == java_string_hash("two")
    nowhere = QueryConsumeQueueHeader("orders", 3, 0, 5, "CG")
    assert served.ask(RequestCode.QUERY_CONSUME_QUEUE, nowhere).code == ResponseCode.SYSTEM_ERROR

    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    groups = served.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader("orders"))
    assert groups == {"groupList": ["CG"]}


def test_a_slave_serves_reads_only_with_slave_read_enable() -> None:
    for allowed, code in ((True, 0), (False, ResponseCode.SYSTEM_BUSY)):
        with World(32) as world:
            cluster = Cluster(world, 2, slaveReadEnable=allowed)
            cluster.start_up()
            cluster.run(cluster.send_all([b"one"]))
            world.run_for_ms(1_000)
            slave = cluster.slaves[0]
            address = cluster.app(slave).address
            codes = {
                cluster.run(cluster.ask(address, RequestCode.PULL_MESSAGE, pull(queueId=queue).ext)).code
                for queue in range(4)
            }
            assert code in codes
            assert 0 in codes if allowed else codes == {ResponseCode.SYSTEM_BUSY}


def test_a_batch_gets_consecutive_offsets_and_its_members_their_own_ids(served: Served) -> None:
    async def scenario() -> list[tuple[int, bytes, str]]:
        async with served.cluster.client() as client:
            producer, consumer = client.producer("PG"), client.consumer("CG")
            batch = [OutgoingMessage(b"a", {"TAGS": "x"}), OutgoingMessage(b"b", {"TAGS": "y"})]
            result = await producer.send_batch("orders", batch, queue_id=2)
            assert len(result.offset_message_id.split(",")) == 2
            queue = (await consumer.queues("orders"))[2]
            found = await consumer.pull(queue, 0)
            assert [message.message_id for message in found.messages] == list(result.message_ids)
            return [(m.queue_offset, m.body, m.properties["TAGS"]) for m in found.messages]

    assert served.cluster.run(scenario()) == [(0, b"a", "x"), (1, b"b", "y")]
