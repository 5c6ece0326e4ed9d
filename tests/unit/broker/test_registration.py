"""Registration of changed topics with a scripted name server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from broker.neighbours.registration import SINGLE_MAX, Registration
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from broker.tables.topics import PERM_READ_WRITE
from remoting.bodies.registration import read_register_body
from remoting.bodies.routes import TopicRouteData
from remoting.bodies.topics import PERM_READ, TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues

NAME_SERVER = "10.0.9.1:9876"
PERIOD_MS = 30_000


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tables = Tables(BrokerSettings(), MemoryFiles(), self.clock, NoQueues())
        self.role = SimpleNamespace(
            role_id=0, master_epoch=3, broker_name="broker-a", address="10.0.0.1:10911", cluster_name="c"
        )
        self.asked: list[RemotingCommand] = []
        self.answers: dict[RequestCode, ResponseCode | None] = {}
        """The answer by request code; None means no answer."""
        self.permission = PERM_READ_WRITE
        self.registration = Registration(
            cast(Any, self.role),
            cast(Any, SimpleNamespace(address="10.0.0.1:10912")),
            client=cast(Any, self),
            clock=self.clock,
            name_servers=[NAME_SERVER],
            period_ms=PERIOD_MS,
            timeout_ms=1_000,
            topics=self.tables.topics,
            permission=lambda: self.permission,
            on_master=lambda address, ha_address: None,
            needs_master=lambda: False,
        )
        self.tables.on_topics_changed(self.registration.topics_changed)
        self.tables.role_taken(3, leads=True)
        self.send_changes()

    async def call(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(request)
        answer = self.answers.get(RequestCode(request.code), ResponseCode.SUCCESS)
        if answer is None:
            raise ConnectionLost(address, "gone")
        return request.reply(answer)

    def send_changes(self) -> list[RequestCode]:
        """Runs one round, and returns the request codes that the name server got."""
        del self.asked[:]
        news = self.registration._news[NAME_SERVER]
        asyncio.run(self.registration._send_changes(NAME_SERVER, self.role.role_id, news))
        return [RequestCode(request.code) for request in self.asked]

    def put(self, name: str, queues: int = 8) -> None:
        self.tables.topics.put(TopicConfig(name, queues, queues))


ALL, ALONE = RequestCode.REGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV


def test_a_created_topic_is_registered_alone() -> None:
    scene = Scene()
    scene.put("orders")
    scene.permission = PERM_READ
    assert scene.send_changes() == [ALONE]
    (queues,) = TopicRouteData.decode(scene.asked[0].body).queue_datas
    assert scene.asked[0].ext["topic"] == "orders"
    assert (queues.broker_name, queues.read_queue_nums, queues.perm) == ("broker-a", 8, PERM_READ)
    assert scene.send_changes() == []


def test_a_deleted_topic_is_registered_with_all_topics_a_second_later() -> None:
    scene = Scene()
    scene.put("orders")
    scene.send_changes()
    scene.tables.delete_topic("orders", 0)
    assert scene.send_changes() == []
    scene.clock.ms += 1_000
    assert scene.send_changes() == [ALL]
    table = read_register_body(scene.asked[0].body, compressed=False).topic_config_serialize_wrapper
    assert "orders" not in table.topic_config_table


def test_all_topics_are_registered_each_period_although_topics_change_constantly() -> None:
    scene = Scene()
    for second in range(PERIOD_MS // 1_000 - 1):
        scene.clock.ms += 1_000
        scene.put(f"topic-{second}")
        assert scene.send_changes() == [ALONE]
    scene.clock.ms += 1_000
    scene.put("last")
    assert scene.send_changes() == [ALL]


def test_all_topics_are_registered_in_a_new_role_and_for_large_changes() -> None:
    scene = Scene()
    scene.role.master_epoch = 4
    scene.put("orders")
    assert scene.send_changes() == [ALL]
    scene.tables.topics.renew_version()
    assert scene.send_changes() == [ALL]
    for number in range(SINGLE_MAX + 1):
        scene.put(f"topic-{number}")
    assert scene.send_changes() == [ALL]


def test_a_failed_registration_of_one_topic_is_followed_by_one_of_all() -> None:
    for answer in (ResponseCode.SYSTEM_ERROR, None):
        scene = Scene()
        scene.answers[ALONE] = answer
        scene.put("orders")
        assert scene.send_changes() == [ALONE]
        assert scene.send_changes() == [ALL]


def test_a_registration_of_all_topics_is_repeated_until_it_succeeds() -> None:
    scene = Scene()
    scene.answers[ALL] = None
    scene.registration.soon()
    assert scene.send_changes() == [ALL]
    scene.put("orders")
    del scene.answers[ALL]
    assert scene.send_changes() == [ALL]


def test_a_slave_registers_no_topic_alone() -> None:
    scene = Scene()
    scene.role.role_id = 2
    assert scene.send_changes() == [ALL]
    scene.put("orders")
    assert scene.send_changes() == []
