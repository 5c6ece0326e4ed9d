"""Repair of a member's log from another member's, with a scripted store and scripted members."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.raft.entries import Entry
from dledger.storage.entry import CHECK_START, ENTRY_HEADER_BYTES, IndexUnit, header_of
from messagestore.record import encode
from messagestore.scrub.soundness import Damage
from raftstore.mending import OWN_END, Around
from raftstore.repair import EntryNotRepaired, LedgerRepair
from remoting.router import Router
from tests.support.doubles import ManualClock
from tests.unit.raftstore.raftstores import message

POSITION, INDEX, TERM = 4_096, 7, 3


def java_entry(term: int, body: bytes) -> bytes:
    """An entry as Java writes it: without checksums, so that no neighbour proves which entry it was."""
    ours = header_of(Entry(INDEX, term, body), POSITION, 0, 0)[0]
    return ours[:CHECK_START] + bytes(OWN_END - CHECK_START) + ours[OWN_END:] + body


def body(filler: bytes) -> bytes:
    one = message(1, filler * 40, 5)
    one.physical_offset = POSITION + ENTRY_HEADER_BYTES
    return encode(one)


@dataclass
class Scene:
    """A member whose log is damaged at POSITION, and the bytes of another member there."""

    theirs: bytes
    committed_offset: int = POSITION + 1
    own: bytes = java_entry(TERM, body(b"x"))
    mended: list[tuple[int, bytes]] = field(default_factory=list)
    asked: int = 0

    def repair(self) -> Coroutine[Any, Any, None]:
        async def piece(member: str, offset: int, size: int) -> bytes:
            self.asked += 1
            assert offset == POSITION
            return self.theirs[:size]

        async def own_piece(offset: int, size: int) -> bytes:
            return bytes(ENTRY_HEADER_BYTES) + self.own[ENTRY_HEADER_BYTES:size]

        async def mend(offset: int, content: bytes, size: int) -> bool:
            self.mended.append((offset, content))
            return True

        store: Any = SimpleNamespace(
            confirm_offset=lambda: self.committed_offset, is_plain=lambda offset: False, left_at=lambda offset: 1 << 20,
            own_piece=own_piece, mend=mend, integrity=SimpleNamespace(damages={}, on_damage=None),
        )  # fmt: skip
        member: Any = SimpleNamespace(piece=piece, router=Router(), node=None)
        repair = LedgerRepair(store, member, ManualClock())
        index: Any = SimpleNamespace(
            has=lambda unit: unit == IndexUnit(POSITION, len(self.own), INDEX, TERM),
            closes_at=lambda position, left: False,
            around=lambda index: Around(0, -1, b""),
        )
        repair._index = index
        return repair._repair(Damage("data", POSITION, 0, "its CRC"), "n1")


def test_repair_uses_an_entry_that_matches_the_local_index() -> None:
    scene = Scene(java_entry(TERM, body(b"x")))
    asyncio.run(scene.repair())
    assert scene.mended == [(POSITION, scene.own)]


@pytest.mark.parametrize("theirs", [java_entry(TERM + 1, body(b"y")), java_entry(TERM, body(b"yy"))])
def test_repair_rejects_an_entry_that_differs_from_the_local_index(theirs: bytes) -> None:
    """A store of Java has no checksums, so only its index proves which entry was here."""
    scene = Scene(theirs)
    with pytest.raises(EntryNotRepaired, match="another one than here"):
        asyncio.run(scene.repair())
    assert scene.mended == []


def test_an_uncommitted_entry_is_not_requested_or_repaired() -> None:
    """Another leader may replace it; a repair would bring back the entry of a former leader."""
    scene = Scene(java_entry(TERM, body(b"x")), committed_offset=POSITION)
    with pytest.raises(EntryNotRepaired, match="not known to be committed"):
        asyncio.run(scene.repair())
    assert scene.mended == [] and scene.asked == 0
