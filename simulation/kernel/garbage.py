"""Python's collector of cycles while a world runs.

Invariant: earlier objects are not looked at, and those of a world seldom; when it ends all is as before. The objects of a
former world are freed: frozen with the rest, hundreds of worlds would stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (20_000, 10, 100)
"""A world makes a few hundred thousand objects that live as long as it does; looking at them took a fifth of its time."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """For the length of one world."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
