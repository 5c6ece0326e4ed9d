"""Bootstrap of an empty member. The member fetches the plain log (the log from before Raft mode) from another member, and then
follows the leader as usual.

Invariant: the member's folder marks the plain log as incomplete until the whole log is on disk and matches the other member's
description. A member with an entry in its DLedger log, or with a plain log, fetches nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.raft.entries import NO_INDEX
from dledger.storage.keyvalues import BadKeyValues
from messagestore.errors import StoreError
from mqruntime.clock import Clock
from mqruntime.log import fields
from raftstore.formerlog import FormerLog
from raftstore.member import Member, PieceRefused
from raftstore.queueends import QueueEndsUnreadable
from remoting.errors import RemotingError

logger = logging.getLogger("raftstore.filling")

AGAIN_MS = 5_000


class Filling:
    """`runs(coroutine, name)` starts a task of the store; `restart()` reopens it with the process."""

    def __init__(
        self,
        former: FormerLog,
        member: Member,
        clock: Clock,
        *,
        runs: Callable[..., None],
        restart: Callable[[], None],
    ) -> None:
        self._former = former
        self._member = member
        self._clock = clock
        self._runs = runs
        self._restart = restart
        self._again_ms = 0
        member.node.guard.on_other_origin = self._differs

    def _differs(self, sender: str) -> None:
        """Called when the log of `sender` continues a plain log that this member does not have."""
        node, now_ms = self._member.node, self._clock.monotonic_ms()
        empty = node.core is not None and node.last_index == NO_INDEX and not node.data.files
        known = sender in node.peers and sender != node.self_id
        if empty and known and not node.guard.origin and now_ms >= self._again_ms:
            self._again_ms = 1 << 62
            self._runs(self._fill(sender), "fill from another member")

    async def _fill(self, member: str) -> None:
        try:
            divide = await self._member.fetch_divide(member)
            logger.info("fetching log from before Raft mode", extra=fields(member=member, ends=divide.at))

            async def piece(offset: int, size: int) -> bytes:
                return await self._member.piece(member, offset, size)

            await self._former.fill(divide, piece)
        except (PieceRefused, RemotingError, StoreError, BadKeyValues, QueueEndsUnreadable, OSError) as error:
            why = fields(member=member, why=error)
            logger.warning("log from before Raft mode not fetched, retrying", extra=why)
            self._again_ms = self._clock.monotonic_ms() + AGAIN_MS
        else:
            logger.info("log from before Raft mode fetched, reopening the store")
            self._restart()
