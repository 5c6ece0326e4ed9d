"""Notifications to the program that runs a member. Upstream: DLedgerRoleChangeHandler, for the role alone.

Invariant: a method returns at once; an exception in it ends the member.

Also the calls of that program's callbacks: a state machine, observers.

Invariant: a callback cannot await, so its errors are its own. A CancelledError that it raises would otherwise look like a
cancellation of the calling task, and end that task without a word."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TypeVar

from dledger.raft.actions import Role
from dledger.raft.errors import CallbackFailed


class NodeListener:
    """Derive from it; `failed` is the one method that each program needs."""

    def role_changed(self, role: Role, term: int) -> None:
        """LEADER only once this member has applied all that earlier leaders committed."""

    def failed(self, error: BaseException) -> None:
        """The first failed write, or a bug. This member sends, answers and applies nothing from now on."""
        raise NotImplementedError("a program notices when its member has ended")

    def committed(self, index: int) -> None:
        """The commit index has moved to `index`. The entries up to there are applied after this call."""

    def transfer_began(self) -> None:
        """A leadership transfer began: this leader takes no proposals before it ends."""

    def transfer_failed(self) -> None:
        """The transfer ended, and this member still leads."""

    def entry_unreadable(self, index: int) -> None:
        """A follower is missing entry `index`, and this leader cannot read it from its disk."""

    def memory_lost(self) -> None:
        """This member starts as a newcomer, or its disk was set back: it may have forgotten votes and acknowledgements."""

    def refusal_of_ids(self, ids: Collection[str]) -> str | None:
        """The reason why members may not have these ids; None where they may."""
        return None

    # Logs with `same_positions`

    def readable_to(self, end: int) -> None:
        """The last entry that is committed and durable here ends at position `end`, further on than before."""

    def log_replaced(self, position: int) -> None:
        """A durable snapshot of another member replaces the log, which begins at `position`; no file is deleted yet."""

    def log_restarted(self, position: int) -> None:
        """The log begins at `position` from now on: a snapshot of another member has replaced it."""


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
