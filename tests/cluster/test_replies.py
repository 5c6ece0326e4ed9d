"""Request and reply: a reply (324, 325) is pushed (326) to the asking client by any broker of the set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from broker.clients.groups import ConsumerGroups
from broker.clients.requesters import ASKED_MAX, Requesters
from broker.sends.request import read_send_request
from broker.switchover.forwardingstate import Stage
from messagestore.systemtopics import HALF_TOPIC, SCHEDULE_TOPIC
from mqclient.client import Client
from mqclient.message import OutgoingMessage
from remoting.bodies.heartbeats import HeartbeatData, ProducerData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageHeader
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.handovers import another, stage_of, successor_of, until
from tests.support.recordingpeer import RecordingPeer

ASKER = "10.0.4.1@asker"
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
BORN_MS = 1_700_000_000_000


class Asker:
    """A client that waits for replies, records pushes, and answers them with `answer`."""

    def __init__(self) -> None:
        self.pushed: list[RemotingCommand] = []
        self.answer: Callable[[RemotingCommand], RemotingCommand] = lambda command: command.reply()
        self.router = Router()
        self.router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pushed)

    def _pushed(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self.pushed.append(command)
        return self.answer(command)

    async def beat(self, client: Client, address: str) -> None:
        data = HeartbeatData(ASKER, [ProducerData("askers")], [])
        await client.remoting.call(
            address, RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
        )


def reply_to(client_id: str, *, code: int = RequestCode.SEND_REPLY_MESSAGE_V2) -> RemotingCommand:
    named = f"REPLY_TO_CLIENT\x01{client_id}\x02" if client_id else ""
    header = SendMessageHeader(
        "repliers", REPLY_TOPIC, "TBW102", 4, 0, 0, BORN_MS, 7, f"{named}CORRELATION_ID\x01c1\x02", 0, False
    )
    ext = header.to_ext() if code == RequestCode.SEND_REPLY_MESSAGE else header.to_short_ext()
    return RemotingCommand.request(code, ext, b"the answer")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with World(41) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield cluster


@pytest.fixture
def asker() -> Asker:
    return Asker()


def replied(cluster: Cluster, asker: Asker, command: RemotingCommand) -> RemotingCommand:
    """The master's answer to `command`, which is sent while the asker is connected as a producer."""

    async def scenario() -> RemotingCommand:
        master = cluster.app(cluster.master).address
        async with cluster.client(asker.router) as asking, cluster.client() as replying:
            await asker.beat(asking, master)
            return await replying.remoting.call(master, command, 15_000)

    answer: RemotingCommand = cluster.run(scenario())
    return answer


def stored(cluster: Cluster) -> int:
    return cluster.app(cluster.master).store.max_queue_offset(REPLY_TOPIC, 0)


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_pushed_to_the_client_that_asked_and_stored(
    cluster: Cluster, asker: Asker, code: int
) -> None:
    before = stored(cluster)
    answer = replied(cluster, asker, reply_to(ASKER, code=code))
    assert (answer.code, answer.remark) == (0, None)
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", str(before))
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    [pushed] = asker.pushed
    assert pushed.body == b"the answer"
    at_ms = pushed.ext.pop("storeTimestamp")
    assert pushed.ext.pop("bornHost").startswith("10.255.255.254:")
    assert pushed.ext == {
        "producerGroup": "repliers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(BORN_MS),
        "flag": "7",
        "properties": f"REPLY_TO_CLIENT\x01{ASKER}\x02CORRELATION_ID\x01c1\x02PUSH_REPLY_TIME\x01{at_ms}\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "storeHost": cluster.app(cluster.master).address,
    }

    async def read() -> list[tuple[bytes, dict[str, str]]]:
        async with cluster.client() as client:
            consumer = client.consumer("readers")
            [queue] = await consumer.queues(REPLY_TOPIC)
            messages = (await consumer.pull(queue, before)).messages
            return [(message.body, message.properties) for message in messages]

    assert cluster.run(read()) == [(b"the answer", {"REPLY_TO_CLIENT": ASKER, "CORRELATION_ID": "c1"})]


def test_a_reply_to_an_unknown_or_unnamed_client_is_answered_with_an_error(
    cluster: Cluster, asker: Asker
) -> None:
    before = stored(cluster)
    answer = replied(cluster, asker, reply_to("10.0.4.9@gone"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <10.0.4.9@gone> not found."
    answer = replied(cluster, asker, reply_to(""))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
    assert asker.pushed == []
    assert stored(cluster) == before + 2  # refused replies are stored, as in upstream


def test_a_reply_refused_by_its_client_is_answered_with_an_error(cluster: Cluster, asker: Asker) -> None:
    asker.answer = lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "not mine")
    answer = replied(cluster, asker, reply_to(ASKER))
    assert (answer.code, answer.remark) == (1, f"push reply message to {ASKER}fail.")


def test_replies_are_not_stored_when_the_setting_disables_it(cluster: Cluster, asker: Asker) -> None:
    settings, before = cluster.app(cluster.master).settings, stored(cluster)
    settings.store_reply_message_enable = False
    try:
        answer = replied(cluster, asker, reply_to(ASKER))
    finally:
        settings.store_reply_message_enable = True
    assert answer.code == 0
    assert (answer.ext["msgId"], answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0", "0")
    assert stored(cluster) == before
    assert len(asker.pushed) == 1


@pytest.mark.parametrize("properties", ["TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "DELAY\x013\x02"])
def test_a_reply_is_neither_a_half_message_nor_delayed(
    cluster: Cluster, asker: Asker, properties: str
) -> None:
    store, before = cluster.app(cluster.master).store, stored(cluster)
    command = reply_to(ASKER)
    command.ext["i"] += properties
    assert replied(cluster, asker, command).code == 0
    assert stored(cluster) == before + 1
    assert [
        store.max_queue_offset(topic, queue) for topic, queue in ((HALF_TOPIC, 0), (SCHEDULE_TOPIC, 2))
    ] == [0, 0]


def test_a_reply_to_an_unknown_topic_is_refused_and_not_pushed(cluster: Cluster, asker: Asker) -> None:
    command = reply_to(ASKER)
    command.ext["b"], command.ext["c"] = "NoSuchTopic", "NoSuchModel"
    assert replied(cluster, asker, command).code == ResponseCode.TOPIC_NOT_EXIST
    assert asker.pushed == []


def test_a_slave_answers_a_reply_with_busy(cluster: Cluster) -> None:
    slave = cluster.slaves[0]

    async def scenario() -> RemotingCommand:
        async with cluster.client() as client:
            return await client.remoting.call(cluster.app(slave).address, reply_to(ASKER))

    assert cluster.run(scenario()).code == ResponseCode.SYSTEM_BUSY


def test_a_client_that_asks_before_its_first_heartbeat_gets_its_reply(cluster: Cluster, asker: Asker) -> None:
    async def scenario() -> RemotingCommand:
        master = cluster.app(cluster.master).address
        async with cluster.client(asker.router) as asking, cluster.client() as replying:
            question = OutgoingMessage(b"?", {"REPLY_TO_CLIENT": ASKER, "CORRELATION_ID": "c1"})
            await asking.producer("askers").send_message("orders", question)
            return await replying.remoting.call(master, reply_to(ASKER), 15_000)

    assert cluster.run(scenario()).code == 0
    assert len(asker.pushed) == 1


@pytest.mark.parametrize("beats", [True, False])
def test_a_client_connected_to_the_former_master_gets_its_reply_from_the_next_one(beats: bool) -> None:
    """Its heartbeat came before the hand-over, or it sent none and asks through the former master."""
    asker = Asker()
    with World(42) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old, chosen = cluster.master, another(cluster)
        successor = successor_of(cluster, chosen)

        async def scenario() -> list[RemotingCommand]:
            async with cluster.client(asker.router) as asking, cluster.client() as replying:
                route = await asking.routes.get("orders")
                assert route.master("broker-a") == cluster.app(old).address
                if beats:
                    await asker.beat(asking, cluster.app(old).address)
                await cluster.designate(chosen)
                await until(lambda: stage_of(cluster, old) is Stage.FORWARDING)
                if not beats:
                    question = OutgoingMessage(b"?", {"REPLY_TO_CLIENT": ASKER, "CORRELATION_ID": "c1"})
                    await asking.producer("askers").send_message("orders", question)
                return [
                    await replying.remoting.call(cluster.app(node).address, reply_to(ASKER), 15_000)
                    for node in (successor, old)
                ]

        answers = cluster.run(scenario())
        assert [(answer.code, answer.remark) for answer in answers] == [(0, None), (0, None)]
        assert len(asker.pushed) == 2

        async def nobody() -> RemotingCommand:
            async with cluster.client() as client:
                return await client.remoting.call(cluster.app(successor).address, reply_to("x@gone"), 15_000)

        answer = cluster.run(nobody())
        assert answer.remark == "push reply message fail, channel of <x@gone> not found."


@pytest.mark.parametrize(
    ("topic", "properties"),
    [("orders", "MSG_TYPE\x01reply\x02"), ("%RETRY%CG", ""), ("orders", "NOT_REPLY_TO_CLIENT\x01x\x02")],
)
def test_a_message_that_only_carries_the_name_of_a_requester_is_no_request(
    topic: str, properties: str
) -> None:
    named = "" if "NOT" in properties else f"REPLY_TO_CLIENT\x01{ASKER}\x02"
    header = SendMessageHeader("g", topic, "TBW102", 4, 0, 0, BORN_MS, 0, named + properties)
    assert read_send_request(RequestCode.SEND_MESSAGE_V2, header.to_short_ext()).asks_reply_for == ""


ASKS = RemotingCommand.request(RequestCode.SEND_MESSAGE)


def test_requesters_are_bounded_and_forgotten_with_their_connections() -> None:
    requesters = Requesters(ConsumerGroups(), lambda peer, request: "")
    first, second = RecordingPeer(), RecordingPeer()
    requesters.asked("a", first, ASKS)  # type: ignore[arg-type]
    requesters.asked("b", first, ASKS)  # type: ignore[arg-type]
    requesters.asked("a", second, ASKS)  # type: ignore[arg-type]
    for callback in first.close_callbacks:
        callback(first)
    assert requesters.find("b") is None
    assert requesters.find("a") is second  # type: ignore[comparison-overlap]
    for number in range(ASKED_MAX):
        requesters.asked(f"c{number}", second, ASKS)  # type: ignore[arg-type]
    assert requesters.find("a") is None
    assert requesters.find("c0") is second  # type: ignore[comparison-overlap]


def test_a_requester_with_an_overlong_name_is_not_kept() -> None:
    requesters = Requesters(ConsumerGroups(), lambda peer, request: "")
    requesters.asked("a" * 30_000, RecordingPeer(), ASKS)  # type: ignore[arg-type]
    assert requesters.find("a" * 30_000) is None


def test_replies_that_wait_for_a_client_are_bounded_in_bytes(
    cluster: Cluster, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.sends.replies.PUSHING_BYTES_MAX", 3_000)

    async def never(peer: Peer, command: RemotingCommand) -> None:
        asker.pushed.append(command)

    asker.router.handlers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = never

    async def scenario() -> list[int]:
        master = cluster.app(cluster.master).address
        async with cluster.client(asker.router) as asking, cluster.client() as replying:
            await asker.beat(asking, master)
            commands = [replace(reply_to(ASKER), body=bytes(1_000)) for _ in range(5)]
            answers = await asyncio.gather(
                *(replying.remoting.call(master, command, 15_000) for command in commands)
            )
            again = await replying.remoting.call(master, reply_to(""), 15_000)
            return [answer.code for answer in (*answers, again)]

    codes = cluster.run(scenario())
    failed, busy = ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY
    assert codes == [failed, failed, failed, busy, busy, failed], "finished replies make room"
    assert len(asker.pushed) == 3


def test_a_forwarding_link_does_not_count_as_a_clients_own_connection() -> None:
    requesters = Requesters(ConsumerGroups(), lambda peer, request: "")
    link = RecordingPeer()
    requesters.passes_on(link)  # type: ignore[arg-type]
    requesters.asked("a", link, ASKS)  # type: ignore[arg-type]
    assert requesters.find("a") is link  # type: ignore[comparison-overlap]
    assert requesters.find("a", own=True) is None
    assert requesters.former() == [link]  # type: ignore[comparison-overlap]
    for callback in link.close_callbacks:
        callback(link)
    assert requesters.former() == [] and requesters.find("a") is None
