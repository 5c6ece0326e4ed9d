"""What the members of one consumer group did, judged by the confirmed log.

Invariants: G1 each confirmed message of the topic was handled without an error, or is a dead letter of the group. G2 two
living members never handle messages of one queue at the same time. G3 the first handling of a message begins after the one
before it in its queue was handled. G2 and G3 are those of a group in order. G4 once all members left and the set is whole,
a new member gets no message that was acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqclient.message import StoredMessage
from simulation.kernel.violation import Violation


@dataclass
class Handling:
    """A message in a handler. `lives` returns whether the handler's process still runs."""

    queue_id: int
    offset: int
    message_id: str
    member: str
    lives: Callable[[], bool]
    began: int
    """The number of this event."""


@dataclass
class GroupBook:
    """Notes of one group, made while it runs."""

    group: str
    topic: str
    is_ordered: bool
    done: set[str] = field(default_factory=set)
    """Ids of the messages that were handled without an error."""
    events: int = 0
    first_begun: dict[tuple[int, int], int] = field(default_factory=dict)
    """(queue id, offset) -> the number of the event when its first handling began."""
    first_done: dict[tuple[int, int], int] = field(default_factory=dict)
    handled: int = 0
    violation: Violation | None = None
    _in_hand: dict[int, list[Handling]] = field(default_factory=dict)

    def begins(self, message: StoredMessage, member: str, lives: Callable[[], bool]) -> Handling:
        """A member begins to handle a message."""
        self.events += 1
        handling = Handling(
            message.queue_id, message.queue_offset, message.message_id, member, lives, self.events
        )
        if message.topic == self.topic:
            self.first_begun.setdefault((message.queue_id, message.queue_offset), self.events)
            if self.is_ordered:
                others = [each for each in self._in_hand.get(message.queue_id, []) if each.lives()]
                self._in_hand[message.queue_id] = [*others, handling]
                if others and self.violation is None:
                    said = (
                        f"{self.group}: queue {message.queue_id} is read by {others[0].member} and {member}"
                    )
                    self.violation = Violation("G2", said)
        return handling

    def ends(self, handling: Handling, *, is_done: bool) -> None:
        """The handler ended, `is_done` if without an error."""
        self.events += 1
        self.handled += 1
        in_hand = self._in_hand.get(handling.queue_id, [])
        self._in_hand[handling.queue_id] = [each for each in in_hand if each is not handling]
        if is_done:
            self.done.add(handling.message_id)
            self.first_done.setdefault((handling.queue_id, handling.offset), self.events)

    def missing(self, confirmed: Iterable[StoredMessage]) -> list[StoredMessage]:
        """The messages of the topic that nobody handled, and that are no dead letters."""
        messages = list(confirmed)
        dead = {each.message_id for each in messages if each.topic == f"%DLQ%{self.group}"}
        return [
            each for each in messages if each.topic == self.topic and each.message_id not in self.done | dead
        ]

    def judge(self, confirmed: Iterable[StoredMessage]) -> None:
        """Raises Violation."""
        messages = list(confirmed)
        if missing := self.missing(messages):
            first = missing[0]
            said = f"{self.group}: {len(missing)} messages were not handled, first {first.queue_id}/{first.queue_offset}"
            raise Violation("G1", said)
        if self.is_ordered:
            self._judge_order(messages)

    def _judge_order(self, messages: list[StoredMessage]) -> None:
        before: dict[int, int] = {}
        for each in sorted(messages, key=lambda message: message.queue_offset):
            if each.topic != self.topic:
                continue
            place, last = (each.queue_id, each.queue_offset), before.get(each.queue_id)
            if last is not None and self.first_begun[place] < self.first_done[each.queue_id, last]:
                raise Violation("G3", f"{self.group}: {place} was handled before {last} was")
            if place in self.first_done:  # else it is a dead letter
                before[each.queue_id] = each.queue_offset
