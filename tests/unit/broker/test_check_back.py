"""A master's looks at its open halves, against a scripted log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.clients.groups import Client
from broker.settings.broker import BrokerSettings
from broker.transactions.checkback import CheckBack
from messagestore.errors import RecordDamaged
from messagestore.messages import Appended
from messagestore.systemtopics import HALF_TOPIC
from tests.unit.broker.test_open_transactions import Bench, ScriptedRole, half_message


class Asker:
    """The check back of a bench, with one producer."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.lead()
        self.role = ScriptedRole()
        self.asked: list[object] = []
        peer = SimpleNamespace(closed=False, one_way=self.asked.append)
        self.client = Client("10.0.4.1@p", cast(Any, peer), "JAVA", 0)
        self.check_back = CheckBack(
            self.bench.transactions,
            store=self.bench.log,
            role=self.role,
            replication=self.role,
            topics=cast(Any, None),
            producers=lambda group: [self.client],
            clock=self.bench.clock,
            settings=BrokerSettings(),
        )

    def half(self, body: bytes) -> Appended:
        appended = self.bench.log.half(body)
        self.bench.transactions.half_stored(half_message(self.bench, appended), appended)
        return appended

    def put_back_count(self) -> int:
        halves = [self.bench.log.at(entry.physical_offset) for entry in self.bench.log.queues[HALF_TOPIC]]
        return sum(b"TRANSACTION_CHECK_TIMES" in half.properties for half in halves)


def test_a_damaged_half_keeps_no_other_one_from_being_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each damaged one an operator is told once, while it is looked at again and again."""
    asker = Asker()
    bad, gone, _ = asker.half(b"bad"), asker.half(b"gone"), asker.half(b"good")
    read = asker.bench.log.message_at

    async def message_at(place: int) -> memoryview | None:
        if place == gone.physical_offset:
            return None
        if place == bad.physical_offset:
            raise RecordDamaged("0", place, "a test says so")
        return await read(place)

    monkeypatch.setattr(asker.bench.log, "message_at", message_at)
    asker.bench.clock.ms += 10_000
    asyncio.run(asker.check_back.round())
    assert asker.put_back_count() == len(asker.asked) == 1
    assert asker.bench.open == [0, 1, 2]
    for _ in range(3):
        asker.bench.clock.ms += 60_000
        asyncio.run(asker.check_back.round())
    told = [getattr(record, "fields", {}) for record in caplog.records if record.levelname == "ERROR"]
    assert [each["offset"] for each in told] == [bad.physical_offset, gone.physical_offset]
    assert "another replica" in str(told[0]["why"])


def test_what_waits_to_be_asked_for_holds_no_more_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.checkback.IN_FLIGHT_BYTES_MAX", 200)
    asker = Asker()
    for number in range(5):
        asker.half(bytes([97 + number]) * 100)
    asker.bench.log.confirmed = len(asker.bench.log.bytes)
    asker.bench.clock.ms += 10_000

    async def sleep(seconds: float) -> None:
        """Whoever waits for room, waits for good."""
        asker.role.accepts_sends = False

    monkeypatch.setattr("asyncio.sleep", sleep)
    asyncio.run(asker.check_back.round())
    assert asker.put_back_count() == 2
    asker.role.accepts_sends, asker.bench.log.confirmed = True, None
    asker.check_back.acknowledged()
    asyncio.run(asker.check_back.round())
    assert len(asker.asked) >= 5
