"""Everything of the outside world that an app gets.

Invariant: an app reads time, randomness and disk only through these fields, and the network only through the
running event loop; so the same app runs on a machine and in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mqruntime.clock import utc_hour

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mqruntime.clock import Clock
    from mqruntime.segments import SegmentDirectory
    from mqruntime.smallfiles import SmallFiles
    from mqruntime.storelock import StoreLock


@dataclass
class Runtime:
    """`files` and `segments` share one root, the process' store directory, and `lock` guards that root. `boot_id` names the
    present run of the machine, whose memory outlives a process and nothing else; empty where that is not told. `side_files` are
    the same files by a way of their own, for those that nobody waits for: they never delay what goes through `files`. None:
    there is no other way. `local_hour(wall ms)` is the hour of the day where the machine stands. `memory_bytes` are
    those of the machine; 0 where that is not told."""

    clock: Clock
    random: random.Random
    files: SmallFiles
    segments: SegmentDirectory
    lock: StoreLock
    boot_id: str
    side_files: SmallFiles | None = None
    local_hour: Callable[[int], int] = utc_hour
    memory_bytes: int = 0


class RestartWanted(Exception):
    """An app that serves is to be stopped in good order, and another one made and started in its place."""


class StartRefused(Exception):
    """What lies below the store root is not what a server left there: no start succeeds before an operator has mended it."""


class App(Protocol):
    """One server: what `serve.run_app` and the simulator know of a controller, broker or name server."""

    async def start(self) -> None:
        """Returns once it serves; raises when it cannot."""
        ...

    async def stop(self) -> None:
        """Graceful end; returns once sockets are closed and files are flushed."""
        ...

    async def wait_failed(self) -> BaseException:
        """Resolves only on a fatal error, with that error: the process says why and exits non-zero; or with `RestartWanted`."""
        ...
