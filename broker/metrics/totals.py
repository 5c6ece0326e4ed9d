"""Messages, bytes and calls since the start, by topic, and by topic and group. Record sizes are only kept while metrics are on.

Invariant: one receive costs one addition for each of its topics. If sizes are kept, it also costs one observation for each size
of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from messagestore.messages import MessageToStore, PutResult
from messagestore.systemtopics import DEAD_LETTER_PREFIX
from mqruntime.histogram import Histogram

KIB = 1024.0
SIZE_BOUNDS = (KIB, 4 * KIB, 512 * KIB, KIB * KIB, 2 * KIB * KIB, 4 * KIB * KIB)
"""Upstream's bounds, in bytes."""


@dataclass(slots=True)
class Amount:
    """The number of messages, the size of their records, and the number of sends or pulls."""

    messages: int = 0
    bytes: int = 0
    calls: int = field(default=0, compare=False)

    def add(self, messages: int, size: int, calls: int) -> None:
        self.messages += messages
        self.bytes += size
        self.calls += calls


class Totals:
    """The totals: `stored` and `sizes` by topic, `found` and `sent_back` by topic and consumer group, `dead_letters` by group,
    and `put` and `got` of the whole broker."""

    def __init__(self, *, with_sizes: bool = True) -> None:
        self._with_sizes = with_sizes
        self.put = Amount()
        self.got = Amount()
        self.stored: dict[str, Amount] = {}
        self.sizes: dict[str, Histogram] = {}
        self.found: dict[tuple[str, str], Amount] = {}
        self.sent_back: dict[tuple[str, str], Amount] = {}
        self.dead_letters: Counter[str] = Counter()

    def sends_stored(
        self, messages: Sequence[MessageToStore], appended: Sequence[PutResult], count: int, size: int
    ) -> None:
        """Count one append of `count` messages in `size` bytes."""
        if len({message.topic for message in messages}) == 1:
            self._add(messages[0].topic, count, size, self._kinds(appended), len(messages))
            return
        of_topic: dict[str, list[PutResult]] = {}
        for message, stored in zip(messages, appended, strict=True):
            of_topic.setdefault(message.topic, []).append(stored)
        for topic, results in of_topic.items():
            stored_ones = [stored for stored in results if stored.error is None]
            size = sum(stored.record_bytes for stored in stored_ones)
            count = sum(stored.count for stored in stored_ones)
            self._add(topic, count, size, self._kinds(results), len(stored_ones))

    def plain_sends_stored(self, amounts: Mapping[tuple[bytes, int, int], int]) -> None:
        """Count plain sends: (topic, bytes of records, records) of a send -> number of sends."""
        if not self._with_sizes:
            for (name, size, records), times in amounts.items():
                self._add(name.decode(), records * times, size * times, {}, times)
            return
        of_topic: dict[bytes, dict[tuple[int, int], int]] = {}
        for (topic, size, records), times in amounts.items():
            of_topic.setdefault(topic, {})[size, records] = times
        for name, kinds in of_topic.items():
            count = sum(records * times for (_, records), times in kinds.items())
            size = sum(size * times for (size, _), times in kinds.items())
            self._add(name.decode(), count, size, kinds, sum(kinds.values()))

    def pull_found(self, topic: str, group: str, count: int, size: int) -> None:
        """Count one answer to a pull of `group` with messages."""
        amount = self.found.get((topic, group))
        if amount is None:
            amount = self.found[topic, group] = Amount()
        amount.add(count, size, 1)
        self.got.add(count, size, 1)

    def message_sent_back(self, topic: str, group: str) -> None:
        """Count a message to `topic` that a consumer of `group` sent back."""
        self.sent_back.setdefault((topic, group), Amount()).add(1, 0, 1)

    def forget(self, knows_topic: Callable[[str], bool], knows_group: Callable[[str], bool]) -> None:
        """Drop the totals of deleted topics and groups."""
        for topic in [topic for topic in self.stored if not knows_topic(topic)]:
            del self.stored[topic]
            self.sizes.pop(topic, None)
        for table in (self.found, self.sent_back):
            for pair in [pair for pair in table if not (knows_topic(pair[0]) and knows_group(pair[1]))]:
                del table[pair]

    def dead_letter(self, topic: str, count: int = 1) -> None:
        """Count messages stored in `topic`, if `topic` is a dead letter topic."""
        if topic.startswith(DEAD_LETTER_PREFIX):
            self.dead_letters[topic.removeprefix(DEAD_LETTER_PREFIX)] += count

    def _add(
        self, topic: str, count: int, size: int, kinds: Mapping[tuple[int, int], int], calls: int
    ) -> None:
        if not count:
            return
        amount = self.stored.get(topic)
        if amount is None:
            amount = self.stored[topic] = Amount()
        amount.add(count, size, calls)
        self.put.add(count, size, calls)
        self.dead_letter(topic, count)
        if not self._with_sizes:
            return
        sizes = self.sizes.get(topic)
        if sizes is None:
            sizes = self.sizes[topic] = Histogram(SIZE_BOUNDS)
        for (records_size, records), times in kinds.items():
            sizes.observe(records_size / records, records * times)

    def _kinds(self, appended: Iterable[PutResult]) -> Mapping[tuple[int, int], int]:
        """(bytes of a send's records, number of records) -> number of such sends; empty if sizes are not kept."""
        if not self._with_sizes:
            return {}
        return Counter([(stored.record_bytes, stored.count) for stored in appended if stored.count])
