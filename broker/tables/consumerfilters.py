"""The filter expressions of consumer groups, with the times of their registration and death. Upstream: ConsumerFilterManager.

Invariant: the table has the last filter of a group for a topic. The filter is dead while no client of the group is connected,
and is dropped after a day. Pulls use the subscription of the connected client, never this table, because an old file must not
decide which messages are sent today. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from filters.bloomfilter import BITS, bit_positions
from filters.sql92 import SQL92
from remoting.bodies.filters import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from remoting.bodies.heartbeats import SubscriptionData

CONSUMER_FILTERS_FILE = "config/consumerFilter.json"
KEPT_MS = 24 * 3600 * 1000
SEEN_BEFORE_MS = 30_000
"""Clients of before the start count as gone for this long when the file is read."""
CHARACTERS_MAX = 8 << 20
"""Limit of all filters together. A filter beyond the limit works, but is not kept."""
FILTER_CHARACTERS = 200
"""The size of a filter without its names and its expression."""


class WallClock(Protocol):
    def now_ms(self) -> int: ...


class ConsumerFilters:
    """Filters by topic and group. `on_change` runs after each change."""

    def __init__(self, clock: WallClock, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._wrapper = ConsumerFilterWrapper()
        self._by_group: dict[str, dict[str, ConsumerFilterData]] = {}
        """The same filters by group and topic, because each heartbeat looks up its groups."""
        self._characters = 0

    def find(self, group: str, topic: str) -> ConsumerFilterData | None:
        of_topic = self._wrapper.filter_data_by_topic.get(topic)
        return of_topic.group_filter_data.get(group) if of_topic else None

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the subscriptions of a connected client of `group`; each is an expression or tags."""
        subscribed = {each.topic: each for each in subscriptions}
        wanted = [each for each in subscribed.values() if each.expression_type == SQL92 and each.sub_string]
        changes = [self._register(group, each) for each in wanted]
        left = [each for each in self._of_group(group) if each.topic not in subscribed]
        if any([*changes, self._die(left)]):
            self._on_change()

    def unregister(self, group: str) -> None:
        """Mark the filters of `group` as dead, because no client of the group is connected."""
        if self._die(self._of_group(group)):
            self._on_change()

    def _register(self, group: str, wanted: SubscriptionData) -> bool:
        known = self.find(group, wanted.topic)
        if known is None or wanted.sub_string != known.expression:
            return self._put(group, wanted)
        before = known.client_version, known.dead_time
        known.client_version, known.dead_time = wanted.sub_version, 0
        return before != (known.client_version, known.dead_time)

    def _put(self, group: str, wanted: SubscriptionData) -> bool:
        made = ConsumerFilterData(
            group,
            wanted.topic,
            wanted.sub_string,
            born_time=self._clock.now_ms(),
            client_version=wanted.sub_version,
            bloom_filter_data=BloomFilterData(BITS, bit_positions(group, wanted.topic)),
        )
        known = self.find(group, wanted.topic)
        characters = self._characters + _characters(made) - (_characters(known) if known else 0)
        if characters > CHARACTERS_MAX:
            return False
        self._characters = characters
        by_topic = self._wrapper.filter_data_by_topic
        by_topic.setdefault(wanted.topic, FilterDataMapByTopic(wanted.topic)).group_filter_data[group] = made
        self._by_group.setdefault(group, {})[wanted.topic] = made
        return True

    def _die(self, filters: Iterable[ConsumerFilterData]) -> bool:
        living = [each for each in filters if not _is_dead(each)]
        for each in living:
            each.dead_time = self._clock.now_ms()
        return bool(living)

    def _of_group(self, group: str) -> list[ConsumerFilterData]:
        return list(self._by_group.get(group, {}).values())

    def _all(self) -> Iterator[ConsumerFilterData]:
        for of_topic in self._wrapper.filter_data_by_topic.values():
            yield from of_topic.group_filter_data.values()

    def _clean(self) -> None:
        now_ms = self._clock.now_ms()
        kept = [each for each in self._all() if not _is_dead(each) or now_ms - each.dead_time < KEPT_MS]
        self._wrapper, self._characters = ConsumerFilterWrapper(), sum(map(_characters, kept))
        by_topic, self._by_group = self._wrapper.filter_data_by_topic, {}
        for each in kept:
            of_topic = by_topic.setdefault(each.topic, FilterDataMapByTopic(each.topic))
            of_topic.group_filter_data[each.consumer_group] = each
            self._by_group.setdefault(each.consumer_group, {})[each.topic] = each

    def encode(self) -> bytes:
        """The content of consumerFilter.json."""
        self._clean()
        for each in self._all():
            each.dead = _is_dead(each)
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Read the content of consumerFilter.json. Filters that clients registered meanwhile win. Raises BodyError."""
        here = list(self._all())
        self._wrapper = ConsumerFilterWrapper.decode(data)
        for each in self._all():
            if each.dead_time == 0:
                each.dead_time = max(each.born_time, self._clock.now_ms() - SEEN_BEFORE_MS)
        by_topic = self._wrapper.filter_data_by_topic
        for each in here:
            of_topic = by_topic.setdefault(each.topic, FilterDataMapByTopic(each.topic))
            of_topic.group_filter_data[each.consumer_group] = each
        self._clean()


def _is_dead(data: ConsumerFilterData) -> bool:
    return data.dead_time >= data.born_time


def _characters(data: ConsumerFilterData) -> int:
    return FILTER_CHARACTERS + len(data.consumer_group) + len(data.topic) + len(data.expression)
