"""A server with slower syncs: `python -m scripts.bench.slowsync MS MODULE [ARGUMENT ...]`.

Invariant: only `os.fsync` and `os.fdatasync` differ. They wait in the calling thread, as on a slow disk."""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any


def slowed(sync: Callable[[Any], None], seconds: float) -> Callable[[Any], None]:
    def slow(descriptor: Any) -> None:
        time.sleep(seconds)
        sync(descriptor)

    return slow


def main() -> None:
    milliseconds, module = sys.argv[1:3]
    seconds = float(milliseconds) / 1000
    for name in ("fsync", "fdatasync"):
        setattr(os, name, slowed(getattr(os, name), seconds))
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
