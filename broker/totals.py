"""Messages and bytes by topic, and by topic and group, since the start; kept only while metrics are on.

Invariant: a batch costs one addition for each of its topics; only a batch of several is looked at message by
message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from broker.retries import DLQ_PREFIX
from messagestore.messages import Appended, MessageToStore


@dataclass(slots=True)
class Amount:
    """How many, and how long their records are."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class Totals:
    """`stored` by topic; `found` by topic and consumer group; `dead_letters` by group."""

    def __init__(self) -> None:
        self.stored: dict[str, Amount] = {}
        self.found: dict[tuple[str, str], Amount] = {}
        self.dead_letters: Counter[str] = Counter()

    def sends_stored(
        self, messages: Sequence[MessageToStore], appended: Sequence[Appended], count: int, size: int
    ) -> None:
        """One append stored `count` messages in `size` bytes."""
        if len({message.topic for message in messages}) == 1:
            self._add(messages[0].topic, count, size)
            return
        amounts: dict[str, Amount] = {}
        for message, stored in zip(messages, appended, strict=True):
            if stored.error is None:
                amount = amounts.setdefault(message.topic, Amount())
                amount.add(stored.count, stored.end_offset - stored.physical_offset)
        for topic, amount in amounts.items():
            self._add(topic, amount.messages, amount.bytes)

    def pull_found(self, topic: str, group: str, count: int, size: int) -> None:
        """One pull of `group` was answered with messages."""
        amount = self.found.get((topic, group))
        if amount is None:
            amount = self.found[topic, group] = Amount()
        amount.add(count, size)

    def dead_letter(self, topic: str, count: int = 1) -> None:
        """Stored in `topic`, if that is a dead letter topic."""
        if topic.startswith(DLQ_PREFIX):
            self.dead_letters[topic.removeprefix(DLQ_PREFIX)] += count

    def _add(self, topic: str, count: int, size: int) -> None:
        if count:
            self.stored.setdefault(topic, Amount()).add(count, size)
            self.dead_letter(topic, count)
