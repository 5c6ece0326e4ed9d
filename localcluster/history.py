"""Compares the replies to a drill's client with the messages that can be read.

Invariant: each attempt to send has its own id and was made once. So every message that the verdict calls lost, changed, moved,
duplicated or refused-yet-present is a fault of the cluster and not of the client. A message whose outcome is unknown may be
there once or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple


class SendOutcome(Enum):
    """The outcome of one attempt, as the client knows it."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class MessagePlace(NamedTuple):
    """A message's place: the queue's name and the offset in it."""

    queue: str
    offset: int

    def __str__(self) -> str:
        return f"{self.queue}@{self.offset}"


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """One send. Times are in ms of one clock; `place` is the acknowledged place."""

    message_id: str
    body_hash: str
    outcome: SendOutcome
    began_ms: int
    ended_ms: int
    place: MessagePlace | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One message that was read back."""

    message_id: str
    body_hash: str
    place: MessagePlace


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts of attempts, and a readable line for every fault."""

    acknowledged: int
    refused: int
    unknown: int
    unknown_present: int
    read: int
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    refused_present: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [
            *self.lost,
            *self.changed,
            *self.moved,
            *self.duplicated,
            *self.refused_present,
            *self.strangers,
            *self.gaps,
        ]

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return not self.faults


def judge(attempts: Iterable[SendAttempt], found: Iterable[Found]) -> Verdict:
    """Compare promised messages with found messages. Both may be in any order.

    `moved` and `changed` are acknowledged messages at another place or with another body. `duplicated` are messages of any
    outcome that are there twice. A queue has `gaps` if its offsets are not 0, 1, 2, ..., each once.
    """
    by_id: dict[str, list[Found]] = {}
    by_place: dict[MessagePlace, list[str]] = {}
    read = 0
    for message in found:
        read += 1
        by_id.setdefault(message.message_id, []).append(message)
        by_place.setdefault(message.place, []).append(message.message_id)
    counts = dict.fromkeys(SendOutcome, 0)
    verdict = Verdict(0, 0, 0, 0, read)
    unknown_present = 0
    sent: set[str] = set()
    for attempt in attempts:
        assert attempt.message_id not in sent, f"message id {attempt.message_id} was used twice"
        sent.add(attempt.message_id)
        counts[attempt.outcome] += 1
        copies = by_id.get(attempt.message_id, [])
        if len(copies) > 1:
            places = ", ".join(str(copy.place) for copy in copies)
            verdict.duplicated.append(f"{attempt.message_id} is there {len(copies)} times: {places}")
        if attempt.outcome is SendOutcome.ACKNOWLEDGED:
            _judge_acknowledged(attempt, copies, by_place, verdict)
        elif attempt.outcome is SendOutcome.REFUSED and copies:
            verdict.refused_present.append(
                f"{attempt.message_id} was refused ({attempt.why}) and is at {copies[0].place}"
            )
        elif attempt.outcome is SendOutcome.UNKNOWN:
            unknown_present += bool(copies)
            if any(copy.body_hash != attempt.body_hash for copy in copies):
                verdict.changed.append(f"{attempt.message_id} at {copies[0].place} has another body")
    verdict.strangers.extend(
        f"{message_id} was never sent and is at {copies[0].place}"
        for message_id, copies in by_id.items()
        if message_id not in sent
    )
    verdict.gaps.extend(_gaps(by_place))
    return Verdict(
        counts[SendOutcome.ACKNOWLEDGED],
        counts[SendOutcome.REFUSED],
        counts[SendOutcome.UNKNOWN],
        unknown_present,
        read,
        verdict.lost,
        verdict.changed,
        verdict.moved,
        verdict.duplicated,
        verdict.refused_present,
        verdict.strangers,
        verdict.gaps,
    )


def _judge_acknowledged(
    attempt: SendAttempt, copies: list[Found], by_place: Mapping[MessagePlace, list[str]], verdict: Verdict
) -> None:
    assert attempt.place is not None, "an acknowledgement names a place"
    if not copies:
        line = f"{attempt.message_id} was acknowledged at {attempt.place} and is nowhere"
        others = by_place.get(attempt.place)
        verdict.lost.append(f"{line}; {' and '.join(others)} is there" if others else line)
        return
    at_place = [copy for copy in copies if copy.place == attempt.place]
    if not at_place:
        verdict.moved.append(
            f"{attempt.message_id} was acknowledged at {attempt.place} and is at {copies[0].place}"
        )
    if any(copy.body_hash != attempt.body_hash for copy in copies):
        verdict.changed.append(f"{attempt.message_id} at {copies[0].place} has another body")


def _gaps(by_place: Mapping[MessagePlace, list[str]]) -> list[str]:
    lines: list[str] = []
    ends: dict[str, int] = {}
    for place, ids in sorted(by_place.items()):
        expected = ends.get(place.queue, 0)
        if place.offset != expected:
            lines.append(f"{place.queue} goes from offset {expected - 1} to {place.offset}")
        if len(ids) > 1:
            lines.append(f"{place} is where {' and '.join(sorted(ids))} are")
        ends[place.queue] = place.offset + 1
    return lines


class Outage(NamedTuple):
    """A time without acknowledgements. It begins with the last acknowledgement before it, and ends with the first one after
    it."""

    from_ms: int
    to_ms: int

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms


def longest_outage(attempts: Iterable[SendAttempt], fault_ms: int, until_ms: int) -> Outage | None:
    """The longest outage that overlaps `fault_ms`..`until_ms`. None if no acknowledgement came after the fault."""
    moments = sorted(attempt.ended_ms for attempt in attempts if attempt.outcome is SendOutcome.ACKNOWLEDGED)
    spans = [
        Outage(before, after)
        for before, after in zip(moments, moments[1:], strict=False)
        if after >= fault_ms and before <= until_ms
    ]
    return max(spans, key=lambda span: span.length_ms, default=None)


def first_acknowledgement(attempts: Iterable[SendAttempt], since_ms: int) -> int | None:
    """When the first acknowledgement at or after `since_ms` arrived; None if there was none."""
    moments = (attempt.ended_ms for attempt in attempts if attempt.outcome is SendOutcome.ACKNOWLEDGED)
    return min((moment for moment in moments if moment >= since_ms), default=None)


def longest_wait_ms(attempts: Iterable[SendAttempt], from_ms: int, until_ms: int) -> int:
    """The longest time between `from_ms` and `until_ms` in which no acknowledgement arrived."""
    moments = [attempt.ended_ms for attempt in attempts if attempt.outcome is SendOutcome.ACKNOWLEDGED]
    within = sorted(moment for moment in moments if from_ms < moment < until_ms)
    return max(after - before for before, after in pairwise([from_ms, *within, until_ms]))
