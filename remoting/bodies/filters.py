"""The SQL92 filters of consumer groups as brokers keep them (consumerFilter.json)."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class BloomFilterData(Body):
    """A filter's positions in bit maps of `bit_num` bits."""

    bit_num: I32 = 0
    bit_pos: list[I32] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerFilterData(Body):
    """A group's filter of one topic. Times are wall clock ms. A filter is dead while no connected client of the group uses it.
    `dead_time` is the time since when it is dead, or 0 if it is not; `dead` says whether it is."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str = "SQL92"
    born_time: I64 = 0
    dead_time: I64 = 0
    client_version: I64 = 0
    dead: bool = False
    bloom_filter_data: BloomFilterData = field(default_factory=BloomFilterData)


@dataclass(slots=True)
class FilterDataMapByTopic(Body):
    """The filters of one topic, by group."""

    topic: str
    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerFilterWrapper(Body):
    """All filters, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)
