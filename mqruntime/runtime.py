"""Everything of the outside world that an app gets.

Invariant: an app reads time, randomness and disk, and opens ports and connections, only through these fields; so the same app
runs on a machine and in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mqruntime.clock import utc_hour

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mqruntime.clock import Clock
    from mqruntime.network import Network
    from mqruntime.segments import SegmentDirectory
    from mqruntime.smallfiles import SmallFiles
    from mqruntime.storelock import StoreLock


@dataclass
class Runtime:
    """`files` and `segments` share one root, the process' store directory, and `lock` guards that root. `boot_id` names the
    current boot of the machine, whose memory outlives a process but no reboot; empty if unknown. `side_files` are the same
    files through a separate thread, for writes that nothing waits for: they never delay `files`; None: there is no such
    thread. `local_hour(wall ms)` is the hour of the day in the machine's time zone. `memory_bytes` is the machine's memory; 0
    if unknown."""

    clock: Clock
    random: random.Random
    files: SmallFiles
    segments: SegmentDirectory
    lock: StoreLock
    boot_id: str
    network: Network
    side_files: SmallFiles | None = None
    local_hour: Callable[[int], int] = utc_hour
    memory_bytes: int = 0


class RestartWanted(Exception):
    """A serving app is to be stopped cleanly, and another one created and started instead."""


class StartRefused(Exception):
    """The store root is not as a server left it: no start succeeds before an operator has repaired it."""


class App(Protocol):
    """One server: the interface of a controller, broker or name server for `serve.run_app` and the simulator."""

    async def start(self) -> None:
        """Return once it serves; raise when it cannot."""
        ...

    async def stop(self) -> None:
        """End gracefully; return once sockets are closed and files are flushed."""
        ...

    async def wait_failed(self) -> BaseException:
        """Resolve only on a fatal error, with that error: the process logs it and exits non-zero; or with `RestartWanted`."""
        ...
