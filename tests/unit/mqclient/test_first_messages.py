"""The first message to a missing topic is sent to brokers that create it. Upstream: DefaultMQProducer."""

from __future__ import annotations

import pytest

from mqclient.client import Client
from mqclient.errors import RouteUnknown, SendRefused
from mqclient.route import MessageQueue
from mqclient.transactions import TransactionState
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageHeader
from tests.unit.mqclient.servers import Server, cluster, route_to, routes, stored_as, with_servers


def done(request: RemotingCommand) -> RemotingCommand:
    return request.reply()


def asked_for(namesrv: Server) -> list[str]:
    return [request.ext["topic"] for request in namesrv.asked]


@pytest.mark.parametrize(("of_the_model", "used"), [(8, [0, 1, 2, 3]), (2, [0, 1])])
def test_the_first_messages_of_a_new_topic_use_the_route_of_tbw102(
    of_the_model: int, used: list[int]
) -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        model = route_to({0: broker.address}, queues=of_the_model)
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(TBW102=model)
        producer = client.producer("PG")
        results = [await producer.send("T", b"x") for _ in range(8)]
        assert sorted({result.queue for result in results}) == [
            MessageQueue("T", "broker-a", queue_id) for queue_id in used
        ]

    with_servers(namesrv, broker)(scenario)
    header = SendMessageHeader.of(broker.asked[0])
    assert (header.topic, header.default_topic, header.default_topic_queue_nums) == ("T", "TBW102", 4)
    assert asked_for(namesrv).count("TBW102") == 1


def test_a_topic_that_exists_meanwhile_uses_its_own_route() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        model = route_to({0: broker.address}, queues=8)
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(TBW102=model)
        producer = client.producer("PG")
        await producer.send("T", b"makes it")
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(T=route_to({0: broker.address}, queues=1))
        assert (await producer.send("T", b"x")).queue == MessageQueue("T", "broker-a", 0)
        assert await client.consumer("CG").queues("T") == [MessageQueue("T", "broker-a", 0)]

    with_servers(namesrv, broker)(scenario)


def test_without_auto_created_topics_the_missing_topic_is_reported() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=routes())

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused, match="no route for topic T: .* answered 17 No topic route"):
            await client.producer("PG").send("T", b"x")
        with pytest.raises(RouteUnknown, match="no route for topic T"):
            await client.consumer("CG").queues("T")

    with_servers(namesrv)(scenario)
    assert asked_for(namesrv)[:2] == ["T", "TBW102"]


def test_a_failing_name_server_is_not_taken_for_a_missing_topic() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: request.reply(1, "name server not ready"))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused, match="not ready"):
            await client.producer("PG").send("T", b"x")

    with_servers(namesrv)(scenario)
    assert "TBW102" not in asked_for(namesrv)


def test_a_transaction_creates_its_topic_and_registers_its_producer() -> None:
    namesrv, broker = cluster(stored_as(), HEART_BEAT=done, END_TRANSACTION=done)

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(TBW102=route_to({0: broker.address}))
        producer = client.transactions("PG", lambda message: TransactionState.UNKNOWN)
        await (await producer.send("T", b"x")).commit()

    with_servers(namesrv, broker)(scenario)
    assert sorted(request.code for request in broker.asked) == [34, 37, 310]


def test_the_route_of_tbw102_is_requested_again_after_a_failure() -> None:
    namesrv, old = cluster(stored_as(14, "a slave by now"))
    new = Server(SEND_MESSAGE_V2=stored_as(offset=2))

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(TBW102=route_to({0: old.address}))
        producer = client.producer("PG")
        with pytest.raises(SendRefused, match="a slave by now"):
            await producer.send("T", b"x")
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = routes(TBW102=route_to({0: new.address}))
        assert (await producer.send("T", b"x", patience_ms=10_000)).queue_offset == 2

    with_servers(namesrv, old, new)(scenario)
