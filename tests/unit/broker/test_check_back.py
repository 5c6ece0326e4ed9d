"""A master's checks of its open half messages, against a scripted log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

from broker.clients.groups import GroupClient
from broker.settings.broker import BrokerSettings
from broker.tables.topics import Topics
from broker.transactions.checkback import CheckBack
from broker.transactions.outcomes import TransactionOutcome
from broker.transactions.records import half_of
from messagestore.errors import RecordDamaged
from messagestore.messages import MessageToStore, PutResult, PutStatus, QueueEntry
from messagestore.record import PROPERTIES_BYTES_MAX, decode
from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from remoting.command import RemotingCommand
from tests.unit.broker.transactionbench import Bench, ScriptedLog, ScriptedRole, half_message, replace_half


class ScriptedPeer:
    """A producer's connection; a `slow` one reads nothing."""

    def __init__(self, asked: list[RemotingCommand], *, slow: bool = False) -> None:
        self.closed, self.unsent_bytes = False, 0
        self._asked, self._slow = asked, slow

    def one_way(self, command: RemotingCommand) -> None:
        self._asked.append(command)
        if self._slow:
            self.unsent_bytes += len(command.body or b"")


class Asker:
    """The check back of a bench, with one producer."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.lead()
        self.role = ScriptedRole()
        self.asked: list[RemotingCommand] = []
        self.peer = ScriptedPeer(self.asked)
        self.producers = [GroupClient("10.0.4.1@p", cast(Any, self.peer), "JAVA", 0)]
        self.strangers: list[GroupClient] = []
        self.check_back = CheckBack(
            self.bench.transactions,
            store=self.bench.log,
            role=self.role,
            replication=self.role,
            topics=Topics(self.bench.clock, [], lambda: None),
            producers=lambda group: self.producers,
            may_end=lambda client, topic: client not in self.strangers,
            clock=self.bench.clock,
            settings=BrokerSettings(),
        )

    def half(self, body: bytes) -> PutResult:
        appended = self.bench.log.half(body)
        self.bench.transactions.half_stored(half_message(self.bench, appended), appended)
        return appended

    def java_half(self, body: bytes) -> PutResult:
        """A half message whose properties leave no room for the property that putting it back adds."""
        own = half_of(MessageToStore("orders", 1, body, b"PGROUP\x01PG\x02"))
        long = b"own\x01" + b"x" * (PROPERTIES_BYTES_MAX - len(own.properties) - 5) + b"\x02"
        half = replace(own, properties=own.properties + long)
        appended = self.bench.log._append(half)
        self.bench.transactions.half_stored(half, appended)
        return appended

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.bench.clock.ms += 30_000
            asyncio.run(self.check_back.round())

    def asked_for(self) -> list[bytes]:
        """The bodies of the checked half messages."""
        return [decode(request.body or b"").body for request in self.asked]

    def put_back_count(self) -> int:
        halves = [self.bench.log.at(entry.physical_offset) for entry in self.bench.log.queues[HALF_TOPIC]]
        return sum(b"TRANSACTION_CHECK_TIMES" in half.properties for half in halves)


def test_a_damaged_half_message_does_not_stop_checks_of_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each damaged one is logged once, although it is read in every round."""
    asker = Asker()
    bad, gone, _ = asker.half(b"bad"), asker.half(b"gone"), asker.half(b"good")
    read = asker.bench.log.message_at

    async def message_at(place: int) -> memoryview | None:
        if place == gone.physical_offset:
            return None
        if place == bad.physical_offset:
            raise RecordDamaged("0", place, "set by the test")
        return await read(place)

    monkeypatch.setattr(asker.bench.log, "message_at", message_at)
    asker.bench.clock.ms += 10_000
    asyncio.run(asker.check_back.round())
    assert asker.put_back_count() == len(asker.asked) == 1
    assert asker.bench.open == [0, 1, 2]
    for _ in range(3):
        asker.bench.clock.ms += 60_000
        asyncio.run(asker.check_back.round())
    logged = [getattr(record, "fields", {}) for record in caplog.records if record.levelname == "ERROR"]
    assert [each["offset"] for each in logged] == [bad.physical_offset, gone.physical_offset]
    assert "another replica" in str(logged[0]["why"])


def test_half_messages_in_flight_for_a_check_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.checkback.IN_FLIGHT_BYTES_MAX", 200)
    asker = Asker()
    for number in range(5):
        asker.half(bytes([97 + number]) * 100)
    asker.bench.log.confirmed = len(asker.bench.log.bytes)
    asker.bench.clock.ms += 10_000

    async def sleep(seconds: float) -> None:
        """A round that waits for room never gets it."""
        asker.role.accepts_sends = False

    monkeypatch.setattr("asyncio.sleep", sleep)
    asyncio.run(asker.check_back.round())
    assert asker.put_back_count() == 2
    asker.role.accepts_sends, asker.bench.log.confirmed = True, None
    asker.check_back.acknowledged()
    asyncio.run(asker.check_back.round())
    assert len(asker.asked) >= 5


def measured(log: ScriptedLog) -> Callable[[MessageToStore], PutResult]:
    """Its append; refuses properties over the limit of a record, as the store does."""
    append = log._append

    def within(message: MessageToStore) -> PutResult:
        if len(message.properties) > 32_767:
            return PutResult(-1, -1, -1, 0, 0, PutStatus.PROPERTIES_SIZE_EXCEEDED)
        return append(message)

    return within


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> Asker:
    """An asker whose log refuses oversized properties."""
    asker = Asker()
    monkeypatch.setattr(asker.bench.log, "_append", measured(asker.bench.log))
    return asker


def errors(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    """The logged errors, each with its offset."""
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    return [(record.getMessage(), getattr(record, "fields", {}).get("offset")) for record in logged]


def test_a_half_message_that_cannot_be_put_back_is_checked_in_place(
    asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    """All are checked in every round. Upstream retries the put and never reaches the later half messages."""
    java = asker.java_half(b"java's")
    asker.half(b"ours")
    asker.rounds(3)
    assert asker.asked_for() == 3 * [b"java's", b"ours"]
    assert {request.ext["commitLogOffset"] for request in asker.asked[::2]} == {str(java.physical_offset)}
    assert asker.put_back_count() == 3
    assert set(asker.bench.open) == {0, 1}
    (logged,) = errors(caplog)
    assert logged[1] == java.physical_offset and "checked in place" in logged[0]


def test_a_half_message_checked_in_place_too_often_is_copied_to_the_abandoned_topic(asker: Asker) -> None:
    java = asker.java_half(b"java's")
    asker.rounds(14)
    assert asker.bench.open == [0]
    asker.rounds(2)
    assert asker.asked_for() == 15 * [b"java's"]
    assert asker.bench.open == []
    (kept,) = [asker.bench.log.at(entry.physical_offset) for entry in given_up(asker)]
    half = asker.bench.log.at(java.physical_offset)
    assert (kept.body, kept.properties) == (half.body, half.properties)


def test_a_half_message_checked_in_place_waits_for_its_producers_like_any_other(asker: Asker) -> None:
    asker.java_half(b"java's")
    producers, asker.producers = asker.producers, []
    asker.rounds(100)
    asker.producers = producers
    asker.rounds(14)
    assert asker.bench.open == [0] and len(asker.asked) == 14
    asker.producers = []
    asker.bench.clock.ms += 72 * 3_600_000
    asker.rounds(1)
    assert asker.bench.open == [] and len(given_up(asker)) == 1


def test_checks_in_place_are_bounded_and_every_half_message_gets_its_turn(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later half messages get their turn, also after ended ones."""
    monkeypatch.setattr("broker.transactions.checkback.IN_PLACE_MAX", 2)
    for body in (b"a", b"b", b"c", b"d"):
        asker.java_half(body)
    asker.rounds(2)
    assert asker.asked_for() == 2 * [b"a", b"b"]
    asker.bench.transactions.ended(replace_half(asker.bench, 0), TransactionOutcome.ROLLBACK)
    asker.rounds(1)
    assert asker.asked_for()[4:] == [b"b", b"c"]
    asker.rounds(30)
    assert asker.bench.open == [] and len(given_up(asker)) == 3
    assert Counter(asker.asked_for()) == {b"a": 2, b"b": 15, b"c": 15, b"d": 15}


def test_a_half_message_that_cannot_be_copied_is_abandoned_and_logged(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Formerly the copy was retried for ever, which kept the log from retention."""
    java = asker.java_half(b"java's")
    append = asker.bench.log._append

    def refused_there(message: MessageToStore) -> PutResult:
        if message.topic == CHECKED_TOO_OFTEN_TOPIC:
            return PutResult(-1, -1, -1, 0, 0, PutStatus.MESSAGE_ILLEGAL)
        return append(message)

    monkeypatch.setattr(asker.bench.log, "_append", refused_there)
    asker.rounds(20)
    assert asker.asked_for() == 15 * [b"java's"]
    assert asker.bench.open == [] and given_up(asker) == []
    asker.bench.transactions.write_ops()
    assert asker.bench.lead() == [], "the next master does not check it again"
    (logged,) = [record for record in caplog.records if "abandoned without a copy" in record.getMessage()]
    assert getattr(logged, "fields", {}) == {
        "group": "PG", "key": "", "checks": 0, "topic": HALF_TOPIC, "queue_offset": 0, "offset": java.physical_offset,
        "why": "MESSAGE_ILLEGAL",
    }  # fmt: skip


def given_up(asker: Asker) -> list[QueueEntry]:
    return asker.bench.log.queues.get(CHECKED_TOO_OFTEN_TOPIC, [])


LARGE = [bytes([97 + number]) * 1_000 for number in range(6)]


def clock_runs(asker: Asker, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """A sleep advances the clock and calls `meanwhile`."""
    monkeypatch.setattr("broker.transactions.producerturns.UNREAD_BYTES_MAX", 8_500)

    async def sleep(seconds: float) -> None:
        asker.bench.clock.ms += int(seconds * 1000)
        meanwhile()

    monkeypatch.setattr("asyncio.sleep", sleep)


def test_a_producer_that_does_not_read_gets_no_more_checks_and_unsent_ones_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asker = Asker()
    clock_runs(asker, monkeypatch, lambda: None)
    asker.peer = ScriptedPeer(asker.asked, slow=True)
    asker.producers[0].peer = cast(Any, asker.peer)
    for body in LARGE:
        asker.half(body)
    asker.rounds(20)
    assert asker.asked_for() == LARGE[:3], "no check is written beyond the limit of unread bytes"
    assert asker.put_back_count() == 3
    assert set(asker.bench.open) == set(range(6)) and not given_up(asker)


def test_checks_continue_in_the_same_round_when_the_producer_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker()
    asker.peer = ScriptedPeer(asker.asked, slow=True)
    asker.producers[0].peer = cast(Any, asker.peer)
    unread_max = 0

    def reads() -> None:
        nonlocal unread_max
        unread_max = max(unread_max, asker.peer.unsent_bytes)
        asker.peer.unsent_bytes = max(0, asker.peer.unsent_bytes - 500)

    clock_runs(asker, monkeypatch, reads)
    for body in LARGE:
        asker.half(body)
    asker.rounds(1)
    assert asker.asked_for() == LARGE
    assert unread_max <= 11_700


def test_an_unconfirmed_check_counts_against_the_limit_of_its_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asker = Asker()
    clock_runs(asker, monkeypatch, lambda: None)
    for body in LARGE:
        asker.half(body)
    asker.bench.log.confirmed = len(asker.bench.log.bytes)
    asker.rounds(1)
    assert asker.put_back_count() == 3 and not asker.asked
    asker.bench.log.confirmed = None
    asker.check_back.acknowledged()
    assert asker.asked_for() == LARGE[:3]
    asker.rounds(1)
    assert set(asker.asked_for()) == set(LARGE), "sent checks do not count against the limit"


def test_a_reading_producer_gets_the_checks_of_one_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half messages of other groups do not wait either."""
    asker = Asker()
    clock_runs(asker, monkeypatch, lambda: None)
    slow: list[RemotingCommand] = []
    asker.producers.append(GroupClient("10.0.4.2@p", cast(Any, ScriptedPeer(slow, slow=True)), "JAVA", 0))
    for body in LARGE * 2:
        asker.half(body)
    asker.rounds(1)
    assert len(slow) == 3 and len(asker.asked) == 9


def test_a_producer_that_does_not_read_delays_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker()
    clock_runs(asker, monkeypatch, lambda: None)
    asker.peer = ScriptedPeer(asker.asked, slow=True)
    asker.producers[0].peer = cast(Any, asker.peer)
    for body in LARGE:
        asker.half(body)
    began: list[int] = []
    one_round = asker.check_back.round

    async def counted() -> bool:
        began.append(asker.bench.clock.ms)
        if len(began) == 4:
            raise asyncio.CancelledError
        return await one_round()

    monkeypatch.setattr(asker.check_back, "round", counted)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asker.check_back.run())
    between = [later - before for before, later in pairwise(began)]
    assert between == [30_000] * 3
