"""A state machine or observer that breaks its contract fails its member with a message; the member never
hangs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from dledger import CallbackFailed, DLedger, Entry, NotLeader, OutcomeUnknown
from scripts.peers.waits import WAIT_S
from tests.unit.dledger.ledgergroup import SETTINGS, LedgerGroup, played, until

EVERY_FIFTH = replace(SETTINGS, snapshot_entries=5)
CANCELLED = r"raised CancelledError\(\), and nobody had cancelled it"


class Kept:
    """A correct state machine: its state is the bodies that it applied."""

    def __init__(self) -> None:
        self.state = b""

    def apply(self, index: int, body: bytes) -> object:
        self.state += body
        return len(self.state)

    def snapshot_save(self) -> Any:
        yield self.state

    def snapshot_load(self, data: bytes | bytearray) -> Any:
        yield
        self.state = bytes(data)


def cancelled(*given: object) -> Any:
    raise asyncio.CancelledError


def cancelled_later(*given: object) -> Iterator[bytes]:
    yield b"a piece"
    raise asyncio.CancelledError


class Batched(Kept):
    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        raise asyncio.CancelledError


def machine_with(kind: type[Kept] = Kept, **methods: Callable[..., Any]) -> Kept:
    machine = kind()
    for name, method in methods.items():
        setattr(machine, name, method)
    return machine


class SavingGroup(LedgerGroup):
    """A group of one member that makes a snapshot of every fifth entry."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        super().__init__(1, machine=lambda name: self.kept, settings=EVERY_FIFTH)

    def made(self, name: str) -> DLedger:
        self.options["snapshots"] = self.kept
        return super().made(name)


async def failure_of(member: DLedger) -> str:
    """Append entries until the member fails, and return its failure."""
    async with asyncio.timeout(WAIT_S):
        with suppress(OutcomeUnknown, NotLeader):
            while True:
                await member.append(b"1")
        failure = await member.wait_failed()
    assert isinstance(failure, CallbackFailed)
    return str(failure)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (machine_with(apply=cancelled), f"apply {CANCELLED}"),
        (machine_with(Batched), f"apply {CANCELLED}"),
        (machine_with(snapshot_save=cancelled), f"snapshot_save {CANCELLED}"),
        (machine_with(snapshot_save=cancelled_later), f"snapshot_save {CANCELLED}"),
        (machine_with(snapshot_save=lambda: None), "snapshot_save returned NoneType: an iterator is wanted"),
        (machine_with(snapshot_save=lambda: b"all"), "snapshot_save returned bytes: an iterator is wanted"),
        (machine_with(snapshot_save=lambda: [b"all"]), "snapshot_save returned list: an iterator is wanted"),
        (
            machine_with(snapshot_save=lambda: iter([None])),
            "snapshot_save yielded NoneType: pieces of bytes are",
        ),
        (machine_with(snapshot_save=lambda: iter([7])), "snapshot_save yielded int: pieces of bytes are"),
        (machine_with(snapshot_save=lambda: iter("all")), "snapshot_save yielded str: pieces of bytes are"),
    ],
    ids=[
        *("apply", "apply-batch", "save", "save-later"),
        *("no-iterator", "bytes", "list", "yields-none", "yields-numbers", "yields-text"),
    ],
)
def test_a_state_machine_that_breaks_its_contract_fails_its_member(machine: Kept, message: str) -> None:
    async def story() -> None:
        async with SavingGroup(machine) as group:
            assert re.match(message, await failure_of(await group.leader()))

    played(story)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (cancelled, CANCELLED),
        (cancelled_later, CANCELLED),
        (lambda data: None, "returned NoneType: an iterator is wanted"),
    ],
    ids=["at-once", "later", "no-iterator"],
)
def test_a_member_does_not_start_when_its_state_machine_fails_to_load(
    load: Callable[[bytes], Any], message: str
) -> None:
    async def story() -> None:
        group = SavingGroup(Kept())
        async with group:
            leader = await group.leader()
            while not leader.snapshots.last_index > 0:
                await leader.append(b"1")
        group.kept = machine_with(snapshot_load=load)
        with pytest.raises(CallbackFailed, match=f"^snapshot_load {message}"):
            async with asyncio.timeout(WAIT_S):
                await group.start("n0")

    played(story)


def test_an_observer_that_raises_cancelled_error_fails_its_member() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            leader.on_commit(cancelled)
            assert "observer of commits raised CancelledError()" in await failure_of(leader)

    played(story)


def test_a_cancelled_append_leaves_the_member_running() -> None:
    async def story() -> None:
        machine = Kept()
        async with SavingGroup(machine) as group:
            leader = await group.leader()
            waits = asyncio.create_task(leader.append(b"1"))
            await asyncio.sleep(0)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await until(lambda: machine.state == b"1")
            assert (await leader.append(b"2")).results == [2]

    played(story)


def test_async_callbacks_are_rejected() -> None:
    class Later:
        async def apply(self, index: int, body: bytes) -> object:
            return None

    async def hears(*what: object) -> None: ...

    async def story() -> None:
        for machine, message in (
            (Later(), "apply must not be `async`"),
            (object(), "object is no state machine"),
        ):
            with pytest.raises(TypeError, match=message):
                LedgerGroup(1, machine=lambda name, it=machine: it).made("n0")  # type: ignore[misc]
        ledger = LedgerGroup(1).made("n0")
        for observed in (ledger.on_role_change, ledger.on_commit):
            with pytest.raises(TypeError, match="must not be `async`"):
                observed(hears)  # type: ignore[operator]

    played(story)
