"""Waiting for a state that processes reach by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

from scripts.peers.waits import WAIT_S


def wait_until(what: str, reached: Callable[[], bool]) -> None:
    """Returns once `reached` does. Raises TimeoutError after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not reached():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {WAIT_S} s")
        time.sleep(0.1)
