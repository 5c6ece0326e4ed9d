"""Whether this broker could lead, judged by lasting problems that keep it from taking messages or a role.

Invariant: a problem counts once it has lasted `yield_after_ms` without a break. So a full disk that is soon cleared, or one
slow sync, changes no master. Pure."""

from __future__ import annotations

from enum import Enum

STOPS = "it is being stopped"


class HealthProblem(Enum):
    """Problems that keep a broker from leading."""

    ROLE = "it could not take the role"
    LEAD = "it could not begin as master"
    """Lasts until the broker begins as master with success; that it follows meanwhile proves nothing. While it tries and fails,
    it has the problem ROLE, too."""
    DISK = "its disk takes no messages"
    SYNC = "its disk hangs"
    ROT = "records of its log are damaged"
    READ = "its disk does not give its log"


class LeaderHealth:
    """The problems of one broker. The broker reports regularly, for each problem, whether it is there. All times are monotonic
    ms."""

    def __init__(self, yield_after_ms: int) -> None:
        self._yield_after_ms = yield_after_ms
        self._since_ms: dict[HealthProblem, int] = {}
        self._stops = False

    def note(self, problem: HealthProblem, is_there: bool, now_ms: int) -> None:
        if is_there:
            self._since_ms.setdefault(problem, now_ms)
        else:
            self._since_ms.pop(problem, None)

    def stops(self) -> None:
        """Record that the broker is about to stop. Unlike a problem, this never ends."""
        self._stops = True

    def why_unfit(self, now_ms: int) -> str:
        """The reasons why this broker should not lead, as text for controllers and operators; empty if there are none."""
        lasting = [problem.value for problem in self._lasting(now_ms)]
        return ", ".join(sorted([*lasting, *([STOPS] if self._stops else [])]))

    def could_lead(self, now_ms: int) -> bool:
        """Whether an unfit broker could lead if no better one exists. A broker that cannot serve a few records still takes
        messages, and a broker that failed to become master may succeed the next time."""
        lasting = set(self._lasting(now_ms))
        return not self._stops and bool(lasting) and lasting <= {HealthProblem.ROT, HealthProblem.LEAD}

    def _lasting(self, now_ms: int) -> list[HealthProblem]:
        since_ms = self._since_ms
        return [problem for problem in since_ms if now_ms - since_ms[problem] >= self._yield_after_ms]
