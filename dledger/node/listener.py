"""Notifications to the program that runs a member, and the calls of that program's callbacks: its state machine and observers.
Upstream: DLedgerRoleChangeHandler, for the role alone.

A callback cannot await, so a CancelledError that it raises is an error of the callback. Without the wrappers below, that error
would look like a cancellation of the calling task, and would end the task silently.

Invariant: a method of NodeListener returns at once, and an exception in it ends the member."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TypeVar

from dledger.raft.actions import Role
from dledger.raft.errors import CallbackFailed


class NodeListener:
    """The notifications; derive from this class. `failed` is the only method that each program needs."""

    def role_changed(self, role: Role, term: int) -> None:
        """The role or the term changed. `role` is LEADER only once this member has applied all entries that earlier leaders
        committed."""

    def failed(self, error: BaseException) -> None:
        """The first write failed, or there is a bug. From now on this member sends, answers and applies nothing."""
        raise NotImplementedError("a program notices when its member has ended")

    def committed(self, index: int) -> None:
        """The commit index has moved to `index`. The entries up to `index` are applied after this call."""

    def transfer_began(self) -> None:
        """A leadership transfer began. This leader accepts no proposals before the transfer ends."""

    def transfer_failed(self) -> None:
        """The transfer ended, and this member still leads."""

    def entry_unreadable(self, index: int) -> None:
        """A follower is missing entry `index`, and this leader cannot read it from its disk."""

    def memory_lost(self) -> None:
        """This member starts as a newcomer, or its disk was set back. In both cases it may have forgotten votes and
        acknowledgements."""

    def refusal_of_ids(self, ids: Collection[str]) -> str | None:
        """The reason why members may not have these ids; None if they may."""
        return None

    # Logs with `same_positions`

    def readable_to(self, end: int) -> None:
        """The last entry that is committed and durable here now ends at position `end`, which is higher than before."""

    def log_replaced(self, position: int) -> None:
        """A durable snapshot of another member replaces the log; the new log begins at `position`. No file is deleted yet."""

    def log_restarted(self, position: int) -> None:
        """The log begins at `position` from now on: a snapshot of another member has replaced it."""


T = TypeVar("T")


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Wraps a call of the callback `name`. A CancelledError or GeneratorExit in the call raises CallbackFailed."""
    try:
        yield
    except (CancelledError, GeneratorExit) as error:
        raise CallbackFailed(name, f"raised {error!r}, and nobody had cancelled it") from error


CALLED = "apply", "apply_batch", "snapshot_save", "snapshot_load"


def usable_machine(machine: object) -> None:
    """Raises TypeError if `machine` cannot apply an entry, or only with an `async` method."""
    if not hasattr(machine, "apply") and not hasattr(machine, "apply_batch"):
        raise TypeError(f"{type(machine).__name__} is no state machine: it has no apply, and no apply_batch")
    for name in CALLED:
        not_awaited(name, getattr(machine, name, None))


def not_awaited(name: str, callback: object) -> None:
    """Raises TypeError if `callback` is `async`, because a call of an `async` function would do nothing."""
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
