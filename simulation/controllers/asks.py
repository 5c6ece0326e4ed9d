"""Requests to the controllers, called asks: the sender, the fields with their epochs, and the outcome.

Invariant: an ask is open from its sending to a definite answer. An ask that was answered "unknown", or not at all, stays open
for ever, because it may have taken effect or may still do so. All fields of an ask are read from the bytes that were sent."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand

Code = RequestCode
OPERATOR = "operator"
WRITES = frozenset(
    {
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        Code.CONTROLLER_ELECT_MASTER,
        Code.CONTROLLER_REGISTER_BROKER,
        Code.CONTROLLER_APPLY_BROKER_ID,
        Code.CLEAN_BROKER_DATA,
    }
)
UNDECIDED = frozenset({ResponseCode.SYSTEM_ERROR})
"""Answers that leave the outcome of the ask open."""
FENCED = frozenset({ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE})
"""Rejections of an alter that could succeed later. The set's epoch is incremented with such a rejection."""


@dataclass(eq=False, slots=True)
class Ask:
    """One request. When it was sent, some controller had applied `sent_at` entries, and none had applied more. `explains` are
    the events that the request may have caused."""

    who: str
    code: int
    ext: dict[str, str]
    body: Any
    sent_at: int
    open: bool = True
    explains: list[Effect] = field(default_factory=list)

    @property
    def broker_name(self) -> str:
        return self.ext.get("brokerName", "")

    def number(self, name: str, default: int = -1) -> int:
        return int(self.ext.get(name, default))

    def says(self, name: str) -> bool:
        return self.ext.get(name) == "true"

    @property
    def members(self) -> frozenset[int]:
        return frozenset(self.body["syncStateSet"]) if isinstance(self.body, dict) else frozenset()

    @property
    def set_epoch(self) -> int:
        return int(self.body.get("syncStateSetEpoch", 0)) if isinstance(self.body, dict) else -1

    @property
    def members_min(self) -> int:
        return max(0, int(self.ext.get("minInSyncReplicas", 0)))

    @property
    def ids_to_clean(self) -> frozenset[int]:
        words = self.ext.get("brokerControllerIdsToClean", "").split(";")
        return frozenset(int(word) for word in words if word.strip())

    def __repr__(self) -> str:
        return f"<{self.who} asked {self.code} {self.ext} {self.body or ''} open={self.open}>"


@dataclass(eq=False, slots=True)
class Effect:
    """An applied event that only an ask can explain. Either one of the asks in `may_be_of` caused it, or it is the fence (the
    grown set epoch) of a rejected ask in `fences`. If an answer showed which ask caused it, that ask is `owner`."""

    what: str
    set_epoch: int
    may_be_of: list[Ask]
    owner: Ask | None = None
    fences: list[Ask] = field(default_factory=list)

    def cannot_be_of(self, ask: Ask, *, fenced: bool) -> bool:
        """Note that `ask` did not cause the event, because it was rejected. If it is `fenced`, the event may still be its
        fence. Returns whether no other ask can explain the event."""
        if ask in self.may_be_of:
            self.may_be_of.remove(ask)
        if ask in self.fences and not fenced:
            self.fences.remove(ask)
        return not self.may_be_of and not self.fences


def parsed(body: bytes | bytearray | memoryview | None) -> Any:
    """None for bytes that are no valid JSON."""
    try:
        return json.loads(bytes(body)) if body else None
    except (ValueError, RecursionError):
        return None


class Asks:
    """The asks that may still take effect, by set and code."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], list[Ask]] = defaultdict(list)

    def sent(self, who: str, request: RemotingCommand, sent_at: int) -> Ask:
        ask = Ask(who, int(request.code), dict(request.ext), parsed(request.body), sent_at)
        if ask.code in WRITES:
            self._open[ask.broker_name, ask.code].append(ask)
        return ask

    def open(self, broker_name: str, code: int) -> Iterator[Ask]:
        return iter(self._open.get((broker_name, int(code)), ()))

    def close(self, ask: Ask) -> None:
        """Note that the ask got a definite answer."""
        if ask.open and ask.code in WRITES:
            self._open[ask.broker_name, ask.code].remove(ask)
        ask.open = False
