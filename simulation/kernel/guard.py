"""Traps for hidden inputs: values that do not follow from the seed.

Invariant: while a world runs, code of a simulated process that reads the machine's clock, the shared random generator or the
operating system's randomness raises HiddenInput. The world fails even if the code catches HiddenInput. The test that runs the
world may use such inputs. Logging may read the clock, and gets the virtual time."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from simulation.kernel.process import PROCESS

CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
RANDOM_FUNCTIONS = (
    "random",
    "randint",
    "randrange",
    "choice",
    "choices",
    "shuffle",
    "sample",
    "uniform",
    "getrandbits",
    "randbytes",
    "expovariate",
    "seed",
)
TRAPS: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in CLOCKS),
    *((random, name) for name in RANDOM_FUNCTIONS),
    (uuid, "uuid1"),
    (uuid, "uuid4"),
    (os, "urandom"),
)


class HiddenInput(AssertionError):
    """Simulated code used an input that does not follow from the seed."""

    def __init__(self, name: str, process: str) -> None:
        super().__init__(f"{process} used {name}; take clock and randomness from the Runtime")


@contextmanager
def hidden_inputs_trapped(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Set the traps while `loop` runs, and remove them however the block ends."""
    originals = [(module, name, getattr(module, name)) for module, name in TRAPS]
    for module, name, original in originals:
        setattr(module, name, _trap(f"{module.__name__}.{name}", original, loop))
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def _trap(name: str, original: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    def trapped(*args: Any, **options: Any) -> Any:
        process = PROCESS.get()
        if process is None:
            return original(*args, **options)
        if sys._getframe(1).f_globals.get("__name__") == "logging":
            return loop.time() if name == "time.time" else int(loop.time() * 1_000_000_000)
        error = HiddenInput(name, process.name)
        loop.call_exception_handler({"message": "hidden input", "exception": error})
        raise error

    return trapped
