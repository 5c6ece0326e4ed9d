"""Messages that consumers send back (36), many in one receive, with a scripted log and replication."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from accesscontrol.guard import OpenAccess
from broker.replication.pending import PendingSends
from broker.replication.writegate import WriteGate
from broker.sends.sendback import RUNNING_MAX, SendBack
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics, system_topics
from messagestore.errors import RecordDamaged
from messagestore.messages import PutStatus
from messagestore.properties import parse_properties
from messagestore.record import encode
from messagestore.systemtopics import HALF_TOPIC
from mqruntime.tasks import Tasks
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.headers.messages import ConsumerSendMsgBackHeader
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer
from tests.unit.broker.sendbench import RECORD_BYTES, ScriptedLog, ScriptedReplication
from tests.unit.messagestore.storehelp import worked

DAMAGED, HALF = 7_000, 700
WAITING_MAX = 100


class Records(ScriptedLog):
    """Returns the same record for every offset below 1,000."""

    async def listed_at(self, physical_offset: int) -> memoryview | None:
        await asyncio.sleep(0)
        if physical_offset == DAMAGED:
            raise RecordDamaged("00000000000000000000", DAMAGED, "set by the test")
        if physical_offset == HALF:
            return memoryview(HALF_RECORD)
        return memoryview(RECORD) if physical_offset < 1_000 else None


RECORD = encode(
    replace(
        worked(),
        body=b"bad",
        topic="orders",
        properties=b"UNIQ_KEY\x01ID\x02WAIT\x01true\x02",
        reconsume_times=0,
    )
)
HALF_RECORD = encode(replace(worked(), body=b"open", topic=HALF_TOPIC, properties=b"UNIQ_KEY\x01ID\x02"))


class Bench:
    def __init__(self) -> None:
        self.clock, self.log, self.replication = ManualClock(), Records(), ScriptedReplication()
        self.pending = PendingSends(WAITING_MAX)
        system = system_topics("DefaultCluster", "broker-a", auto_create=True, queue_nums=8)
        self.topics = Topics(self.clock, system, lambda: None)
        groups = SubscriptionGroups(self.clock, auto_create=False, on_change=lambda: None)
        groups.put(SubscriptionGroupConfig("CG"))
        self.peer = RecordingPeer()
        self.tasks = Tasks(self._failed)
        self.processor = SendBack(
            store=cast(Any, self.log),
            topics=self.topics,
            groups=groups,
            gate=WriteGate(self.replication, self.replication, self.pending, self.clock, wait_ms=3_000),
            random=random.Random(1),
            permission=lambda: 6,
            delay_levels=18,
            tasks=self.tasks,
            access=OpenAccess(),
        )

    def _failed(self, error: BaseException) -> None:
        raise AssertionError(error)

    def hand_back(self, commands: Iterable[RemotingCommand]) -> None:
        async def scenario() -> None:
            self.processor.handle(cast(Any, self.peer), list(commands))
            while len(self.tasks):  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0)

        asyncio.run(scenario())

    @property
    def answers(self) -> dict[int, tuple[int, str | None]]:
        return {reply.opaque: (reply.code, reply.remark) for reply in self.peer.replies}


def back(opaque: int, offset: int = 0, group: str = "CG", level: int = 0, **fields: str) -> RemotingCommand:
    header = ConsumerSendMsgBackHeader(offset, group, level)
    return RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, opaque, ext=header.to_ext() | fields)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_send_backs_of_one_receive_are_stored_by_one_append_and_answered_by_one_write(bench: Bench) -> None:
    bench.hand_back(back(opaque) for opaque in range(5))
    assert [len(batch) for batch in bench.log.batches] == [5]
    assert bench.peer.writes == []
    bench.pending.acknowledged(5 * RECORD_BYTES)
    assert [len(write) for write in bench.peer.writes] == [5]
    assert set(bench.answers.values()) == {(0, None)}
    message = bench.log.batches[0][0]
    properties = parse_properties(message.properties)
    assert (message.topic, message.reconsume_times, bytes(message.body)) == ("SCHEDULE_TOPIC_XXXX", 1, b"bad")
    assert (properties["REAL_TOPIC"], properties["RETRY_TOPIC"], properties["DELAY"]) == (
        "%RETRY%CG", "orders", "3",
    )  # fmt: skip
    assert "WAIT" not in properties


def test_long_messages_of_one_receive_are_stored_in_portions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 requests of 200 bytes may name a message of 4 MiB each."""
    monkeypatch.setattr("broker.sends.sendback.PORTION_BYTES", 6)
    bench.hand_back([*(back(opaque) for opaque in range(4)), back(4, DAMAGED), back(5, 2_000), back(6)])
    assert [len(batch) for batch in bench.log.batches] == [2, 2, 1]
    assert bench.answers.keys() == {4, 5}
    bench.pending.acknowledged(5 * RECORD_BYTES)
    assert {opaque for opaque, (code, _) in bench.answers.items() if code == 0} == {0, 1, 2, 3, 6}


def test_each_send_back_is_refused_for_its_own_fault(bench: Bench) -> None:
    commands = [
        back(0),
        back(1, group="unknown"),
        back(2, offset=5_000),
        back(3, offset="no number"),  # type: ignore[arg-type]
        back(4, originMsgId="another"),
        back(5, offset=DAMAGED),
        back(6, level=-1),
    ]
    bench.hand_back(commands)
    assert [len(batch) for batch in bench.log.batches] == [2]
    assert bench.log.batches[0][1].topic == "%DLQ%CG"
    assert [len(write) for write in bench.peer.writes] == [5]
    assert {opaque: code for opaque, (code, _) in bench.answers.items()} == {
        1: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 2: 1, 3: 1, 4: 1, 5: 1,
    }  # fmt: skip
    bench.pending.acknowledged(2 * RECORD_BYTES)
    assert bench.answers[0] == bench.answers[6] == (0, None)


def test_a_send_back_of_a_half_message_is_refused(bench: Bench) -> None:
    bench.hand_back([back(1, HALF), back(2)])
    assert [len(batch) for batch in bench.log.batches] == [1]
    code, remark = bench.answers[1]
    assert (code, remark) == (1, f"look message by offset failed, {HALF}: it is in {HALF_TOPIC}")


def test_a_one_way_send_back_gets_no_answer(bench: Bench) -> None:
    silent, refused = back(1), back(2, group="unknown")
    for command in (silent, refused):
        command.flag |= ONEWAY_BIT
    bench.hand_back([silent, refused, back(3)])
    bench.pending.acknowledged(2 * RECORD_BYTES)
    assert bench.answers == {3: (0, None)}


def test_an_unconfirmed_send_back_is_answered_as_upstream_does(bench: Bench) -> None:
    bench.hand_back([back(1)])
    bench.pending.expire(bench.clock.monotonic_ms() + 3_000, 0)
    assert bench.answers == {1: (ResponseCode.SYSTEM_ERROR, "FLUSH_SLAVE_TIMEOUT")}


def test_a_send_back_refused_by_the_store_is_answered_with_its_status(bench: Bench) -> None:
    bench.log.error = PutStatus.SERVICE_NOT_AVAILABLE
    bench.hand_back([back(1), back(2)])
    assert set(bench.answers.values()) == {(1, "SERVICE_NOT_AVAILABLE")}


def test_a_slave_refuses_send_backs_and_stores_nothing(bench: Bench) -> None:
    bench.replication.accepts_sends, bench.replication.is_slave = False, True
    bench.hand_back([back(1), back(2)])
    assert {code for code, _ in bench.answers.values()} == {ResponseCode.SYSTEM_BUSY}
    assert bench.log.batches == []


def test_send_backs_that_wait_for_the_disk_are_bounded(bench: Bench) -> None:
    async def scenario() -> None:
        for opaque in range(RUNNING_MAX + 1):
            bench.processor.handle(cast(Any, bench.peer), [back(opaque)])
        assert bench.answers.keys() == {RUNNING_MAX}
        while len(bench.tasks):  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(bench.pending) == WAITING_MAX
    assert {code for code, _ in bench.answers.values()} == {ResponseCode.SYSTEM_BUSY}
