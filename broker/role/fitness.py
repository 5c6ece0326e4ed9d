"""Whether this broker could lead: what keeps it from taking messages or a role, and for how long.

Invariant: a trouble counts once it has lasted `yield_after_ms` without a break; so a full disk that is being cleared,
or one slow sync, moves no master. Pure."""

from __future__ import annotations

from enum import Enum

STOPS = "it is being stopped"


class Trouble(Enum):
    """What can keep a broker from leading."""

    ROLE = "it could not take the role"
    LEAD = "it could not begin as master"
    """Until it does: who only follows since has not shown that it could. While it tries and fails there is ROLE, too."""
    DISK = "its disk takes no messages"
    SYNC = "its disk hangs"
    ROT = "records of its log are damaged"
    READ = "its disk does not give its log"


class Fitness:
    """Told again and again of each trouble, or that there is none. All times are monotonic ms."""

    def __init__(self, yield_after_ms: int) -> None:
        self._yield_after_ms = yield_after_ms
        self._since_ms: dict[Trouble, int] = {}
        self._stops = False

    def note(self, trouble: Trouble, is_there: bool, now_ms: int) -> None:
        if is_there:
            self._since_ms.setdefault(trouble, now_ms)
        else:
            self._since_ms.pop(trouble, None)

    def stops(self) -> None:
        """The broker is about to stop, which is no passing trouble."""
        self._stops = True

    def why_unfit(self, now_ms: int) -> str:
        """In words for controllers and operators; empty while nothing keeps it from leading."""
        lasting = [trouble.value for trouble in self._lasting(now_ms)]
        return ", ".join(sorted([*lasting, *([STOPS] if self._stops else [])]))

    def could_lead(self, now_ms: int) -> bool:
        """Of one that is unfit: whether it could lead all the same, for want of a better one. Who cannot serve a few records
        takes messages as ever, and who failed to begin once may not fail again."""
        lasting = set(self._lasting(now_ms))
        return not self._stops and bool(lasting) and lasting <= {Trouble.ROT, Trouble.LEAD}

    def _lasting(self, now_ms: int) -> list[Trouble]:
        since_ms = self._since_ms
        return [trouble for trouble in since_ms if now_ms - since_ms[trouble] >= self._yield_after_ms]
