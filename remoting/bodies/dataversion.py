"""The version of a table that brokers and name servers exchange.

Invariant: a version never changes. Two versions are equal if all three fields are equal, and the next version of a table is
greater."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.bodies.body import Body
from remoting.wirefields import I64


@dataclass(frozen=True, slots=True)
class DataVersion(Body):
    """`state_version` is the master epoch in controller mode, else 0; `timestamp` is wall clock ms."""

    state_version: I64 = 0
    timestamp: I64 = 0
    counter: I64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after a change at `now_ms` under master epoch `state_version`."""
        return DataVersion(state_version, now_ms, self.counter + 1)

    @property
    def order(self) -> tuple[int, int, int]:
        """Newer versions have the greater order."""
        return (self.state_version, self.counter, self.timestamp)
