"""A host outside the set that connects as a replica, and the replicas that are read from controllers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.role.controllerclient import ControllerClient
from broker.role.replicatable import ReplicaTable
from ha.errors import ReplicasUnread
from ha.master.admittance import LOOPBACK
from mqclient.producer import SendStatus
from remoting.bodies.replicas import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectFailed
from remoting.headers.admin import CreateTopicHeader
from remoting.headers.group import CopyTablesHeader, TablesVersionHeader
from simulation.faults.strangers import speak_as
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster


@pytest.mark.parametrize("known", [True, False], ids=["a member's id", "an unknown id"])
def test_a_message_held_only_by_the_master_and_a_stranger_is_not_acknowledged(known: bool) -> None:
    with World(31) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        master = cluster.app(cluster.master)
        [slave] = cluster.slaves
        stopped = cluster.app(slave).membership.broker_id
        assert stopped is not None
        slave.kill()
        stranger = world.node("stranger", "10.0.9.1")
        stranger.spawn(speak_as(stopped if known else 9, cluster.master.host))
        sends = outcomes_of_sends(cluster)
        world.run_for_ms(20_000)
        assert [status for status in sends if status is SendStatus.SEND_OK] == []
        assert master.ha.counters.refused_links > 0 and master.ha.slaves() == {}
        stranger.kill()
        cluster.start(slave)
        cluster.wait_in_sync(2)
        world.run_until(lambda: SendStatus.SEND_OK in sends, 10_000)


@pytest.mark.parametrize("known", [True, False], ids=["a member's id", "an unknown id"])
def test_a_stranger_cannot_report_tables_for_a_slave(known: bool) -> None:
    with World(32) as world:
        cluster = Cluster(world, 2, slaveTimeout=500)
        cluster.start_up()
        [slave] = cluster.slaves
        broker_id = cluster.app(slave).membership.broker_id if known else 9
        slave.kill()
        stranger = world.node("stranger", "10.0.9.1")
        answers: list[int] = []
        stranger.spawn(claim_tables(stranger, cluster.app(cluster.master).address, broker_id or 0, answers))
        header = CreateTopicHeader("new", "TBW102", 4, 4, 6)
        created = cluster.run(
            cluster.ask(cluster.app(cluster.master).address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        )
        assert created.code == ResponseCode.FLUSH_SLAVE_TIMEOUT, "the slave did not store it"
        world.run_for_ms(1_000)
        assert answers and set(answers) == {ResponseCode.SERVICE_NOT_AVAILABLE}


async def claim_tables(node: Node, master: str, broker_id: int, answers: list[int]) -> None:
    """Reports every version as stored."""
    client = RemotingClient(clock=SimulatedClock(node))
    holds = None
    while True:
        request = RemotingCommand.request(RequestCode.COPY_TABLES, CopyTablesHeader(broker_id, holds, 100))
        reply = await client.call(master, request, 5_000)
        answers.append(reply.code)
        holds = TablesVersionHeader.from_ext(reply.ext).tables_version
        await asyncio.sleep(0.02)


def outcomes_of_sends(cluster: Cluster) -> list[SendStatus]:
    """Sends one message after the other from the client's host; the list gets the statuses of stored ones."""
    outcomes: list[SendStatus] = []

    async def send() -> None:
        while SendStatus.SEND_OK not in outcomes:
            async with asyncio.timeout(60):
                outcomes.extend(result.status for result in await cluster.send_all([b"x"]))

    cluster._client_node.spawn(send())
    return outcomes


class Controllers:
    """Answers 1006 with `answer`."""

    def __init__(self, answer: RemotingCommand | Exception) -> None:
        self.answer = answer
        self.asked: list[RemotingCommand] = []

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        self.asked.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def read(answer: RemotingCommand | Exception) -> Any:
    controllers = Controllers(answer)
    table = asyncio.run(ReplicaTable("broker-a", cast(ControllerClient, controllers)).read())
    assert (controllers.asked[0].code, controllers.asked[0].body) == (1006, b'["broker-a"]')
    return table


def reply(body: bytes | None, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA).reply(code, body=body)


def test_every_replica_is_read_with_the_hosts_of_its_address_or_name() -> None:
    rows = [
        ReplicaIdentity("broker-a", 1, "10.0.0.1:10911"),
        ReplicaIdentity("broker-a", 2, "[fe80::1]:10911"),
        ReplicaIdentity("broker-a", 3, "localhost:10911"),
        ReplicaIdentity("broker-a", 4, "nowhere.invalid:10911"),
        ReplicaIdentity("broker-a", 5, "typed..twice:10911"),
        ReplicaIdentity("broker-a", 6, "x" * 64 + ":10911"),
    ]
    info = ReplicasInfo(1, rows[0].broker_address, 1, 1, rows[:1], rows[1:])
    table = read(reply(BrokerReplicasInfo({"broker-a": info}).encode()))
    assert [table[row.broker_id].address for row in rows] == [row.broker_address for row in rows]
    assert {broker_id: replica.hosts for broker_id, replica in table.items()} == {
        1: frozenset({"10.0.0.1"}),
        2: frozenset({"fe80::1"}),
        3: frozenset({LOOPBACK}),
        4: frozenset(),
        5: frozenset(),
        6: frozenset(),
    }


def test_a_set_unknown_to_the_controllers_has_no_replicas() -> None:
    assert read(reply(BrokerReplicasInfo({}).encode())) == {}


@pytest.mark.parametrize(
    "answer",
    [
        ConnectFailed("10.0.1.1:9878", "refused"),
        reply(None, ResponseCode.CONTROLLER_NOT_LEADER),
        reply(b"no json"),
    ],
    ids=["unreachable", "no leader", "no json"],
)
def test_a_failed_read_of_the_replicas_is_not_taken_for_an_empty_set(
    answer: RemotingCommand | Exception,
) -> None:
    with pytest.raises(ReplicasUnread):
        read(answer)
