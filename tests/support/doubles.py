"""Stand-ins for the outside world that several packages' tests are driven with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


class ManualClock:
    """Time moves only when a test adds to `ms`; `wall_ms` is the wall's time at 0."""

    def __init__(self) -> None:
        self.ms = 0
        self.wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms + self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def work_us(self) -> int:
        return 1_000 * self.ms


class MemoryFiles:
    """Small files in `content`, by name."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = dict(content or {})
        self.replaced = 0

    async def read(self, name: str) -> bytes | None:
        return self.content.get(name)

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        await asyncio.sleep(0)  # a disk takes time: others run meanwhile
        self.content[name] = data
        self.replaced += 1

    async def overwrite(self, name: str, data: bytes) -> None:
        await asyncio.sleep(0)
        self.content[name] = data

    async def append(self, name: str, data: bytes) -> None:
        await asyncio.sleep(0)
        self.content[name] = self.content.get(name, b"") + data

    async def rename(self, name: str, to: str) -> None:
        self.content[to] = self.content.pop(name)

    async def remove(self, name: str) -> None:
        self.content.pop(name, None)

    async def names(self, under: str) -> list[str]:
        return sorted(name for name in self.content if not under or name.startswith(f"{under}/"))

    async def move(self, name: str, folder: str) -> bool:
        moved = [each for each in self.content if each == name or each.startswith(f"{name}/")]
        for each in moved:
            self.content[f"{folder}/{each}"] = self.content.pop(each)
        return bool(moved)

    async def immovable(self, names: Sequence[str]) -> list[str]:
        return []

    async def discard(self, folder: str) -> None:
        for each in await self.names(folder):
            del self.content[each]


class NoQueues:
    """A store without any."""

    def emptied_queues(self) -> list[tuple[str, int, int]]:
        return []

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        raise AssertionError(f"{topic}/{queue_id} ends at {end}")

    def topic_begins_at(self, topic: str, log_offset: int) -> None: ...

    async def synced_to(self, end: int) -> None: ...

    tables_noted = False

    async def note_tables(self) -> None:
        self.tables_noted = True
