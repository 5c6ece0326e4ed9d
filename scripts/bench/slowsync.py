"""A server on a disk whose syncs take longer: `python -m scripts.bench.slowsync MS MODULE [ARGUMENT ...]`.

Invariant: nothing but `os.fsync` and `os.fdatasync` differs, and these wait in the thread that called them, as on a slow
disk."""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable


def slowed(sync: Callable[[int], None], seconds: float) -> Callable[[int], None]:
    def slow(descriptor: int) -> None:
        time.sleep(seconds)
        sync(descriptor)

    return slow


def main() -> None:
    milliseconds, module = sys.argv[1:3]
    seconds = float(milliseconds) / 1000
    os.fsync = slowed(os.fsync, seconds)  # type: ignore[assignment]
    os.fdatasync = slowed(os.fdatasync, seconds)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
