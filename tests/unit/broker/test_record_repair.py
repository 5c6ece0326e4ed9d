"""A slave's repair of damaged records: its requests to the master, and the accepted answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.neighbours.recordrepair import RecordRepair
from epochfile.history import EpochHistory
from messagestore.scrub.soundness import Damage
from remoting.bodies.epochs import EpochCache, EpochSpan
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent
from tests.support.doubles import ManualClock

MASTER = "10.0.0.1:10911"
OFFSET = 800
LAST = 2**63 - 1


class Bench:
    """A slave with one damaged record, and its master's answers."""

    def __init__(self) -> None:
        self.damages = {OFFSET: Damage("00000000000000000000", OFFSET, 100, "the body has another CRC")}
        self.master: str | None = MASTER
        self.confirm = 1_000
        self.epochs = [EpochSpan(1, 0, 500), EpochSpan(2, 500, LAST)]
        self.master_end = 1_000
        self.answers: dict[int, RemotingCommand] = {
            RequestCode.VIEW_MESSAGE_BY_ID: RemotingCommand(0, body=b"intact")
        }
        self.asked: list[tuple[int, dict[str, str]]] = []
        self.repaired: list[tuple[int, bytes]] = []
        self.fails = False
        store = SimpleNamespace(
            integrity=SimpleNamespace(damages=self.damages),
            confirm_offset=lambda: self.confirm,
            repair=self.repair,
        )
        membership = cast(Any, self)
        self.repairs = RecordRepair(
            membership,
            store=cast(Any, store),
            ha=cast(Any, SimpleNamespace(history=EpochHistory([(1, 0), (2, 500)]))),
            client=cast(Any, self),
            clock=ManualClock(),
        )

    @property
    def master_address(self) -> str | None:
        return self.master

    @property
    def is_slave(self) -> bool:
        return self.master is not None

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert address == MASTER
        if self.fails:
            raise NotSent(address, "closed")
        self.asked.append((command.code, dict(command.ext)))
        if command.code == RequestCode.GET_BROKER_EPOCH_CACHE:
            return RemotingCommand(0, body=EpochCache("c", "b", 0, self.master_end, self.epochs).encode())
        return self.answers[command.code]

    async def repair(self, offset: int, content: bytes) -> bool:
        self.repaired.append((offset, content))
        return content == b"intact" and self.damages.pop(offset, None) is not None

    def run(self) -> Bench:
        asyncio.run(self.repairs.repair_all())
        return self


def test_a_damaged_record_is_fetched_from_the_master_by_its_offset() -> None:
    bench = Bench().run()
    assert [code for code, _ in bench.asked] == [
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    ]
    assert bench.asked[1][1]["offset"] == str(OFFSET)
    assert (bench.repaired, bench.damages) == ([(OFFSET, b"intact")], {})


@pytest.mark.parametrize(
    "epochs",
    [[EpochSpan(1, 0, LAST)], [EpochSpan(1, 0, 600), EpochSpan(2, 600, LAST)], [EpochSpan(2, 500, 700)]],
)
def test_no_record_is_taken_from_a_master_with_other_epochs_at_its_offset(epochs: list[EpochSpan]) -> None:
    bench = Bench()
    bench.epochs = epochs
    assert bench.run().repaired == [] and OFFSET in bench.damages


def test_a_record_that_is_unconfirmed_or_missing_on_the_master_is_not_fetched() -> None:
    shorter, unconfirmed, alone = Bench(), Bench(), Bench()
    shorter.master_end = unconfirmed.confirm = OFFSET
    alone.master = None
    for bench in (shorter, unconfirmed, alone):
        assert bench.run().repaired == [] and OFFSET in bench.damages


def test_a_damaged_record_stays_listed_after_a_refusal_wrong_bytes_or_no_answer() -> None:
    bench = Bench()
    bench.answers[RequestCode.VIEW_MESSAGE_BY_ID] = RemotingCommand(1, remark="can not find message")
    assert bench.run().repaired == []
    bench.answers[RequestCode.VIEW_MESSAGE_BY_ID] = RemotingCommand(0, body=b"corrupt")
    assert bench.run().repaired == [(OFFSET, b"corrupt")]
    bench.fails = True
    assert OFFSET in bench.run().damages


def test_each_damage_that_cannot_be_repaired_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.fails = True
    for offset in (700, 900):
        bench.damages[offset] = Damage("00000000000000000000", offset, 100, "the body has another CRC")
    for _ in range(20):
        bench.run()
    assert len(caplog.records) == 3
