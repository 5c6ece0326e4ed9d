"""The clean-up of old segments by a broker, with a real store and a scripted clock and replicas."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.retention.cleaner import Cleaner
from broker.retention.leases import KEPT_AFTER_MS, Leases
from broker.settings.broker import BrokerSettings
from ha.service.haservice import HAService
from messagestore.leases import LEASE_MS_MAX, Lease
from messagestore.messages import PutStatus
from mqruntime.segments import DiskSpace, RealSegmentDirectory
from tests.support.doubles import ManualClock, MemoryFiles
from tests.unit.messagestore.storehelp import SEGMENT, filled, message, names, saved

HOUR_MS = 3_600_000
Scenario = Callable[["Scene"], Awaitable[None]]


@dataclass
class Scene:
    """A broker at five in the morning, whose store has five full old segments."""

    root: Path
    settings: BrokerSettings = field(default_factory=lambda: BrokerSettings(fileReservedTime=48))
    clock: ManualClock = field(default_factory=ManualClock)
    files: MemoryFiles = field(default_factory=MemoryFiles)
    hour: int = 5
    read_from: int | None = None
    undelivered: int | None = None
    open_half: int | None = None
    prefixes: list[int] = field(default_factory=list)

    async def open(self) -> None:
        self.store = await filled(self.root)
        self.clock.wall_ms = self.store._clock.now_ms() + 49 * HOUR_MS
        self.disk(0.5)

        async def truncate_epoch_prefix(log_min: int) -> None:
            self.prefixes.append(log_min)

        ha: Any = SimpleNamespace(
            read_from=lambda: self.read_from, truncate_epoch_prefix=truncate_epoch_prefix
        )
        self.cleaner = Cleaner(
            store=self.store,
            ha=cast(HAService, ha),
            leases=Leases(self.files),
            settings=self.settings,
            clock=self.clock,
            local_hour=lambda now_ms: self.hour,
            undelivered=lambda: self.undelivered,
            open_half=lambda: self.open_half,
            on_trimmed=lambda: None,
        )

    def disk(self, used: float) -> None:
        self.store.disk_space = lambda: DiskSpace(round(used * 100), round(100 - used * 100))  # type: ignore[method-assign]

    async def clean(self) -> int:
        """Runs one round, and returns the log start."""
        await self.cleaner.clean()
        return self.store.min_offset()


def scene(scenario: Scenario) -> Callable[[Path], None]:
    @functools.wraps(scenario)
    def run(tmp_path: Path) -> None:
        async def whole() -> None:
            played = Scene(tmp_path)
            await played.open()
            await scenario(played)
            await played.store.stop()

        asyncio.run(whole())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for the scenario's arguments
    return run


@scene
async def test_old_segments_and_their_epochs_are_deleted_at_the_configured_hour(s: Scene) -> None:
    assert await s.clean() == 0
    s.hour = 4
    assert await s.clean() == 5 * SEGMENT
    assert names(s.root, "commitlog")[0] == 5 * SEGMENT
    assert s.prefixes == [0, 5 * SEGMENT]
    s.clock.wall_ms -= 2 * HOUR_MS
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_young_segments_are_kept(s: Scene) -> None:
    s.hour = 4
    s.clock.wall_ms -= 2 * HOUR_MS
    assert await s.clean() == 0
    s.settings.file_reserved_time = 46  # as updateBrokerConfig changes it
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_an_operator_can_delete_old_segments_at_any_hour(s: Scene) -> None:
    s.cleaner.ask()
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_deleted_segments_per_round_are_bounded(s: Scene) -> None:
    s.hour, s.settings.delete_file_batch_max = 4, 2
    assert [await s.clean() for _ in range(3)] == [2 * SEGMENT, 4 * SEGMENT, 5 * SEGMENT]


@scene
async def test_segments_read_by_a_connected_slave_are_kept_within_the_reserve(s: Scene) -> None:
    s.hour, s.read_from = 4, SEGMENT + 100
    assert await s.clean() == SEGMENT
    assert s.cleaner.held is not None and "slave" in s.cleaner.held.why
    s.settings.slave_catchup_reserve = s.store.max_offset() - 3 * SEGMENT - 50
    assert await s.clean() == 3 * SEGMENT
    s.read_from = None
    assert await s.clean() == 5 * SEGMENT
    assert s.cleaner.held is None


@scene
async def test_segments_that_become_needed_during_a_deletion_are_kept(s: Scene) -> None:
    """A slave connects, or a delayed or half message is stored, between decision and deletion."""
    raise_min = s.store.trimming._queues.raise_min
    s.hour = 4
    for need in ("read_from", "undelivered", "open_half"):

        async def needed_meanwhile(log_min: int, need: str = need) -> None:
            await raise_min(log_min)
            setattr(s, need, 2 * SEGMENT + 7)

        s.store.trimming._queues.raise_min = needed_meanwhile  # type: ignore[method-assign]
        assert await s.clean() == 0, need
        setattr(s, need, None)
    s.store.trimming._queues.raise_min = raise_min  # type: ignore[method-assign]
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_delayed_messages_stay_until_they_are_delivered(s: Scene) -> None:
    s.hour, s.undelivered = 4, 2 * SEGMENT + 7
    assert await s.clean() == 2 * SEGMENT
    s.undelivered = None
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_half_messages_stay_until_they_are_ended(s: Scene) -> None:
    s.hour, s.open_half = 4, 3 * SEGMENT + 7
    assert await s.clean() == 3 * SEGMENT
    assert s.cleaner.held is not None and "transaction" in s.cleaner.held.why
    s.open_half = None
    assert await s.clean() == 5 * SEGMENT


@scene
async def test_segments_beyond_the_checkpoint_are_kept_even_on_a_full_disk(s: Scene) -> None:
    while s.store.max_offset() < 9 * SEGMENT:
        s.store.append([message(bytes(400))])
    s.disk(0.99)
    assert await s.clean() == 5 * SEGMENT
    s.store.disk_too_full = False
    await saved(s.store)
    assert await s.clean() == s.store.max_offset() // SEGMENT * SEGMENT


@scene
async def test_a_full_disk_loses_young_segments_and_refuses_sends_until_it_has_room(s: Scene) -> None:
    s.clock.wall_ms -= 48 * HOUR_MS
    s.settings.delete_file_batch_max = 1
    s.disk(0.86)
    assert await s.clean() == SEGMENT
    s.disk(0.91)
    assert await s.clean() == 2 * SEGMENT
    assert not s.store.takes_messages()
    [refused] = s.store.append([message()])
    assert refused.error is PutStatus.SERVICE_NOT_AVAILABLE
    s.disk(0.86)
    await s.clean()
    assert not s.store.takes_messages()
    s.disk(0.85)
    assert await s.clean() == 3 * SEGMENT
    assert s.store.takes_messages()


@scene
async def test_a_lease_keeps_segments_until_it_ends_and_is_then_removed(s: Scene) -> None:
    s.hour, now_ms = 4, s.clock.now_ms()
    s.files.content["leases/a"] = Lease("spark a", 2 * SEGMENT, now_ms + 1_000).encode()
    s.files.content["leases/far"] = Lease("a clock gone wrong", 0, now_ms + 2 * LEASE_MS_MAX).encode()
    s.files.content["leases/torn"] = b"holder=x\nfr"
    assert await s.clean() == 2 * SEGMENT
    assert s.cleaner.held is not None and s.cleaner.held.why == "read by spark a"
    s.clock.ms += 1_000
    assert await s.clean() == 5 * SEGMENT
    s.clock.ms += KEPT_AFTER_MS + 1
    await s.clean()
    assert "leases/a" not in s.files.content


@scene
async def test_a_failed_deletion_of_segments_is_retried(s: Scene) -> None:
    s.hour = 4

    async def fails(*ignored: Any) -> None:
        raise OSError(5, "disk")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RealSegmentDirectory, "delete", fails)
        assert await s.clean() == 5 * SEGMENT
    await s.clean()
    assert names(s.root, "commitlog")[0] == 5 * SEGMENT
