"""A master whose disk cannot read a range that a slave needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from epochfile.file import EpochFile
from ha.service.haservice import HAService
from ha.settings import PairSettings
from mqruntime.clock import SystemClock
from tests.support.doubles import MemoryFiles
from tests.unit.ha.hascene import HOST, LOOPS, SETTINGS, Node, fill, in_step, played_by, turns, until
from tests.unit.ha.memorylog import MemoryLog, record

READS = ("check", "read_cold")
BAD = 9_000
LOGGED = "a slave is missing bytes of the log"


def logged_fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    lines = [line for line in caplog.records if line.getMessage().startswith(LOGGED)]
    return [vars(line)["fields"] for line in lines]


@pytest.mark.parametrize("read", READS)
@played_by(1, 2, 3)
async def test_an_unreadable_range_ends_only_the_link_that_needs_it(
    a: Node, b: Node, c: Node, read: str, caplog: pytest.LogCaptureFixture
) -> None:
    await in_step(a, c)
    fill(a, "epoch-1", 40)
    await until(lambda: c.log.max_offset() == a.log.max_offset())
    a.log.cold_below, a.log.unreadable[read] = a.log.max_offset(), BAD
    await b.follow(a, 1)
    await until(lambda: bool(logged_fields(caplog) or a.fatal))
    assert a.fatal == []
    fill(a, "later", 4)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    assert b.log.max_offset() <= BAD
    assert a.ha.in_sync_count() == 2

    a.log.unreadable.clear()
    await until(lambda: b.log.content() == a.log.content())
    await until(lambda: a.ha.in_sync_count() == 3)
    assert a.fatal == []


@pytest.mark.parametrize("read", READS)
@played_by(1, 2, 3, settings=replace(SETTINGS, slave_not_caught_up_ms_max=200))
async def test_a_member_that_needs_an_unreadable_range_leaves_the_set(
    a: Node, b: Node, c: Node, read: str
) -> None:
    await in_step(a, b, c)
    await b.ha.stop()
    fill(a, "epoch-1", 40)
    await until(lambda: c.log.max_offset() == a.log.max_offset())
    a.log.cold_below, a.log.unreadable[read] = a.log.max_offset(), BAD
    await b.start_again()
    await b.follow(a, 1)
    await until(lambda: a.ha.applied_members() == {1, 3} or bool(a.fatal))
    assert a.fatal == []
    fill(a, "later", 4)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    assert b.log.max_offset() <= BAD and 2 not in a.ha.applied_members()


@played_by(1, 2)
async def test_an_unreadable_range_is_logged_once_per_slave_and_segment(
    a: Node, b: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await a.lead(1)
    fill(a, "epoch-1", 40)
    a.log.cold_below, a.log.unreadable["read_cold"] = a.log.max_offset(), BAD
    await b.follow(a, 1)
    await until(
        lambda: sum(line.getMessage() == "slave gone" for line in caplog.records) >= 5 or bool(a.fatal)
    )
    [first] = logged_fields(caplog)
    assert (first["slave"], first["offset"]) == ("broker 2", 8192)
    assert "Input/output error" in str(first["why"])
    a.log.damaged_at, a.log.unreadable["read_cold"] = 17_000, 17_000
    await until(lambda: len(logged_fields(caplog)) == 2)
    assert logged_fields(caplog)[1]["why"] == "damaged at 17000"
    a.log.damaged_at = None
    a.log.unreadable.clear()
    await until(lambda: b.log.content() == a.log.content())


@asynccontextmanager
async def paired(log: MemoryLog, fatal: list[BaseException], **values: object) -> AsyncIterator[HAService]:
    ha = HAService(
        log,
        EpochFile(MemoryFiles()),
        settings=SETTINGS,
        clock=SystemClock(),
        host=HOST,
        port=0,
        advertised_host=HOST,
        members_min=lambda: 1,
        truncation_allowed=lambda: None,
        catch_up_limit=lambda: None,
        on_fatal=fatal.append,
        pair=PairSettings(**values),  # type: ignore[arg-type]  # its own names
    )
    await ha.start()
    try:
        yield ha
    finally:
        await ha.stop()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_master_of_a_pair_continues_after_an_unreadable_range(
    loop: str, read: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        fatal: list[BaseException] = []
        log, copy = MemoryLog(), MemoryLog()
        log.append(*(record(str(n), 500) for n in range(20)))
        async with paired(log, fatal) as master:
            await master.become_master(0, 0, frozenset(), 0)
            log.cold_below, log.unreadable[read] = log.max_offset(), BAD
            async with paired(copy, fatal, master_ha_address=master.address) as slave:
                await slave.become_slave(0, 1, 0)
                await until(lambda: bool(logged_fields(caplog) or fatal))
                await turns(200)
                assert copy.max_offset() <= BAD and fatal == []
                assert logged_fields(caplog)[0]["slave"] == HOST
                log.append(record("later", 500))
                assert master.acked_end() == log.max_offset()
                log.unreadable.clear()
                await until(lambda: copy.content() == log.content())
        assert fatal == []

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())
