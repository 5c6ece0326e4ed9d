"""Repairs corrupt ranges of a member's log from other members, and serves pieces of this member's log to other members.

Invariant: only committed and intact pieces on this disk are served. A fetched piece is used only for a committed range, and
only if raftstore.mending proves that it is the original. A repair that fails at all members is retried. As long as nothing is
damaged, no request is sent and no task runs."""

from __future__ import annotations

import asyncio
import logging

from dledger.raft.errors import LogDamaged
from dledger.storage.entry import BLANK, ENTRY_HEADER_BYTES
from dledger.storage.keyvalues import BadKeyValues
from messagestore.errors import OffsetOutOfRange, RecordDamaged
from messagestore.record import PREFIX
from messagestore.scrub.soundness import Damage
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from raftstore.ledgerstore import LedgerStore
from raftstore.member import Member, PieceRefused
from raftstore.mending import closed, entry_in_header, is_closed, mended, plain_mended
from raftstore.ownindex import OwnIndex
from raftstore.queueends import QueueEndsUnreadable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.headers.group import ReadLogHeader
from remoting.peer import Peer

logger = logging.getLogger("raftstore.repair")

INTERVAL_MS = 2_000
PIECE_BYTES_MAX = 16 << 20


class EntryNotRepaired(Exception):
    """This attempt to repair failed; the error's text names the reason."""


class LedgerRepair:
    """The repair of the log of `store`, which belongs to `member`."""

    def __init__(self, store: LedgerStore, member: Member, clock: Clock) -> None:
        self._store = store
        self._member = member
        self._index = OwnIndex(member.node)
        self._clock = clock
        self._runs = False
        self._failures = RepeatedFailures()
        member.router.add(RequestCode.DLEDGER_READ_LOG, self._asked)
        store.integrity.on_damage = self.soon

    def soon(self) -> None:
        """Start repairing; called when damage is found."""
        if not self._runs:
            self._runs = True
            self._store.runs(self._run(), "ledger repair")

    async def _run(self) -> None:
        while self._store.integrity.damages:
            await asyncio.sleep(INTERVAL_MS / 1000)
            await self._repair_all()
        self._runs = False

    async def _repair_all(self) -> None:
        for damage in sorted(self._store.integrity.damages.values(), key=lambda each: each.offset):
            why: list[str] = []
            for member in self._member.others():
                try:
                    await self._repair(damage, member)
                except (
                    EntryNotRepaired,
                    PieceRefused,
                    RemotingError,
                    OffsetOutOfRange,
                    LogDamaged,
                    BadKeyValues,
                    QueueEndsUnreadable,
                    OSError,
                ) as error:
                    why.append(f"{member}: {error}")
                else:
                    said = fields(segment=damage.segment, offset=damage.offset, member=member)
                    logger.warning("damaged record repaired from another member", extra=said)
                    self._failures.recovered(damage.offset)
                    break
            else:
                if self._failures.failed(damage.offset, self._clock.monotonic_ms()):
                    said = fields(offset=damage.offset, segment=damage.segment, why="; ".join(why))
                    logger.warning("damaged record not repaired, retrying", extra=said)

    async def _repair(self, damage: Damage, member: str) -> None:
        store, offset = self._store, damage.offset
        if offset >= store.confirm_offset():
            raise EntryNotRepaired("it is not known to be committed")
        get = self._plain if store.is_plain(offset) else self._entry
        content, size = await get(offset, member)
        if not await store.mend(offset, content, size):
            raise EntryNotRepaired("it is gone, or reads differently than it was written")

    async def _plain(self, offset: int, member: str) -> tuple[bytes, int]:
        """The bytes to write at `offset`, and the number of bytes of the log that they cover."""
        if (await self._member.fetch_divide(member)).description != self._member.node.guard.origin:
            raise EntryNotRepaired("its log from before Raft mode is another one")
        left = self._store.left_at(offset)
        whole = PREFIX.unpack(await self._piece(member, offset, PREFIX.size))[0]
        theirs = await self._piece(member, offset, PREFIX.size if whole == left else whole)
        found = plain_mended(theirs, left, offset)
        if found is None:
            raise EntryNotRepaired("no intact record there")
        return found, whole

    async def _entry(self, position: int, member: str) -> tuple[bytes, int]:
        left = self._store.left_at(position)
        head = await self._piece(member, position, min(ENTRY_HEADER_BYTES, left), least=BLANK.size)
        if is_closed(head, left) and self._index.closes_at(position, left):
            return closed(left), left
        unit = entry_in_header(head, position)
        if unit is None or not self._index.has(unit):
            raise EntryNotRepaired("no entry there, or another one than here")
        theirs = await self._piece(member, position, unit.size)
        own = await self._store.own_piece(position, unit.size)
        found = mended(own, theirs, unit, self._index.around(unit.index))
        if found is None:
            raise EntryNotRepaired("the bytes there are not proven to be those written here")
        return found, unit.size

    async def _piece(self, member: str, offset: int, size: int, least: int = 0) -> bytes:
        """Fetch a piece of `member`'s log. Raises EntryNotRepaired, RemotingError."""
        if not 0 < size <= PIECE_BYTES_MAX:
            raise EntryNotRepaired(f"a size of {size} bytes is impossible")
        found = await self._member.piece(member, offset, size)
        if not (least or size) <= len(found) <= size:
            raise EntryNotRepaired(f"{len(found)} bytes came instead of {size}")
        return found

    async def _asked(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        try:
            header = ReadLogHeader.from_ext(command.ext)
            if not header.size:
                divide = self._store.encoded_divide()
                refused = command.reply(ResponseCode.SYSTEM_ERROR, "there is no log before the ledger")
                return refused if divide is None else command.reply(body=divide)
            size = min(header.size, PIECE_BYTES_MAX)
            return command.reply(body=await self._store.piece(header.offset, size))
        except (HeaderError, OffsetOutOfRange, RecordDamaged, OSError) as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, str(error))
