"""The epochs of a broker's log."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class EpochSpan(Body):
    """One epoch. The `end_offset` of the last epoch is Long.MAX_VALUE."""

    epoch: I32
    start_offset: I64
    end_offset: I64


@dataclass(slots=True)
class EpochCache(Body):
    """Reply to GET_BROKER_EPOCH_CACHE (1007). `broker_id` is the role id, 0 on the master."""

    cluster_name: str
    broker_name: str
    broker_id: I64
    max_offset: I64
    epoch_list: list[EpochSpan] = field(default_factory=list)
