"""Offset tables that a slave copies from its master."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.bodies.dataversion import DataVersion
from remoting.wirefields import I32, I64


@dataclass(frozen=True, slots=True)
class OffsetReset(Body):
    """An administrator moved `group` in this queue to `offset`, and the group has not continued there yet."""

    group: str
    topic: str
    queue_id: I32
    offset: I64


@dataclass(slots=True)
class OffsetResetTable(Body):
    """The moves of groups that are pending. `limits` has the greatest possible offset of each queue. It is present while some
    group may have an offset beyond the end of a log that lost its last messages."""

    resets: list[OffsetReset] = field(default_factory=list)
    limits: list[OffsetReset] | None = None


@dataclass(slots=True)
class ConsumerOffsetWrapper(Body):
    """Reply to GET_ALL_CONSUMER_OFFSET (43): `topic@group` -> queue id -> next offset to consume. `offset_resets` is an
    extension, present while moves are pending."""

    offset_table: dict[str, dict[I32, I64]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    group_topic_map: dict[str, list[str]] | None = None
    offset_resets: OffsetResetTable | None = None


@dataclass(slots=True)
class DelayOffsetWrapper(Body):
    """Reply to GET_ALL_DELAY_OFFSET (45): delay level -> next consume queue index."""

    offset_table: dict[I32, I64] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
