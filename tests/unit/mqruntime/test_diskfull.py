"""A write that the disk refuses is retried and logged at a bounded rate, on virtual time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import TypeAlias

import pytest

from mqruntime.diskfull import DISK_FULL, RETRY_S, RetriedWrite, cure
from simulation.kernel.world import World

logger = logging.getLogger("demo")
LogLines: TypeAlias = Callable[[], list[tuple[int, str]]]


class Disk:
    """Refuses with `refusal`, if it is set; `tries` holds the time of each attempt in ms."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refusal: int | None = None
        self.tries: list[int] = []

    def make(self) -> str:
        self.tries.append(self.world.now_ms)
        if self.refusal is not None:
            raise OSError(self.refusal, os.strerror(self.refusal), "table.json")
        return "made"

    async def write(self) -> None:
        self.make()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> LogLines:
    """Level and text of each line logged so far."""
    caplog.set_level(logging.INFO)
    return lambda: [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize("error", DISK_FULL)
def test_a_write_is_performed_again_each_second_until_there_is_room(error: int, logged: LogLines) -> None:
    with World(1) as world:
        disk = Disk(world)
        write = RetriedWrite(logger, "no table can be written", again="table can be written again")

        async def story() -> bool:
            assert await write.perform(disk.write) is False
            disk.refusal = error
            asyncio.get_running_loop().call_later(44.5, setattr, disk, "refusal", None)
            return await write.perform(disk.write)

        assert world.run(story())
        assert not write.refused
        assert len(disk.tries) == 1 + 46
        gaps = {after - before for before, after in zip(disk.tries[1:], disk.tries[2:], strict=False)}
        assert gaps == {round(RETRY_S * 1000)}
    refusal = (logging.WARNING, "no table can be written; make room on this broker's disk")
    assert logged() == [
        refusal, refusal, (logging.INFO, "table can be written again"),
    ]  # fmt: skip


def test_another_error_ends_it_unless_any_error_may_pass(logged: LogLines) -> None:
    with World(1) as world:
        disk = Disk(world)
        disk.refusal = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            world.run(RetriedWrite(logger, "no table").perform(disk.write))
        assert not logged()
        patient = RetriedWrite(logger, "no table", any_error=True, level=logging.ERROR)

        async def story() -> bool:
            asyncio.get_running_loop().call_later(2.5, setattr, disk, "refusal", None)
            return await patient.perform(disk.write)

        assert world.run(story())
    assert logged() == [(logging.ERROR, "no table")]


def test_an_attempted_write_reports_the_refusal_and_may_be_tried_later(
    logged: LogLines,
) -> None:
    with World(1) as world:
        disk = Disk(world)
        disk.refusal = errno.ENOSPC
        write = RetriedWrite(logger, "currterm cannot be written", server="controller")
        assert not world.run(write.attempt(disk.write()))
        assert write.refused
        assert not world.run(write.attempt(disk.write()))
        disk.refusal = None
        assert world.run(write.attempt(disk.write()))
        assert not write.refused
    assert logged() == [(logging.WARNING, "currterm cannot be written; make room on this controller's disk")]


def test_a_full_disk_is_asked_once_a_second_for_any_number_of_callers() -> None:
    async def story(world: World) -> None:
        disk = Disk(world)
        disk.refusal = errno.ENOSPC
        write = RetriedWrite(logger, "no segment can be written")
        for _ in range(99):
            with pytest.raises(OSError, match="table.json"):
                write.make(disk.make)
            await asyncio.sleep(0.1)
        assert len(disk.tries) == 10
        disk.refusal = None
        await asyncio.sleep(RETRY_S)
        assert write.make(disk.make) == "made"
        assert not write.refused

    with World(1) as world:
        world.run(story(world))


def test_a_hint_is_given_for_a_known_error() -> None:
    assert cure(OSError(errno.EMFILE, "")) == "; raise the limit on open files (ulimit -n, LimitNOFILE)"
    assert cure(OSError(errno.EIO, "")) == cure(OSError()) == ""
