"""Routes as values: the queues that may be used, and their brokers."""

from __future__ import annotations

from typing import Any

import pytest

from mqclient.route import MessageQueue, TopicRoute
from remoting.bodies.routes import TopicRouteData
from remoting.errors import BodyError


def answer(perm: int, **addresses: dict[str, str]) -> dict[str, Any]:
    return {
        "brokerDatas": [
            {"brokerName": name.replace("_", "-"), "brokerAddrs": table, "cluster": "C"}
            for name, table in addresses.items()
        ],
        "queueDatas": [
            {"brokerName": name.replace("_", "-"), "perm": perm, "readQueueNums": 2, "writeQueueNums": 1}
            for name in addresses
        ],
    }


def route_of(body: dict[str, Any]) -> TopicRoute:
    return TopicRoute.of("T", TopicRouteData.from_json(body))


def test_queues_of_all_broker_sets_are_sorted() -> None:
    route = route_of(answer(6, broker_b={"0": "b:1"}, broker_a={"0": "a:1", "2": "a:2"}))
    assert route.write_queues == (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0))
    assert [str(queue) for queue in route.read_queues] == [
        "T/broker-a/0",
        "T/broker-a/1",
        "T/broker-b/0",
        "T/broker-b/1",
    ]
    assert (route.master("broker-a"), route.master("broker-b")) == ("a:1", "b:1")


@pytest.mark.parametrize(("perm", "writable", "readable"), [(2, 1, 0), (4, 0, 2), (6, 1, 2), (1, 0, 0)])
def test_permission_bits_decide_which_queues_are_used(perm: int, writable: int, readable: int) -> None:
    route = route_of(answer(perm, broker_a={"0": "a:1"}))
    assert (len(route.write_queues), len(route.read_queues)) == (writable, readable)


def test_a_set_between_two_masters_keeps_its_queues() -> None:
    route = route_of(answer(6, broker_a={"2": "a:2"}))
    assert route.write_queues
    assert route.master("broker-a") is None
    assert route.master("stranger") is None


@pytest.mark.parametrize(
    "body", [{"queueDatas": [{}]}, {"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"x": 1}}]}]
)
def test_a_malformed_route_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BodyError):
        route_of(body)
