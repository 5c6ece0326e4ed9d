"""What the program that embeds a member gave it to call: a state machine, observers.

Invariant: nothing is awaited in such a call, so what it raises is its own failure: a cancellation too, which would
otherwise pass for one of the task that happens to call, and end that without a word."""

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
    """Around the call of the callback `name`. Raises CallbackFailed."""
    try:
        yield
    except (CancelledError, GeneratorExit) as error:
        raise CallbackFailed(name, f"raised {error!r}, and nobody had cancelled it") from error


CALLED = "apply", "apply_batch", "snapshot_save", "snapshot_load"


def usable_machine(machine: object) -> None:
    """Raises TypeError: `machine` has no way to apply an entry, or one that nobody would await."""
    if not hasattr(machine, "apply") and not hasattr(machine, "apply_batch"):
        raise TypeError(f"{type(machine).__name__} is no state machine: it has no apply, and no apply_batch")
    for name in CALLED:
        not_awaited(name, getattr(machine, name, None))


def not_awaited(name: str, callback: object) -> None:
    """Raises TypeError: calling it would do nothing at all."""
    if iscoroutinefunction(callback):
        raise TypeError(f"{name} must not be `async`: it is called in its turn, and nothing in it is awaited")


def iterator(name: str, returned: Iterator[T]) -> Iterator[T]:
    """What `name` returned. Raises CallbackFailed."""
    if not isinstance(returned, Iterator):
        what = (
            f"returned {type(returned).__name__}: an iterator is wanted, as a function with yield makes one"
        )
        raise CallbackFailed(name, what)
    return returned


def piece_of_bytes(name: str, piece: object) -> bytes | bytearray | memoryview:
    """What an iterator of `name` yielded. Raises CallbackFailed."""
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise CallbackFailed(name, f"yielded {type(piece).__name__}: pieces of bytes are wanted")
    return piece
