"""Routing of client requests while mastership passes to another broker: served here, held back, or forwarded.

Invariant: writes wait from HAND_OVER, or from the notice of a newer role, until the successor serves, the hand-over is called
off or the time is over. Requests are forwarded only after the successor has reported that it serves, and at most for
FORWARD_MS, in which every client asks for routes once. Each request waits a limited time.

    SERVING --hand over--> HOLDING --role taken--> AWAITING --it serves--> FORWARDING --FORWARD_MS over--> SERVING
    HOLDING --called off, or too late--> SERVING       AWAITING, FORWARDING --another successor--> AWAITING
    AWAITING --too late--> REFUSING --it serves--> FORWARDING      any --elected--> HOLDING --followed--> SERVING
    SERVING --unsure whether it still leads--> HOLDING --followed--> SERVING

Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mqruntime.core import NEVER_MS

HOLD_MS_MAX = 3_000
"""Limit of the time for which messages wait for a hand-over, even if the request asks for more."""
PATIENCE_MS = 3_000
"""Time in which a successor has to serve; after that waiting requests are rejected."""
FORM_MS = 1_000
"""Time for which a new master waits for followers, which usually need some tens of ms."""
UNSURE_MS = 2_000
"""Time for which a master that is unsure waits for followers: one that crashed is out of the set after some 1 s."""
FORWARD_MS = 35_000
"""Longer than the 30 s after which clients ask for routes by default."""


class Stage(Enum):
    """How requests are handled."""

    SERVING = "served here, or refused"
    HOLDING = "writes wait for a successor, or for followers; reads are served here"
    AWAITING = "all wait until the successor serves"
    REFUSING = "all are refused: the successor does not serve"
    FORWARDING = "all are passed on to the successor"


SERVING = Stage.SERVING
"""A module constant, because it is read for every send and an enum's attributes are slow to find."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The master that follows this broker: address and masterEpoch."""

    address: str
    master_epoch: int


@dataclass(frozen=True, slots=True)
class Reach:
    """Connect to the successor, instead of a former successor. Report `opened` when it serves. Retry until `Leave`."""

    successor: Successor


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the connection, because there is no successor."""


@dataclass(frozen=True, slots=True)
class Release:
    """Release the waiting requests as `stage` requires."""


Action = Reach | Leave | Release


class ForwardingState:
    """The state machine of forwarding. All times are monotonic ms."""

    def __init__(self, forward_ms: int = FORWARD_MS, *, readers_wait: bool = False) -> None:
        """With `readers_wait` reads also wait for the followers of a new master."""
        self._forward_ms = forward_ms
        self._readers_wait = readers_wait
        self._stage = Stage.SERVING
        self._forms = False  # this broker is master and waits for followers
        self._has_led = False  # this broker was master, so clients may send to it
        self._successor: Successor | None = None
        self._hold_until_ms = NEVER_MS
        self._forward_until_ms = NEVER_MS

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def writes_here(self) -> bool:
        return self._stage is SERVING

    @property
    def reads_here(self) -> bool:
        forms = self._forms and self._readers_wait
        return self._stage is Stage.SERVING or (self._stage is Stage.HOLDING and not forms)

    @property
    def successor(self) -> Successor | None:
        """The master to which this former master passes on requests, until every client has asked for routes; else None."""
        return self._successor

    @property
    def forms(self) -> bool:
        """Whether this broker is a master that waits for followers: a new one, or one that became unsure."""
        return self._forms

    @property
    def holds(self) -> bool:
        """Whether requests that this broker does not serve wait; if not, they are passed on or rejected."""
        return self._stage in (Stage.HOLDING, Stage.AWAITING)

    @property
    def next_tick_ms(self) -> int:
        return min(self._hold_until_ms, self._forward_until_ms)

    def hand_over(self, hold_ms: int, now_ms: int) -> list[Action]:
        """Let messages wait, because this master's successor is about to be elected."""
        if self._stage is Stage.SERVING or self._forms:
            self._forms = False
            self._hold(Stage.HOLDING, now_ms + min(hold_ms, HOLD_MS_MAX))
        return []

    def unsure(self, now_ms: int) -> list[Action]:
        """Called when this master, which serves, does not know whether it still leads. Messages, and readers where they wait
        for followers, wait a moment."""
        if self._stage is Stage.SERVING and self._has_led and self._successor is None:
            self._forms = True
            self._hold(Stage.HOLDING, now_ms + UNSURE_MS)
        return []

    def called_off(self) -> list[Action]:
        """Serve again, because there will be no successor."""
        return self._here() if self._stage is Stage.HOLDING else []

    def announced(self, now_ms: int) -> list[Action]:
        """Called when a newer role was granted and is about to be taken. Another broker may become master."""
        if self._stage is Stage.SERVING and self._has_led:
            self._hold(Stage.HOLDING, now_ms + HOLD_MS_MAX)
        return []

    def leads(self, now_ms: int, *, is_formed: bool) -> list[Action]:
        """Called when this broker is master, perhaps again. If `is_formed`, enough replicas are in the SyncStateSet and
        messages are taken; otherwise messages wait a moment for followers."""
        former, self._has_led, self._successor = self._successor, True, None
        self._forward_until_ms = NEVER_MS
        actions: list[Action] = [Leave()] if former is not None else []
        self._forms = not is_formed
        if is_formed:
            return [*actions, *self._here()]
        self._hold(Stage.HOLDING, now_ms + FORM_MS)
        return actions

    def formed(self) -> list[Action]:
        """Take messages, because enough replicas are in this master's SyncStateSet now."""
        return self._here() if self._forms else []

    def follows(self, successor: Successor, now_ms: int) -> list[Action]:
        """Called when this broker is slave of `successor`. A broker that has not led has no clients, so it forwards nothing."""
        if not self._has_led or successor == self._successor:
            return []
        if self._successor is None:
            self._forward_until_ms = now_ms + self._forward_ms
        self._successor = successor
        self._hold(Stage.AWAITING, now_ms + PATIENCE_MS)
        return [Reach(successor)]

    def opened(self, successor: Successor) -> list[Action]:
        """Forward to `successor`, because it serves."""
        if successor != self._successor:
            return []
        self._hold(Stage.FORWARDING, NEVER_MS)
        return [Release()]

    def closed(self, successor: Successor, now_ms: int) -> list[Action]:
        """Called when the connection to `successor` has ended. Requests wait for the next one, unless there is another
        successor."""
        if successor == self._successor and self._stage is Stage.FORWARDING:
            self._hold(Stage.AWAITING, now_ms + PATIENCE_MS)
        return []

    def tick(self, now_ms: int) -> list[Action]:
        """Call this at `next_tick_ms` or later."""
        if now_ms >= self._forward_until_ms:
            self._has_led, self._successor, self._forward_until_ms = False, None, NEVER_MS
            return [Leave(), *self._here()]
        if now_ms < self._hold_until_ms:
            return []
        if self._stage is Stage.HOLDING:
            return self._here()
        self._hold(Stage.REFUSING, NEVER_MS)
        return [Release()]

    def _here(self) -> list[Action]:
        self._hold(Stage.SERVING, NEVER_MS)
        return [Release()]

    def _hold(self, stage: Stage, until_ms: int) -> None:
        self._forms = self._forms and stage is Stage.HOLDING
        self._stage, self._hold_until_ms = stage, until_ms
