"""Requests of administrators to one connected consumer, through a broker of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from broker.clients.readgate import ReadGate
from mqclient.message import decode_messages
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import GetConsumerRunningInfoHeader
from remoting.headers.messages import ConsumeMessageDirectlyHeader
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

GROUP, CLIENT_ID = "CG", "10.0.4.1@c1"
Answer = Callable[[Peer, RemotingCommand], RemotingCommand | None]


class Consumer:
    """A consumer of group CG that answers 307 and 309 with `answer`, and records the requests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.asked: list[RemotingCommand] = []
        self.answer: Answer = lambda peer, command: command.reply(body=b"{}")
        self.router = Router()
        for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
            self.router.add(code, self._asked)

    def _asked(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        return self.answer(peer, command)

    def online_while(self, question: RemotingCommand) -> RemotingCommand:
        """The master's answer to `question`, asked while the consumer is connected."""
        [answer] = self.online_while_all([question])
        return answer

    def online_while_all(self, questions: list[RemotingCommand]) -> list[RemotingCommand]:
        """The master's answers to `questions`, all asked at the same time."""

        async def scenario() -> list[RemotingCommand]:
            master = self.cluster.app(self.cluster.master).address
            data = HeartbeatData(
                CLIENT_ID, [], [ConsumerData(GROUP, subscription_data_set=[SubscriptionData("orders")])]
            )
            beat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
            async with self.cluster.client(self.router) as consumer, self.cluster.client() as admin:
                assert (await consumer.remoting.call(master, beat)).code == 0
                calls = (admin.remoting.call(master, question, 15_000) for question in questions)
                return await asyncio.gather(*calls)

        answers: list[RemotingCommand] = self.cluster.run(scenario())
        return answers

    def stored_id(self, body: bytes = b"once more") -> str:
        """Sends a message and returns the broker's id of it."""

        async def send() -> str:
            async with self.cluster.client() as client:
                return (await client.producer("PG").send("orders", body)).offset_message_id

        found: str = self.cluster.run(send())
        return found


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    with World(21) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield Consumer(cluster)


@pytest.fixture(autouse=True)
def forgetful(consumer: Consumer) -> None:
    consumer.asked.clear()
    consumer.answer = lambda peer, command: command.reply(body=b'{"mqTable":{}}')


def running_info(client_id: str = CLIENT_ID) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoHeader(GROUP, client_id)
    )


def directly(message_id: str | None) -> RemotingCommand:
    header = ConsumeMessageDirectlyHeader(GROUP, CLIENT_ID, message_id, topic="orders")
    return RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)


def test_a_consumers_running_info_is_returned_unchanged(consumer: Consumer) -> None:
    answer = consumer.online_while(running_info())
    assert (answer.code, answer.body) == (0, b'{"mqTable":{}}')
    assert consumer.asked[0].ext == {"consumerGroup": GROUP, "clientId": CLIENT_ID, "jstackEnable": "false"}
    consumer.answer = lambda peer, command: command.reply(ResponseCode.SYSTEM_ERROR, "not now")
    answer = consumer.online_while(running_info())
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "not now")


def test_a_consumer_gets_the_stored_message_and_its_result_is_returned(consumer: Consumer) -> None:
    message_id = consumer.stored_id()
    consumer.answer = lambda peer, command: command.reply(body=b'{"consumeResult":"CR_SUCCESS"}')
    answer = consumer.online_while(directly(message_id))
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    [question] = consumer.asked
    [message] = decode_messages(question.body or b"")
    assert message.body == b"once more"
    assert question.ext["msgId"] == message_id
    assert question.ext["brokerName"] == consumer.cluster.app(consumer.cluster.master).settings.broker_name


def test_a_consumer_gets_no_field_that_the_question_does_not_have(consumer: Consumer) -> None:
    consumer.answer = lambda peer, command: command.reply(body=b'{"consumeResult":"CR_SUCCESS"}')
    for question in (running_info(), directly(consumer.stored_id())):
        question.ext |= {"AccessKey": "admin", "Signature": "c2ln", "offset": "0"}
        assert consumer.online_while(question).code == 0
    for asked in consumer.asked:
        assert asked.ext.keys().isdisjoint({"AccessKey", "Signature", "offset"}), asked.ext


@pytest.mark.parametrize("message_id", [None, "", "nonsense", "7F000001", "00" * 8 + "FF" * 8])
def test_an_invalid_message_id_reaches_no_consumer(consumer: Consumer, message_id: str | None) -> None:
    answer = consumer.online_while(directly(message_id))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "msgId" in (answer.remark or "") or "can not find message" in (answer.remark or "")
    assert consumer.asked == []


def test_the_answer_names_a_consumer_that_is_not_online(consumer: Consumer) -> None:
    answer = consumer.online_while(running_info("10.0.4.9@gone"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"The Consumer <{GROUP}> <10.0.4.9@gone> not online"
    assert consumer.asked == []


def test_a_silent_consumer_times_out_after_ten_seconds(consumer: Consumer) -> None:
    consumer.answer = lambda peer, command: None
    begin = consumer.cluster.world.now_ms
    answer = consumer.online_while(running_info())
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert 10_000 <= consumer.cluster.world.now_ms - begin < 11_000


def test_a_consumer_that_leaves_instead_of_answering_is_an_error(consumer: Consumer) -> None:
    def leaves(peer: Peer, command: RemotingCommand) -> None:
        asyncio.get_running_loop().call_soon(peer.cut, "as the test wants")

    consumer.answer = leaves
    answer = consumer.online_while(running_info())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None and answer.remark.startswith(f"invoke consumer <{GROUP}> <{CLIENT_ID}>")


def test_a_broker_that_serves_no_reads_passes_no_message_to_a_consumer(consumer: Consumer) -> None:
    message_id = consumer.stored_id()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadGate, "serves_reads", property(lambda self: False))
        assert consumer.online_while(directly(message_id)).code == ResponseCode.SYSTEM_BUSY
    assert consumer.asked == []


def test_messages_that_wait_for_consumers_are_limited_in_size(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.clients.calls.PASSING_BYTES_MAX", 100_000)
    message_id = consumer.stored_id(bytes(30_000))
    consumer.answer = lambda peer, command: None
    answers = consumer.online_while_all([directly(message_id) for _ in range(20)])
    codes = [answer.code for answer in answers]
    assert (len(consumer.asked), codes.count(ResponseCode.SYSTEM_BUSY)) == (3, 17)
    consumer.answer = lambda peer, command: command.reply()
    assert consumer.online_while(directly(message_id)).code == 0, (
        "a message that was given up waits no longer"
    )
