"""What the log says of a member that may not vote: why, for whom it waits, and when it is over.

Invariant: a line when it begins, one every half minute, one at the end; none for a member that may vote from its start."""

from __future__ import annotations

import logging

from dledger.raft.rejoin import RejoinState

logger = logging.getLogger(__name__)

EVERY_MS = 30_000


class RejoinNotice:
    """`look` is to be called now and then."""

    def __init__(self, self_id: str) -> None:
        self._self_id = self_id
        self._told_ms: int | None = None

    def look(self, standing: RejoinState, now_ms: int) -> None:
        if not standing.newcomer:
            if self._told_ms is not None:
                logger.info("self=%s votes from now on", self._self_id)
            self._told_ms = None
        elif self._told_ms is None or now_ms - self._told_ms >= EVERY_MS:
            level = logging.INFO if self._told_ms is None else logging.WARNING
            self._told_ms = now_ms
            logger.log(level, "self=%s does not vote yet: %s", self._self_id, why(standing))


def why(standing: RejoinState) -> str:
    if standing.unheard:
        waits_for = f"{', '.join(sorted(standing.unheard))} must answer first, so that it knows whether the group is new"
    else:
        waits_for = "a leader must catch it up first; where most members are as empty as this one there is none, and one that "
        waits_for += "kept its disk must be copied to them"
    was = "set back to an earlier image" if standing.set_back else "empty, or set back"
    return f"its disk was {was}, and {waits_for}"
