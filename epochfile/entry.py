"""One epoch of a log.

Invariant: an entry holds only the start of its epoch. The epoch ends where the next epoch starts, or with the log. Pure."""

from __future__ import annotations

from typing import NamedTuple


class EpochEntry(NamedTuple):
    """`epoch` is the master epoch (i32), `start_offset` the first byte written in it (i64)."""

    epoch: int
    start_offset: int
