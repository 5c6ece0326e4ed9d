"""The start number, which a store increases at each start."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.role.startnumber import DRAW_EVERY_MS, FILE, KeptStartNumber
from simulation.kernel.world import World
from tests.unit.broker.fullfiles import Files


def opened(files: Files, *, accepted: bool = False) -> KeptStartNumber:
    kept = KeptStartNumber(files)
    asyncio.run(kept.open())
    if accepted:
        kept.registered()
        asyncio.run(kept.draw())
    return kept


def test_each_start_after_a_registered_one_draws_a_greater_number() -> None:
    files = Files()
    assert [opened(files, accepted=True).number for _ in range(3)] == [2, 4, 6]
    kept = opened(files)
    assert kept.number == 7
    asyncio.run(kept.draw(above=40))
    assert kept.number == 41 and files.content == {FILE: b"00000000000000000041-\n"}


def test_unregistered_starts_do_not_increase_the_start_number() -> None:
    files = Files()
    opened(files, accepted=True)
    assert [opened(files).number for _ in range(3)] == [3, 3, 3]


@pytest.mark.parametrize(
    "damaged", [b"", b"12", b"0000000000000000004x+", b"9" * 20 + b"+", b"\xff" * 22, b"0" * 19 + b"4"]
)
def test_a_damaged_start_number_file_restarts_at_one(damaged: bytes) -> None:
    files = Files()
    files.content[FILE] = damaged
    assert opened(files).number == 1


def test_a_start_on_a_full_disk_draws_a_number_too() -> None:
    files = Files()
    opened(files, accepted=True)
    files.full = True
    assert opened(files).number == 3


def test_a_number_that_was_not_stored_is_not_drawn() -> None:
    files = Files()
    files.full = True
    kept = KeptStartNumber(files)
    with pytest.raises(OSError):
        asyncio.run(kept.open())
    assert kept.number == 0


def test_the_start_number_grows_while_registered_and_failed_writes_are_retried() -> None:
    with World(1) as world:
        node = world.node("broker", "10.0.0.1")
        kept, registered = KeptStartNumber(node.runtime().files), [True]
        world.run(kept.open())
        node.spawn(kept.run(lambda: registered[0]))
        world.run_for_ms(3 * DRAW_EVERY_MS)
        assert kept.number == 1, "no controller accepted it yet"
        kept.registered()
        world.run_for_ms(3 * DRAW_EVERY_MS + 500)
        assert kept.number == 5
        registered[0] = False
        world.run_for_ms(3 * DRAW_EVERY_MS)
        assert kept.number == 5
        registered[0] = True
        node.disk.fail_next("overwrite", OSError(errno.EIO, "Input/output error"), times=3)
        world.run_for_ms(4 * DRAW_EVERY_MS)
        assert kept.number > 5
        stored = int((node.disk.content(FILE) or b"")[:20])
        assert stored in (kept.number, kept.number + 1), "a number is on disk before it is used"
