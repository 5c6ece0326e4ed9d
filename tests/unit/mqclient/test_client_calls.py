"""Producer, consumer and routes against a scripted name server and broker, over loopback."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from mqclient.client import Client
from mqclient.consumer import PullStatus
from mqclient.errors import PullFailed, SendOutcomeUnknown, SendRefused
from mqclient.message import OutgoingMessage, decode_properties
from mqclient.producer import SendStatus
from mqclient.route import MessageQueue
from mqclient.routetable import TopicRoutes
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.pull import PullMessageHeader, PullMessageResponseHeader
from remoting.headers.send import SendMessageHeader
from tests.unit.mqclient.servers import Server, cluster, route_to, stored_as, with_servers

BODY = (Path(__file__).parents[2] / "vectors" / "mqclient" / "pull-body.bin").read_bytes()


async def renewed(client: Client) -> None:
    """Renews the route of T and waits for the answer."""
    known = await client.routes.get("T")
    client.routes.renew("T")
    async with asyncio.timeout(5):
        while await client.routes.get("T") is known:  # noqa: ASYNC110 - the sockets are real, so is the waiting
            await asyncio.sleep(0.005)


def test_sends_take_the_queues_in_turn_and_name_the_message() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        results = [await producer.send("T", b"hi", keys="k1 k2", tags="A") for _ in range(8)]
        assert all(result.acknowledged for result in results)
        assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert len({result.message_ids for result in results}) == 8
        header = SendMessageHeader.of(broker.asked[0])
        properties = decode_properties(header.properties or "")
        assert properties["KEYS"] == "k1 k2"
        assert properties["TAGS"] == "A"
        assert (properties["UNIQ_KEY"],) == results[0].message_ids
        assert len(namesrv.asked) == 1

    with_servers(namesrv, broker)(scenario)


def test_a_stored_message_is_sent_again_with_its_born_fields() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        message = OutgoingMessage(
            b"x", {"UNIQ_KEY": "old"}, flag=9, born_timestamp_ms=1_700_000_000_000, sys_flag=0x201
        )
        result = await client.producer("g").send_message("t", message, queue_id=2)
        assert result.message_ids == ("old",)

    with_servers(namesrv, broker)(scenario)
    header = SendMessageHeader.of(broker.asked[0])
    assert (header.flag, header.born_timestamp, header.sys_flag) == (9, 1_700_000_000_000, 0x201)


def test_many_sends_share_one_connection_and_are_answered_out_of_order() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        results = await asyncio.gather(*(producer.send("T", b"x", queue_id=2) for _ in range(200)))
        assert {result.queue.queue_id for result in results} == {2}

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize("status", [10, 11, 12])
def test_a_message_stored_without_a_safe_copy_is_not_acknowledged(status: int) -> None:
    namesrv, broker = cluster(stored_as(status))

    async def scenario(client: Client) -> None:
        result = await client.producer("PG").send("T", b"x")
        assert result.status is SendStatus(status)
        assert not result.acknowledged
        assert result.queue_offset == 7

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (2, "[REJECTREQUEST]system busy"),
        (14, "slave"),
        (16, "not writable"),
        (17, "no topic"),
        (1, "in-sync replicas not enough"),
    ],
)
def test_a_refusal_before_the_write_is_definite_and_renews_the_route(code: int, remark: str) -> None:
    namesrv, broker = cluster(stored_as(code, remark))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused) as caught:
            await client.producer("PG").send("T", b"x")
        assert caught.value.code == code
        await renewed(client)
        assert len(namesrv.asked) >= 2

    with_servers(namesrv, broker)(scenario)


def test_an_error_inside_the_broker_leaves_the_outcome_unknown() -> None:
    namesrv, broker = cluster(stored_as(1, "disk went away"))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendOutcomeUnknown, match="disk went away"):
            await client.producer("PG").send("T", b"x")

    with_servers(namesrv, broker)(scenario)


def test_a_timeout_leaves_the_outcome_unknown() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        await producer.send("T", b"connected")
        broker.answers["SEND_MESSAGE_V2"] = lambda request: None
        with pytest.raises(SendOutcomeUnknown, match="is unknown"):
            await producer.send("T", b"x", timeout_ms=30)

    with_servers(namesrv, broker)(scenario)


def test_a_send_that_never_left_the_connection_is_refused_definitely() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        await producer.send("T", b"connected")
        for peer in client.remoting._connections.peers:
            peer.pause_writing()
        with pytest.raises(SendRefused, match="was not sent: for 20 ms"):
            await producer.send("T", b"x", timeout_ms=20)

    with_servers(namesrv, broker)(scenario)
    assert len(broker.asked) == 1


def test_an_unknown_topic_and_an_unreachable_name_server_refuse_definitely() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: request.reply(17, "No topic route"))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused, match="No topic route"):
            await client.producer("PG").send("T", b"x")
        await namesrv.server.stop()
        with pytest.raises(SendRefused, match="no route"):
            await client.producer("PG").send("T", b"x")

    with_servers(namesrv)(scenario)


def test_after_a_failover_the_new_master_is_found_at_once() -> None:
    namesrv, old = cluster(stored_as(offset=1))
    new = Server(SEND_MESSAGE_V2=stored_as(offset=2))

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        await producer.send("T", b"x")
        await old.server.stop()
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({2: old.address})
        with pytest.raises((SendRefused, SendOutcomeUnknown)):
            await producer.send("T", b"x")
        await renewed(client)
        with pytest.raises(SendRefused, match="no master"):
            await producer.send("T", b"x")
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: new.address})
        await renewed(client)
        assert (await producer.send("T", b"x")).queue_offset == 2

    with_servers(namesrv, old, new)(scenario)


def test_with_patience_a_refused_send_is_repeated_to_the_new_master() -> None:
    namesrv, old = cluster(stored_as(14, "a slave by now"))
    new = Server(SEND_MESSAGE_V2=stored_as(offset=2))

    def refused(request: RemotingCommand) -> RemotingCommand:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: new.address})
        return stored_as(14, "a slave by now")(request)

    async def scenario(client: Client) -> None:
        old.answers["SEND_MESSAGE_V2"] = refused
        result = await client.producer("PG").send("T", b"x", patience_ms=60_000)
        assert (result.status, result.queue_offset) == (SendStatus.SEND_OK, 2)

    with_servers(namesrv, old, new)(scenario)
    ids = {
        decode_properties(SendMessageHeader.of(each).properties)["UNIQ_KEY"] for each in old.asked + new.asked
    }
    assert len(ids) == 1 and len(new.asked) == 1


@pytest.mark.parametrize(
    ("code", "remark"), [(13, "too long"), (1, "disk went away"), (10, "stored, not flushed")]
)
def test_patience_repeats_no_send_that_is_refused_for_good_or_maybe_stored(code: int, remark: str) -> None:
    namesrv, broker = cluster(stored_as(code, remark))

    async def scenario(client: Client) -> None:
        with suppress(SendRefused, SendOutcomeUnknown):
            await client.producer("PG").send("T", b"x", patience_ms=60_000)

    with_servers(namesrv, broker)(scenario)
    assert len(broker.asked) == 1


def test_patience_has_a_limit() -> None:
    namesrv, broker = cluster(stored_as(2, "busy"))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused, match="busy"):
            await client.producer("PG").send("T", b"x", patience_ms=1)

    with_servers(namesrv, broker)(scenario)
    assert broker.asked


def test_failing_sends_ask_the_name_server_at_a_bounded_rate() -> None:
    namesrv, broker = cluster(stored_as(14, "no"))

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        sends = (producer.send("T", b"x") for _ in range(300))
        refused = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(error, SendRefused) for error in refused)
        await renewed(client)
        assert len(namesrv.asked) <= 10

    with_servers(namesrv, broker)(scenario)


def test_a_batch_goes_to_one_queue_and_keeps_an_id_for_each_message() -> None:
    namesrv, broker = cluster(stored_as(offset=40))

    async def scenario(client: Client) -> None:
        messages = [OutgoingMessage(b"a"), OutgoingMessage(b"b", {"KEYS": "k"})]
        result = await client.producer("PG").send_batch("T", messages, queue_id=1)
        assert result.queue == MessageQueue("T", "broker-a", 1)
        assert result.queue_offset == 40
        assert len(set(result.message_ids)) == 2
        header = SendMessageHeader.of(broker.asked[0])
        assert header.batch and decode_properties(header.properties or "") == {"WAIT": "true"}

    with_servers(namesrv, broker)(scenario)


def pulls(request: RemotingCommand) -> RemotingCommand:
    """A queue that holds the six pulled records, the last at offset 10."""
    offset = PullMessageHeader.from_ext(request.ext).queue_offset
    if offset > 11:
        return request.reply(ResponseCode.PULL_OFFSET_MOVED, None, PullMessageResponseHeader(0, 11, 0, 11))
    if offset == 11:
        return request.reply(ResponseCode.PULL_NOT_FOUND, None, PullMessageResponseHeader(0, 11, 0, 11))
    return request.reply(0, "FOUND", PullMessageResponseHeader(0, 11, 0, 11), BODY)


def test_a_pull_returns_messages_and_the_next_offset() -> None:
    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=pulls)
    queue = MessageQueue("T", "broker-a", 0)

    async def scenario(client: Client) -> None:
        consumer = client.consumer("CG")
        assert await consumer.queues("T") == [MessageQueue("T", "broker-a", number) for number in range(4)]
        found = await consumer.pull(queue, 0)
        assert (found.status, found.next_offset, len(found.messages)) == (PullStatus.FOUND, 11, 6)
        nothing = await consumer.pull(queue, 11, suspend_ms=10)
        assert (nothing.status, nothing.messages) == (PullStatus.NO_NEW_MESSAGE, [])

    with_servers(namesrv, broker)(scenario)


def test_reading_a_range_ends_at_its_end_and_refuses_an_offset_outside() -> None:
    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=pulls)
    queue = MessageQueue("T", "broker-a", 0)

    async def scenario(client: Client) -> None:
        consumer = client.consumer("CG")
        assert [message.queue_offset async for message in consumer.read(queue, 0, 8)] == [0, 6, 7]
        with pytest.raises(PullFailed, match="outside"):
            _ = [message async for message in consumer.read(queue, 12, 13)]
        with pytest.raises(PullFailed, match="nothing to read"):
            _ = [message async for message in consumer.read(queue, 11, 12, patience_ms=1)]

    with_servers(namesrv, broker)(scenario)


def test_a_reader_of_a_reset_group_fails_with_the_new_offset() -> None:
    def moved(request: RemotingCommand) -> RemotingCommand:
        return request.reply(21, "the cg or dlq be reset", PullMessageResponseHeader(0, 9, 0, 11))

    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=moved)
    queue = MessageQueue("T", "broker-a", 0)

    async def scenario(client: Client) -> None:
        with pytest.raises(PullFailed) as failed:
            _ = [message async for message in client.consumer("CG").read(queue, 3, 8)]
        assert str(failed.value).endswith("group CG was moved: the broker returned next offset 9, not 3")
        assert failed.value.code == 21

    with_servers(namesrv, broker)(scenario)


def test_messages_of_an_answer_with_an_unchanged_next_offset_are_read_once() -> None:
    nexts = [0, 0, 11]

    def next_offset_unchanged(request: RemotingCommand) -> RemotingCommand:
        return request.reply(0, "FOUND", PullMessageResponseHeader(0, nexts.pop(0), 0, 11), BODY)

    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=next_offset_unchanged)

    async def scenario(client: Client) -> None:
        read = client.consumer("CG").read(MessageQueue("T", "broker-a", 0), 0, 8)
        assert [message.queue_offset async for message in read] == [0, 6, 7]

    with_servers(namesrv, broker)(scenario)
    assert nexts == []


def test_reading_with_a_refused_group_fails_soon() -> None:
    def unknown(request: RemotingCommand) -> RemotingCommand:
        return request.reply(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [CG] does not exist"
        )

    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=unknown)

    async def scenario(client: Client) -> None:
        with pytest.raises(PullFailed, match="does not exist"):
            _ = [row async for row in client.consumer("CG").read(MessageQueue("T", "broker-a", 0), 0, 8)]

    with_servers(namesrv, broker)(scenario)
    assert len(broker.asked) == 1


def test_offsets_are_read_and_committed() -> None:
    committed: list[str] = []

    def commits(request: RemotingCommand) -> RemotingCommand:
        committed.append(request.ext["commitOffset"])
        return request.reply()

    def query(request: RemotingCommand) -> RemotingCommand:
        return request.reply(0, None, {"offset": committed[-1]}) if committed else request.reply(22, "none")

    namesrv, broker = cluster(
        stored_as(),
        GET_MAX_OFFSET=lambda request: request.reply(0, None, {"offset": "11"}),
        GET_MIN_OFFSET=lambda request: request.reply(0, None, {"offset": "x"}),
        UPDATE_CONSUMER_OFFSET=commits,
        QUERY_CONSUMER_OFFSET=query,
    )
    queue = MessageQueue("T", "broker-a", 0)

    async def scenario(client: Client) -> None:
        consumer = client.consumer("CG")
        assert await consumer.max_offset(queue) == 11
        with pytest.raises(PullFailed, match="unreadable"):
            await consumer.min_offset(queue)
        assert await consumer.committed(queue) is None
        await consumer.commit(queue, 5)
        assert await consumer.committed(queue) == 5

    with_servers(namesrv, broker)(scenario)


def test_a_client_like_javas_renews_routes_by_age_and_not_after_failed_sends() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        patient = TopicRoutes(
            client.routes._namesrv[0], client.remoting, client.clock, asks_after_failures=False
        )
        known = await patient.get("T")
        asked = len(namesrv.asked)
        patient.renew("T")
        await asyncio.sleep(0.05)
        assert await patient.get("T") is known
        assert len(namesrv.asked) == asked
        await patient.close()

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize(
    ("namesrv", "why"),
    [
        ("noport", "port is missing"),
        ("a:1,b:2", "a comma where"),
        ("http://a:1", "without http"),
        (" ; ", "no name server"),
    ],
)
def test_a_malformed_name_server_list_is_refused_at_once(namesrv: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Client(namesrv)
