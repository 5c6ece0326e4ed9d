"""What is dispatched of a member's log was compared with its check values before: queues that are built anew read old entries,
and what rotted of those would come into wrong queues, or end the broker at each start before it could be mended.

Invariant: while other members can be asked, dispatch waits for them at what rotted, and goes on by itself; a member that is
alone ends with StoreCorrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from messagestore.errors import RecordDamaged, StoreCorrupted
from messagestore.scrub.soundness import Soundness
from mqruntime.log import fields

logger = logging.getLogger("raftstore.dispatch")


class SoundDispatch:
    """`others()` are who can be asked; `doubted(position)` from where to where the entry there, and what its check value goes
    on from, stand, None where it is not known."""

    def __init__(
        self,
        soundness: Soundness,
        *,
        others: Callable[[], list[str]],
        doubted: Callable[[int], tuple[int, int] | None],
    ) -> None:
        self._soundness = soundness
        self._others = others
        self._doubted = doubted
        self._waits_at = -1
        self._looked_again_at = -1
        self._has_begun = False

    async def may_read(self, start: int, end: int) -> bool:
        """Whether the bytes there can be dispatched now. StoreCorrupted, OSError."""
        try:
            await self._soundness.check(begin := self._compared_from(start), end - begin)
        except RecordDamaged as damage:
            if not self._others():
                raise StoreCorrupted(damage.offset, end, damage.why) from damage
            self._tell(damage)
            return False
        self._has_begun = True
        if self._waits_at >= 0:
            logger.warning(
                "dispatch goes on, what was damaged is mended", extra=fields(offset=self._waits_at)
            )
            self._waits_at = -1
        return True

    def _compared_from(self, start: int) -> int:
        """Where dispatch begins, nothing is known yet of the entry before, with whose check value the first one is compared."""
        doubted = None if self._has_begun else self._doubted(start)
        if doubted is None:
            return start
        self._soundness.doubt(*doubted)
        return doubted[0]

    def _tell(self, damage: RecordDamaged) -> None:
        if damage.offset == self._waits_at:
            return
        self._waits_at = damage.offset
        logger.error(
            "dispatch waits: an entry of the log is damaged on disk, and is fetched from another member; messages behind it "
            "come into their queues once it is mended, and nothing is to be done while a member that has it runs. Start those "
            "that are down; where none has it, stop this broker, empty its store and start it, and the group fills it again",
            extra=fields(
                segment=damage.segment, offset=damage.offset, why=damage.why, asked=", ".join(self._others())
            ),
        )

    def looks_again(self, position: int) -> bool:
        """What stands at `position` was sound when it was compared, and is no entry now: whether it is to be compared again."""
        doubted = self._doubted(position)
        if doubted is None or position == self._looked_again_at:
            return False
        self._looked_again_at = position
        self._soundness.doubt(*doubted)
        return True
