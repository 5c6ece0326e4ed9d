"""The runtime of a real process.

Invariant: every part of it works below the one root that it was opened for."""

from __future__ import annotations

import os
import random
from pathlib import Path

from mqruntime.clock import SystemClock, local_hour
from mqruntime.network import PLAIN, Network
from mqruntime.runtime import Runtime
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.storelock import RealStoreLock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def real_runtime(root: Path, network: Network = PLAIN) -> Runtime:
    """The system clock, a generator seeded by the operating system, the files below `root`, and `network`."""
    return Runtime(
        clock=SystemClock(),
        random=random.Random(),
        files=RealSmallFiles(root),
        segments=RealSegmentDirectory(root),
        lock=RealStoreLock(root),
        boot_id=_boot_id(),
        network=network,
        side_files=RealSmallFiles(root),
        local_hour=local_hour,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
