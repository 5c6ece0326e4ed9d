"""The number that a store draws at each start."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.role.startnumber import DRAW_EVERY_MS, FILE, KeptStartNumber
from simulation.kernel.world import World
from tests.unit.broker.test_memory_mark import Files


def opened(files: Files, *, accepted: bool = False) -> KeptStartNumber:
    kept = KeptStartNumber(files)
    asyncio.run(kept.open())
    if accepted:
        kept.registered()
        asyncio.run(kept.draw())
    return kept


def test_each_start_after_one_that_was_accepted_draws_a_greater_one() -> None:
    files = Files()
    assert [opened(files, accepted=True).number for _ in range(3)] == [2, 4, 6]
    kept = opened(files)
    assert kept.number == 7
    asyncio.run(kept.draw(above=40))
    assert kept.number == 41 and files.content == {FILE: b"00000000000000000041-\n"}


def test_an_old_disk_does_not_outgrow_what_was_heard_by_starts_that_no_controller_sees() -> None:
    files = Files()
    opened(files, accepted=True)
    assert [opened(files).number for _ in range(3)] == [3, 3, 3]


@pytest.mark.parametrize(
    "damaged", [b"", b"12", b"0000000000000000004x+", b"9" * 20 + b"+", b"\xff" * 22, b"0" * 19 + b"4"]
)
def test_a_damaged_file_begins_again(damaged: bytes) -> None:
    files = Files()
    files.content[FILE] = damaged
    assert opened(files).number == 1


def test_on_a_full_disk_a_start_draws_one_too() -> None:
    files = Files()
    opened(files, accepted=True)
    files.full = True
    assert opened(files).number == 3


def test_what_was_not_stored_was_not_drawn() -> None:
    files = Files()
    files.full = True
    kept = KeptStartNumber(files)
    with pytest.raises(OSError):
        asyncio.run(kept.open())
    assert kept.number == 0


def test_it_grows_while_its_broker_is_registered_and_a_disk_that_fails_is_tried_again() -> None:
    with World(1) as world:
        node = world.node("broker", "10.0.0.1")
        kept, registered = KeptStartNumber(node.runtime().files), [True]
        world.run(kept.open())
        node.spawn(kept.run(lambda: registered[0]))
        world.run_for_ms(3 * DRAW_EVERY_MS)
        assert kept.number == 1, "nobody accepted it yet"
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
        assert stored in (kept.number, kept.number + 1), "nobody hears one that is not on the disk"
