"""Python's garbage collector while a world runs.

Invariant: objects from before the world are not scanned, and objects of the world seldom. After the world, settings are as
before. The objects of a former world are freed first, because otherwise they would be frozen with the rest and never freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (20_000, 10, 100)
"""A world makes a few hundred thousand objects that live as long as the world. Scanning them took a fifth of its time."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom within this context, for the length of one world."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
