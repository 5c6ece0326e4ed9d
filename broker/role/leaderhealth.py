"""Whether this broker could lead: lasting problems that keep it from taking messages or a role.

Invariant: a problem counts once it has lasted `yield_after_ms` without a break; so a full disk that is being cleared,
or one slow sync, moves no master. Pure."""

from __future__ import annotations

from enum import Enum

STOPS = "it is being stopped"


class HealthProblem(Enum):
    """Problems that keep a broker from leading."""

    ROLE = "it could not take the role"
    LEAD = "it could not begin as master"
    """Until it succeeds: following since does not prove that it could lead. While it tries and fails there is ROLE, too."""
    DISK = "its disk takes no messages"
    SYNC = "its disk hangs"
    ROT = "records of its log are damaged"
    READ = "its disk does not give its log"


class LeaderHealth:
    """The problems of one broker, noted again and again. All times are monotonic ms."""

    def __init__(self, yield_after_ms: int) -> None:
        self._yield_after_ms = yield_after_ms
        self._since_ms: dict[HealthProblem, int] = {}
        self._stops = False

    def note(self, trouble: HealthProblem, is_there: bool, now_ms: int) -> None:
        if is_there:
            self._since_ms.setdefault(trouble, now_ms)
        else:
            self._since_ms.pop(trouble, None)

    def stops(self) -> None:
        """Note that the broker is about to stop, which does not pass."""
        self._stops = True

    def why_unfit(self, now_ms: int) -> str:
        """The reasons, as text for controllers and operators; empty without any."""
        lasting = [trouble.value for trouble in self._lasting(now_ms)]
        return ", ".join(sorted([*lasting, *([STOPS] if self._stops else [])]))

    def could_lead(self, now_ms: int) -> bool:
        """Whether an unfit broker could lead if there is none better. A broker that cannot serve a few records still takes
        messages, and one that failed to become master once may succeed."""
        lasting = set(self._lasting(now_ms))
        return not self._stops and bool(lasting) and lasting <= {HealthProblem.ROT, HealthProblem.LEAD}

    def _lasting(self, now_ms: int) -> list[HealthProblem]:
        since_ms = self._since_ms
        return [trouble for trouble in since_ms if now_ms - since_ms[trouble] >= self._yield_after_ms]
