"""Counters of replication since this process started.

Invariant: the counters only grow, across all roles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HACounters:
    """Totals over all links and roles."""

    sent_bytes: int = 0  # to slaves, frame headers with them
    received_bytes: int = 0  # from masters, likewise
    truncations: int = 0  # of this log, because a master's differs
    role_changes: int = 0
    refused_links: int = 0  # of ids that controllers do not know, or at another host
