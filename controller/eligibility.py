"""Who holds all that was acknowledged although the SyncStateSet goes on without it (after KIP-966).

A master acknowledges nothing while its set has fewer members than its minInSyncReplicas, nor under a new masterEpoch before
an alter of that epoch has been applied. So whoever leaves the set by such an alter, or by an election, still holds every
acknowledged byte until the set is large enough again, and may be elected like a member.

Invariant: `eligible` and `members` have nobody in common. A master that does not say its minInSyncReplicas (upstream's
brokers never do) may acknowledge alone, and leaves nobody eligible. Pure."""

from __future__ import annotations

UPSTREAM = 0
"""The minInSyncReplicas of a broker that does not tell it."""


def after_alter(
    members: frozenset[int], eligible: frozenset[int], altered: frozenset[int], members_min: int
) -> frozenset[int]:
    """Once the set is `altered`, as its master asks that acknowledges with `members_min` members and not below."""
    if members_min == UPSTREAM or len(altered) >= members_min:
        return frozenset()
    return (members | eligible) - altered


def after_election(
    members: frozenset[int], eligible: frozenset[int], elected: int, members_min: int
) -> frozenset[int]:
    """Once `elected`, which says `members_min` of itself, is master and the whole set."""
    return frozenset() if members_min == UPSTREAM else (members | eligible) - {elected}
