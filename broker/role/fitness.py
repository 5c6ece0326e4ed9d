"""Whether this broker could lead: what keeps it from taking messages or a role, and for how long.

Invariant: a trouble counts once it has lasted `yield_after_ms` without a break; so a full disk that is being cleared,
or one slow sync, moves no master. Pure."""

from __future__ import annotations

from enum import Enum

STOPS = "it is being stopped"


class Trouble(Enum):
    """What can keep a broker from leading."""

    ROLE = "it could not take the role"
    DISK = "its disk takes no messages"
    SYNC = "its disk hangs"
    ROT = "records of its log are damaged"


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
        lasting = [
            trouble.value
            for trouble, since_ms in self._since_ms.items()
            if now_ms - since_ms >= self._yield_after_ms
        ]
        return ", ".join(sorted([*lasting, *([STOPS] if self._stops else [])]))
