"""What the program that embeds a member gave it to call: a state machine, observers.

Invariant: nothing is awaited in such a call, so what it raises is its own failure: a cancellation too, which would
otherwise pass for one of the task that happens to call, and end that without a word."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from dledger.errors import CallbackFailed

T = TypeVar("T")


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Around the call of the callback `name`. Raises CallbackFailed."""
    try:
        yield
    except (CancelledError, GeneratorExit) as error:
        raise CallbackFailed(name, f"raised {error!r}, and nobody had cancelled it") from error


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
