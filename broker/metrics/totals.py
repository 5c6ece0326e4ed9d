"""Messages and bytes by topic, and by topic and group, since the start; kept only while metrics are on.

Invariant: what one receive brought costs one addition for each of its topics, and one observation for each size that
its records have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from messagestore.messages import Appended, MessageToStore
from messagestore.systemtopics import DEAD_LETTER_PREFIX
from mqruntime.histogram import Histogram

KIB = 1024.0
SIZE_BOUNDS = (KIB, 4 * KIB, 512 * KIB, KIB * KIB, 2 * KIB * KIB, 4 * KIB * KIB)
"""Upstream's, in bytes."""


@dataclass(slots=True)
class Amount:
    """How many, and how long their records are."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class Totals:
    """`stored` and `sizes` of records by topic; `found` by topic and consumer group; `dead_letters` by group."""

    def __init__(self) -> None:
        self.stored: dict[str, Amount] = {}
        self.sizes: dict[str, Histogram] = {}
        self.found: dict[tuple[str, str], Amount] = {}
        self.dead_letters: Counter[str] = Counter()

    def sends_stored(
        self, messages: Sequence[MessageToStore], appended: Sequence[Appended], count: int, size: int
    ) -> None:
        """One append stored `count` messages in `size` bytes."""
        if len({message.topic for message in messages}) == 1:
            self._add(messages[0].topic, count, size, _kinds(appended))
            return
        of_topic: dict[str, list[Appended]] = {}
        for message, stored in zip(messages, appended, strict=True):
            of_topic.setdefault(message.topic, []).append(stored)
        for topic, results in of_topic.items():
            stored_ones = [stored for stored in results if stored.error is None]
            size = sum(stored.record_bytes for stored in stored_ones)
            self._add(topic, sum(stored.count for stored in stored_ones), size, _kinds(results))

    def plain_sends_stored(self, amounts: Mapping[tuple[bytes, int, int], int]) -> None:
        """The same of plain sends: (topic, bytes of records, records) of a send -> how many sends."""
        of_topic: dict[bytes, dict[tuple[int, int], int]] = {}
        for (topic, size, records), times in amounts.items():
            of_topic.setdefault(topic, {})[size, records] = times
        for name, kinds in of_topic.items():
            count = sum(records * times for (_, records), times in kinds.items())
            self._add(name.decode(), count, sum(size * times for (size, _), times in kinds.items()), kinds)

    def pull_found(self, topic: str, group: str, count: int, size: int) -> None:
        """One pull of `group` was answered with messages."""
        amount = self.found.get((topic, group))
        if amount is None:
            amount = self.found[topic, group] = Amount()
        amount.add(count, size)

    def dead_letter(self, topic: str, count: int = 1) -> None:
        """Stored in `topic`, if that is a dead letter topic."""
        if topic.startswith(DEAD_LETTER_PREFIX):
            self.dead_letters[topic.removeprefix(DEAD_LETTER_PREFIX)] += count

    def _add(self, topic: str, count: int, size: int, kinds: Mapping[tuple[int, int], int]) -> None:
        if not count:
            return
        self.stored.setdefault(topic, Amount()).add(count, size)
        self.dead_letter(topic, count)
        sizes = self.sizes.get(topic)
        if sizes is None:
            sizes = self.sizes[topic] = Histogram(SIZE_BOUNDS)
        for (records_size, records), times in kinds.items():
            sizes.observe(records_size / records, records * times)


def _kinds(appended: Iterable[Appended]) -> Counter[tuple[int, int]]:
    """(bytes of its records, their count) of what was stored -> how many there are."""
    return Counter([(stored.record_bytes, stored.count) for stored in appended if stored.count])
