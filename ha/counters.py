"""Counters of replication since this process started.

Invariant: the counters only grow, across all roles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HACounters:
    """Totals over all links and roles."""

    sent_bytes: int = 0  # to slaves, frame headers included
    received_bytes: int = 0  # from masters, frame headers included
    truncations: int = 0  # cuts of this log, because a master's log differs
    role_changes: int = 0
    refused_links: int = 0  # slaves with an unknown id, or at another host
