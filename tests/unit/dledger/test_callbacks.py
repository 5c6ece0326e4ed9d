"""What a state machine or an observer does that it must not ends its member, which says so; it never just stands still."""

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
from tests.unit.dledger.ledgergroup import SETTINGS, LedgerGroup, until
from tests.unit.dledger.test_ledger import played

EVERY_FIFTH = replace(SETTINGS, snapshot_entries=5)
CANCELLED = r"raised CancelledError\(\), and nobody had cancelled it"


class Kept:
    """A sound one: its state is the bodies of what it applied."""

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
    """Of one member, that makes a snapshot of every fifth entry."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        super().__init__(1, machine=lambda name: self.kept, settings=EVERY_FIFTH)

    def made(self, name: str) -> DLedger:
        self.options["snapshots"] = self.kept
        return super().made(name)


async def failure_of(member: DLedger) -> str:
    """What ended it, once entries were appended until it answered no more."""
    async with asyncio.timeout(WAIT_S):
        with suppress(OutcomeUnknown, NotLeader):
            while True:
                await member.append(b"1")
        failure = await member.wait_failed()
    assert isinstance(failure, CallbackFailed)
    return str(failure)


@pytest.mark.parametrize(
    ("machine", "told"),
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
def test_what_a_state_machine_must_not_do_ends_its_member_by_name(machine: Kept, told: str) -> None:
    async def story() -> None:
        async with SavingGroup(machine) as group:
            assert re.match(told, await failure_of(await group.leader()))

    played(story)


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (cancelled, CANCELLED),
        (cancelled_later, CANCELLED),
        (lambda data: None, "returned NoneType: an iterator is wanted"),
    ],
    ids=["at-once", "later", "no-iterator"],
)
def test_a_state_machine_that_fails_to_load_at_a_start_keeps_its_member_from_starting(
    load: Callable[[bytes], Any], told: str
) -> None:
    async def story() -> None:
        group = SavingGroup(Kept())
        async with group:
            leader = await group.leader()
            while not leader.snapshots.last_index > 0:
                await leader.append(b"1")
        group.kept = machine_with(snapshot_load=load)
        with pytest.raises(CallbackFailed, match=f"^snapshot_load {told}"):
            async with asyncio.timeout(WAIT_S):
                await group.start("n0")

    played(story)


def test_an_observer_that_raises_a_cancellation_ends_its_member() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            leader.on_commit(cancelled)
            assert "observer of commits raised CancelledError()" in await failure_of(leader)

    played(story)


def test_who_is_cancelled_while_it_waits_is_cancelled_and_the_member_goes_on() -> None:
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


def test_what_nobody_would_await_is_no_callback() -> None:
    class Later:
        async def apply(self, index: int, body: bytes) -> object:
            return None

    async def hears(*what: object) -> None: ...

    async def story() -> None:
        for machine, told in (
            (Later(), "apply must not be `async`"),
            (object(), "object is no state machine"),
        ):
            with pytest.raises(TypeError, match=told):
                LedgerGroup(1, machine=lambda name, it=machine: it).made("n0")  # type: ignore[misc]
        ledger = LedgerGroup(1).made("n0")
        for observed in (ledger.on_role_change, ledger.on_commit):
            with pytest.raises(TypeError, match="must not be `async`"):
                observed(hears)  # type: ignore[operator]

    played(story)
