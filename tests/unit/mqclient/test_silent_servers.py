"""A server that accepts connections and never answers does not delay calls to other servers."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from mqclient.client import Client
from mqclient.errors import LockFailed
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from mqclient.transactions import TransactionState
from remoting.bodies.queues import LockBatchResponseBody
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.command import RemotingCommand
from tests.unit.mqclient.servers import Answer, Server, route_to, stored_as, with_servers

ON_A, ON_B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
LONG_MS = 600_000


def silent(request: RemotingCommand) -> None:
    return None


def done(request: RemotingCommand) -> RemotingCommand:
    return request.reply()


def locked_on_b(request: RemotingCommand) -> RemotingCommand:
    return request.reply(body=LockBatchResponseBody([WireQueue("T", "b", 0)]).encode())


def broker(send: Answer, lock: Answer, heartbeat: Answer) -> Server:
    return Server(SEND_MESSAGE_V2=send, LOCK_BATCH_MQ=lock, UNLOCK_BATCH_MQ=lock, HEART_BEAT=heartbeat)


def two_sets(a: Server, b: Server) -> Server:
    """A name server that knows sets a and b, of one queue each."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        masters = {"a": a.address, "b": b.address}
        sets = [
            {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": at}} for name, at in masters.items()
        ]
        queues = [
            {"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in masters
        ]
        return request.reply(body=orjson.dumps({"brokerDatas": sets, "queueDatas": queues}))

    return Server(GET_ROUTEINFO_BY_TOPIC=answer)


def test_sends_to_another_set_do_not_wait_behind_a_silent_master() -> None:
    a, b = broker(silent, silent, silent), broker(stored_as(), locked_on_b, done)

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        waiting = [
            asyncio.create_task(producer.send("T", b"x", broker_name="a", timeout_ms=LONG_MS))
            for _ in range(50)
        ]
        for _ in range(3):
            assert (await producer.send("T", b"x", broker_name="b", timeout_ms=LONG_MS)).acknowledged
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()

    with_servers(two_sets(a, b), a, b)(scenario)


def test_a_send_refused_by_one_set_is_retried_on_another_set_at_once() -> None:
    a, b = broker(stored_as(14, "a slave by now"), silent, silent), broker(stored_as(), locked_on_b, done)
    namesrv = two_sets(a, b)
    plain = namesrv.answers["GET_ROUTEINFO_BY_TOPIC"]

    def many_on_a(request: RemotingCommand) -> RemotingCommand | None:
        reply = plain(request)
        assert reply is not None
        body = orjson.loads(reply.body or b"")
        body["queueDatas"][0] |= {"readQueueNums": 64, "writeQueueNums": 64}
        reply.body = orjson.dumps(body)
        return reply

    namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = many_on_a

    async def scenario(client: Client) -> None:
        result = await client.producer("PG").send("T", b"x", patience_ms=LONG_MS)
        assert result.queue == ON_B
        assert len(a.asked) <= 1

    with_servers(namesrv, a, b)(scenario)


def test_a_transaction_does_not_wait_for_the_heartbeat_to_a_silent_master() -> None:
    a, b = broker(silent, silent, silent), broker(stored_as(), locked_on_b, done)
    others: set[asyncio.Task[object]] = set()

    async def scenario(client: Client) -> None:
        others.update(asyncio.all_tasks())
        producer = client.transactions("PG", lambda message: TransactionState.UNKNOWN)
        while True:  # the queues come in turn
            sending = asyncio.create_task(producer.send("T", b"x", timeout_ms=LONG_MS))
            while not (sending.done() or any(request.code == 310 for request in a.asked)):  # noqa: ASYNC110 - the socket is real
                await asyncio.sleep(0.005)
            if sending.done():
                break
            a.asked.clear()
            sending.cancel()
        assert (await sending).result.queue == ON_B
        assert {task.get_name() for task in asyncio.all_tasks()} > {"PG to the masters of T"}
        await client.close()
        assert not [task for task in asyncio.all_tasks() - others if "PG" in task.get_name()]

    with_servers(two_sets(a, b), a, b)(scenario)


def test_a_request_is_answered_though_a_master_ignores_heartbeats() -> None:
    reply = StoredMessage("T", 0, -1, -1, b"yes", {}, 0, 0, 0, "", 0, "", 0, 0, 3)
    a = broker(silent, silent, silent)
    b = broker(stored_as(), locked_on_b, done)

    async def scenario(client: Client) -> None:
        def stored(request: RemotingCommand) -> RemotingCommand | None:
            (waiting,) = client._awaited._futures.values()
            waiting.set_result(reply)
            return stored_as()(request)

        a.answers["SEND_MESSAGE_V2"] = b.answers["SEND_MESSAGE_V2"] = stored
        assert await client.requester("PG").request("T", b"is it there?", timeout_ms=400) is reply
        assert [request.code for request in b.asked][:1] == [34]

    with_servers(two_sets(a, b), a, b)(scenario)


def test_locks_of_other_sets_are_held_though_a_master_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqclient.queuelocks.CALL_TIMEOUT_MS", 100)
    a, b = broker(silent, silent, silent), broker(stored_as(), locked_on_b, done)

    async def scenario(client: Client) -> None:
        locks = client.locks("CG", "me")
        with pytest.raises(LockFailed, match="queues of a for CG"):
            await locks.lock([ON_A, ON_B])
        assert (locks.holds(ON_A), locks.holds(ON_B)) == (False, True)
        with pytest.raises(LockFailed, match="queues of a for CG"):
            await locks.unlock([ON_A, ON_B])
        assert [request.code for request in b.asked] == [41, 42]
        assert not locks.holds(ON_B)

    with_servers(two_sets(a, b), a, b)(scenario)


def test_a_silent_name_server_is_asked_first_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqclient.routetable.NAMESRV_TIMEOUT_MS", 100)
    first, second = Server(GET_ROUTEINFO_BY_TOPIC=silent), Server(GET_ROUTEINFO_BY_TOPIC=route_to({}))

    async def scenario(_: Client) -> None:
        async with Client(f"{first.address};{second.address}") as client:
            for topic in ("T", "U", "V"):
                assert await client.consumer("CG").queues(topic)
        assert [request.ext["topic"] for request in first.asked] == ["T"]
        assert [request.ext["topic"] for request in second.asked] == ["T", "U", "V"]

    with_servers(first, second)(scenario)


def test_a_name_server_that_starts_later_is_found() -> None:
    late, b = Server(GET_ROUTEINFO_BY_TOPIC=silent), broker(stored_as(), locked_on_b, done)

    async def scenario(client: Client) -> None:
        late.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: b.address})
        port = late.server.port
        await late.server.stop()
        sending = asyncio.create_task(client.producer("PG").send("T", b"x", patience_ms=LONG_MS))
        await asyncio.sleep(0)
        again = Server(GET_ROUTEINFO_BY_TOPIC=route_to({0: b.address}))
        again.server.port = port
        await again.server.start()
        try:
            assert (await sending).acknowledged
        finally:
            await again.server.stop()

    with_servers(late, b)(scenario)
