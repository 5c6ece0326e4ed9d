"""The number that a store draws at each start."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.role.startnumber import DRAW_EVERY_MS, FILE, KeptStartNumber
from simulation.kernel.world import World
from tests.unit.broker.test_memory_mark import Files


def opened(files: Files) -> KeptStartNumber:
    kept = KeptStartNumber(files)
    asyncio.run(kept.open())
    return kept


def test_each_start_draws_a_greater_one_and_so_does_who_was_told_of_one() -> None:
    files = Files()
    assert [opened(files).number for _ in range(3)] == [1, 2, 3]
    kept = opened(files)
    asyncio.run(kept.draw(above=40))
    assert kept.number == 41
    asyncio.run(kept.draw(above=40))
    assert kept.number == 42 and opened(files).number == 43
    assert files.content == {FILE: b"00000000000000000043\n"}


@pytest.mark.parametrize("damaged", [b"", b"12", b"0000000000000000004x\n", b"9" * 20, b"\xff" * 21])
def test_a_damaged_file_begins_anew(damaged: bytes) -> None:
    files = Files()
    files.content[FILE] = damaged
    assert opened(files).number == 1


def test_on_a_full_disk_a_start_draws_one_too() -> None:
    files = Files()
    opened(files)
    files.full = True
    assert opened(files).number == 2


def test_what_was_not_stored_was_not_drawn() -> None:
    files = Files()
    files.full = True
    kept = KeptStartNumber(files)
    with pytest.raises(OSError):
        asyncio.run(kept.open())
    assert kept.number == 0


def test_it_grows_while_the_store_is_open_and_a_disk_that_fails_is_tried_again() -> None:
    with World(1) as world:
        node = world.node("broker", "10.0.0.1")
        kept = KeptStartNumber(node.runtime().files)
        world.run(kept.open())
        node.spawn(kept.run())
        world.run_for_ms(3 * DRAW_EVERY_MS + 500)
        assert kept.number == 4
        node.disk.fail_next("overwrite", OSError(errno.EIO, "Input/output error"), times=3)
        world.run_for_ms(3 * DRAW_EVERY_MS)
        assert kept.number > 4
        stored = int((node.disk.content(FILE) or b"").decode())
        assert stored in (kept.number, kept.number + 1), "nobody hears one that is not on the disk"
