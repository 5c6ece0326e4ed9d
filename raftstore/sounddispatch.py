"""Verified dispatch: entries are compared with their checksums before they are dispatched. When queues are rebuilt, dispatch
reads old entries, which may be corrupt. Without the check a corrupt entry would get into a wrong queue, or would end the broker
at each start before the entry could be repaired.

Invariant: if there are other members, dispatch waits at a corrupt entry until it is repaired from one of them, and then
continues by itself. A member without other members ends with StoreCorrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from messagestore.errors import RecordDamaged, StoreCorrupted
from messagestore.scrub.soundness import Integrity
from mqruntime.log import fields

logger = logging.getLogger("raftstore.dispatch")


class VerifiedDispatch:
    """`others()` returns the members to ask. `doubted(position)` returns the range from the entry before `position`, whose
    checksum the next entry continues, to the end of the entry at `position`; None if it is not known."""

    def __init__(
        self,
        integrity: Integrity,
        *,
        others: Callable[[], list[str]],
        doubted: Callable[[int], tuple[int, int] | None],
    ) -> None:
        self._integrity = integrity
        self._others = others
        self._doubted = doubted
        self._waits_at = -1
        self._looked_again_at = -1
        self._has_begun = False

    async def may_read(self, start: int, end: int) -> bool:
        """Whether the bytes from `start` to `end` can be dispatched now. Raises StoreCorrupted, OSError."""
        try:
            await self._integrity.check(begin := self._compared_from(start), end - begin)
        except RecordDamaged as damage:
            if not self._others():
                raise StoreCorrupted(damage.offset, end, damage.why) from damage
            self._log_wait(damage)
            return False
        self._has_begun = True
        if self._waits_at >= 0:
            logger.warning("dispatch continues, damage repaired", extra=fields(offset=self._waits_at))
            self._waits_at = -1
        return True

    def _compared_from(self, start: int) -> int:
        """Start of the check. The first dispatched entry continues the checksum of the entry before. That entry is not verified
        yet when dispatch begins, so the check includes it."""
        doubted = None if self._has_begun else self._doubted(start)
        if doubted is None:
            return start
        self._integrity.mark_suspect(*doubted)
        return doubted[0]

    def _log_wait(self, damage: RecordDamaged) -> None:
        if damage.offset == self._waits_at:
            return
        self._waits_at = damage.offset
        logger.error(
            "dispatch waits: an entry of the log is damaged on disk",
            extra=fields(
                segment=damage.segment,
                offset=damage.offset,
                why=damage.why,
                asked=", ".join(self._others()),
                hint="it is fetched from a running member that has it, and messages after it are dispatched then. Start "
                "members that are down; if none has it, stop this broker, empty its store and start it, and the group fills "
                "it again",
            ),
        )

    def looks_again(self, position: int) -> bool:
        """Whether to compare the entry at `position` again. It was intact when it was compared, and now dispatch finds no valid
        entry there."""
        doubted = self._doubted(position)
        if doubted is None or position == self._looked_again_at:
            return False
        self._looked_again_at = position
        self._integrity.mark_suspect(*doubted)
        return True
