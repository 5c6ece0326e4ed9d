"""Calls of the embedding program's callbacks: a state machine, observers.

Invariant: a callback cannot await, so its errors are its own. A CancelledError that it raises would otherwise look like a
cancellation of the calling task, and end that task without a word."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TypeVar

from dledger.raft.errors import CallbackFailed

T = TypeVar("T")


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Wraps a call of the callback `name`. Raises CallbackFailed."""
    try:
        yield
    except (CancelledError, GeneratorExit) as error:
        raise CallbackFailed(name, f"raised {error!r}, and nobody had cancelled it") from error


CALLED = "apply", "apply_batch", "snapshot_save", "snapshot_load"


def usable_machine(machine: object) -> None:
    """Raises TypeError: `machine` cannot apply an entry, or only with an `async` method."""
    if not hasattr(machine, "apply") and not hasattr(machine, "apply_batch"):
        raise TypeError(f"{type(machine).__name__} is no state machine: it has no apply, and no apply_batch")
    for name in CALLED:
        not_awaited(name, getattr(machine, name, None))


def not_awaited(name: str, callback: object) -> None:
    """Raises TypeError: a call of an `async` function would do nothing."""
    if iscoroutinefunction(callback):
        raise TypeError(f"{name} must not be `async`: it is called, and not awaited")


def iterator(name: str, returned: Iterator[T]) -> Iterator[T]:
    """The iterator that `name` returned. Raises CallbackFailed."""
    if not isinstance(returned, Iterator):
        what = (
            f"returned {type(returned).__name__}: an iterator is wanted, as a function with yield makes one"
        )
        raise CallbackFailed(name, what)
    return returned


def piece_of_bytes(name: str, piece: object) -> bytes | bytearray | memoryview:
    """The bytes that an iterator of `name` yielded. Raises CallbackFailed."""
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise CallbackFailed(name, f"yielded {type(piece).__name__}: pieces of bytes are wanted")
    return piece
