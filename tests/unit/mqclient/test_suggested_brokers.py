"""A broker that suggests another one of its set to a reader, and offsets that are committed with pulls."""

from __future__ import annotations

import pytest

from mqclient.client import Client
from mqclient.consumer import PullStatus
from mqclient.errors import PullFailed
from mqclient.route import MessageQueue
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.pull import SYS_FLAG_COMMIT_OFFSET, PullMessageHeader, PullMessageResponseHeader
from tests.unit.mqclient.records import WORKED_RECORD
from tests.unit.mqclient.servers import Answer, Server, route_to, with_servers

QUEUE = MessageQueue("TopicTest", "broker-a", 1)
SLAVE_ID = 7


def suggests(broker_id: int) -> Answer:
    def answer(request: RemotingCommand) -> RemotingCommand:
        return request.reply(header=PullMessageResponseHeader(broker_id, 4, 0, 5), body=WORKED_RECORD)

    return answer


def test_a_reader_follows_the_suggestion_until_that_broker_suggests_the_master_again() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=route_to({}))
    master, slave = Server(PULL_MESSAGE=suggests(SLAVE_ID)), Server(PULL_MESSAGE=suggests(0))

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: master.address, SLAVE_ID: slave.address})
        consumer = client.consumer("g")
        for _ in range(3):
            assert (await consumer.pull(QUEUE, 3, commit=3)).status is PullStatus.FOUND
        assert (len(master.asked), len(slave.asked)) == (2, 1)
        headers = [PullMessageHeader.from_ext(request.ext) for request in (*master.asked, *slave.asked)]
        assert [header.sys_flag & SYS_FLAG_COMMIT_OFFSET for header in headers] == [1, 1, 0], (
            "to masters only"
        )
        assert {header.commit_offset for header in headers} == {3}

    with_servers(namesrv, master, slave)(scenario)


def test_a_suggested_broker_that_does_not_answer_is_asked_once() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=route_to({}))
    master = Server(PULL_MESSAGE=suggests(SLAVE_ID))

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: master.address, SLAVE_ID: "127.0.0.1:1"})
        consumer = client.consumer("g")
        await consumer.pull(QUEUE, 3)
        with pytest.raises(PullFailed):
            await consumer.pull(QUEUE, 3)
        assert (await consumer.pull(QUEUE, 3)).messages
        assert len(master.asked) == 2

    with_servers(namesrv, master)(scenario)


def test_a_suggestion_of_a_broker_that_is_not_in_the_route_is_ignored() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=route_to({}))
    master = Server(PULL_MESSAGE=suggests(SLAVE_ID))

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: master.address})
        consumer = client.consumer("g")
        for _ in range(2):
            await consumer.pull(QUEUE, 3)
        assert len(master.asked) == 2

    with_servers(namesrv, master)(scenario)


def test_a_suggested_broker_that_refuses_reads_is_asked_once() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=route_to({}))
    master = Server(PULL_MESSAGE=suggests(SLAVE_ID))
    slave = Server(PULL_MESSAGE=lambda request: request.reply(ResponseCode.SYSTEM_BUSY, "no reads"))

    async def scenario(client: Client) -> None:
        namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = route_to({0: master.address, SLAVE_ID: slave.address})
        consumer = client.consumer("g")
        await consumer.pull(QUEUE, 3)
        with pytest.raises(PullFailed, match="no reads"):
            await consumer.pull(QUEUE, 3)
        assert (await consumer.pull(QUEUE, 3)).messages
        assert (len(master.asked), len(slave.asked)) == (2, 1)

    with_servers(namesrv, master, slave)(scenario)
