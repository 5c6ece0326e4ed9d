"""Queues that the broker assigns to consumers (request 400), compared with upstream's strategies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from broker.clients import assignments
from broker.clients.assignments import Assignments
from broker.clients.groups import ConsumerGroups
from broker.clients.unsupportedrequests import UnsupportedRequests
from remoting.allocation import STRATEGIES, allocated
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.bodies.queues import MessageQueue, QueryAssignmentBody
from remoting.bodies.routes import QueueData, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.support.doubles import ManualClock

QUEUES = [MessageQueue("T", f"broker-{name}", queue_id) for name in "ba" for queue_id in range(4)]


def shares(strategy: str, consumers: int) -> list[list[str]]:
    ids = [f"c{number}" for number in range(consumers)]
    found = [allocated(STRATEGIES[strategy], each, ids[::-1], QUEUES) for each in ids]
    return [[f"{queue.broker_name[-1]}{queue.queue_id}" for queue in share] for share in found]


def test_average_gives_adjacent_queues_to_a_consumer_and_the_remainder_to_the_first() -> None:
    assert shares("AVG", 3) == [["a0", "a1", "a2"], ["a3", "b0", "b1"], ["b2", "b3"]]
    assert shares("AVG", 10)[6:] == [["b2"], ["b3"], [], []]


def test_average_by_circle_deals_queues_round_robin() -> None:
    assert shares("AVG_BY_CIRCLE", 3) == [["a0", "a3", "b2"], ["a1", "b0", "b3"], ["a2", "b1"]]


def test_a_consumer_outside_the_group_gets_no_queue() -> None:
    assert allocated(STRATEGIES["AVG"], "x", ["a", "b"], QUEUES) == []


@pytest.fixture(scope="module")
def cluster() -> Any:
    with World(81) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield cluster


def assigned(cluster: Cluster, asked: QueryAssignmentBody) -> RemotingCommand:
    """The master's answer, while consumers one and two of group CG are connected."""

    async def scenario() -> RemotingCommand:
        master = cluster.app(cluster.master).address
        async with cluster.client() as one, cluster.client() as two:
            for name, client in (("one", one), ("two", two)):
                consumer = ConsumerData("CG", subscription_data_set=[SubscriptionData("orders")])
                beat = HeartbeatData(name, consumer_data_set=[consumer]).encode()
                await client.remoting.call(
                    master, RemotingCommand.request(RequestCode.HEART_BEAT, None, beat)
                )
            question = RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, None, asked.encode())
            return await one.remoting.call(master, question)

    answer: RemotingCommand = cluster.run(scenario())
    return answer


def queue_ids(answer: RemotingCommand) -> list[int]:
    assert answer.code == 0, answer.remark
    rows = json.loads(bytes(answer.body or b""))["messageQueueAssignments"]
    assert all(row["mode"] == "PULL" and row["messageQueue"]["brokerName"] == "broker-a" for row in rows)
    return [row["messageQueue"]["queueId"] for row in rows]


def test_a_consumer_gets_its_share_of_the_topic_from_the_broker(cluster: Cluster) -> None:
    asked = QueryAssignmentBody("orders", "CG", "two", "AVG")
    assert queue_ids(assigned(cluster, asked)) == [2, 3]
    asked.strategy_name = "AVG_BY_CIRCLE"
    assert queue_ids(assigned(cluster, asked)) == [1, 3]
    asked.message_model = "BROADCASTING"
    assert queue_ids(assigned(cluster, asked)) == [0, 1, 2, 3]


def test_unknown_groups_and_topics_are_assigned_no_queues(cluster: Cluster) -> None:
    assert queue_ids(assigned(cluster, QueryAssignmentBody("orders", "nobody", "two", "AVG"))) == []
    assert queue_ids(assigned(cluster, QueryAssignmentBody("nowhere", "CG", "two", "AVG"))) == []


def test_an_unknown_strategy_is_refused_and_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    answer = assigned(cluster, QueryAssignmentBody("orders", "CG", "two", "MACHINE_ROOM"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == "queues are assigned by AVG and AVG_BY_CIRCLE, not by MACHINE_ROOM"
    [logged] = [record for record in caplog.records if record.name == "broker.unsupportedrequests"]
    assert getattr(logged, "fields", {}).get("group") == "CG"


def test_an_assignment_without_a_name_server_is_an_error(cluster: Cluster) -> None:
    cluster.world.nodes["namesrv"].kill()
    answer = assigned(cluster, QueryAssignmentBody("other", "CG", "two", "AVG"))
    assert (answer.code, answer.remark) == (1, "no name server has a route of other")
    cluster.start_namesrv()


class Routes:
    """Name servers that know every topic, with four queues each; `asked` records the topics of requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, address: str, question: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(question.ext["topic"])
        return question.reply(body=TopicRouteData([QueueData("broker-a", 4, 4, 6)]).encode())


def test_the_cache_of_topic_routes_is_bounded_by_their_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, router = Routes(), Router()
    handler = Assignments(
        ConsumerGroups(),
        UnsupportedRequests(),
        client=cast(RemotingClient, routes),
        name_servers=["ns:1"],
        clock=ManualClock(),
    )
    handler.add_to(router)

    async def ask(topic: str) -> RemotingCommand:
        body = QueryAssignmentBody(topic, "CG", "one", "AVG").encode()
        question = RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, None, body)
        answer = router.handlers[question.code](cast(Peer, None), question)
        return await cast(Awaitable[RemotingCommand], answer)

    async def scenario() -> None:
        monkeypatch.setattr(assignments, "KEPT_QUEUES_MAX", 7)
        for topic in ("A", "A", "B", "A", "A"):
            assert (await ask(topic)).code == 0
        assert routes.asked == ["A", "B", "A"]
        monkeypatch.setattr(assignments, "KEPT_QUEUES_MAX", 3)
        refused = await ask("C")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "C has more queues than the 3" in (refused.remark or "")

    asyncio.run(scenario())
