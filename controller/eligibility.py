"""Brokers outside the SyncStateSet that hold all acknowledged data (after KIP-966).

A master acknowledges nothing while its set has fewer members than its minInSyncReplicas. Under a new masterEpoch it also
acknowledges nothing before an alter of that epoch has been applied. So a broker that leaves the set by an election, or by an
alter that makes the set too small, still holds every acknowledged byte until the set is large enough again. Until then the
broker may be elected like a member.

Invariant: `eligible` and `members` are disjoint. A master that does not report its minInSyncReplicas (upstream's brokers never
do) may acknowledge alone, so no broker stays eligible. Pure."""

from __future__ import annotations

UPSTREAM = 0
"""The minInSyncReplicas of a broker that does not report it."""


def after_alter(
    members: frozenset[int], eligible: frozenset[int], altered: frozenset[int], members_min: int
) -> frozenset[int]:
    """The eligible brokers after the set changed to `altered`. The master acknowledges only with at least `members_min`
    members."""
    if members_min == UPSTREAM or len(altered) >= members_min:
        return frozenset()
    return (members | eligible) - altered


def after_election(
    members: frozenset[int], eligible: frozenset[int], elected: int, members_min: int
) -> frozenset[int]:
    """The eligible brokers after an election made `elected` the master and only member. `elected` reports `members_min`."""
    return frozenset() if members_min == UPSTREAM else (members | eligible) - {elected}
