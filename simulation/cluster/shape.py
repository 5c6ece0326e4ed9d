"""What a seed's cluster has beside three brokers.

Invariant: it follows from the seed's number alone, so what a shape adds changes nothing in a seed that has it not."""

from __future__ import annotations

import random
from dataclasses import dataclass

from simulation.cluster.contract import CONTRACT_A, CONTRACT_D, CONTRACTS, Contract

ALONE = 9, 5
"""Of so many seeds this one has contract A."""
ON_DISK = 12, 0
"""Of so many this one has contract D."""
LEARNS = 11, 6
"""Of so many seeds this one has a learner."""
OPERATED = 12, 10
"""Of so many this one has an operator at work."""
UNCLEAN = 13, 8
"""Of so many this one has the unclean elections switched on, and an operator."""
HARSH = 10, 8
"""Of so many this one meets hostile frames, great bursts and disks that are sick for good."""
SEALED = 16, 13
"""Of so many this one's masters end each record with its own CRC, which is checked wherever a body's is."""

IN_STEPS = 16, 9
"""Of so many this one's logs get their disk blocks a page at a time."""

LIMITED = 9, 0
"""Of so many this one limits what goes to replicas that catch up."""

RESYNCED = 11, 5
"""Of so many this one has an operator who lets replicas begin anew."""

IN_ORDER = 8, 7
"""Of so many this one has clients that consume in order."""

HASTY = 40, 31
"""Of so many, all of them with clients that consume in order, these give queues up one-way and lock at once."""

TRANSACTED = 15, 0
"""Of so many this one has producers of messages in transactions."""

ABANDONS = 25, 24
"""Of so many this one has those producers, too, some of whom never end a transaction, and old segments go."""

CHOOSES = 20, 19
"""Of so many this one has consumers that choose by SQL92 expressions, and are moved to other offsets."""

UNREADABLE = 21, 0
"""Of so many this one's brokers have sectors that cannot be read for a while."""

HANDLES = 25, 22
"""Of so many this one has readers in order who handle what they read."""

COMMITS = 25, 0
"""Of so many this one has groups whose rebalanced members say older offsets to former masters."""

FLOODED = 25, 23
"""Of so many this one's servers, whose requests cost CPU time then, meet floods once all is whole."""

STRANGE = 20, 0
"""Of so many this one has strangers who say what the tables of hostile bytes have."""

FORGED = 19, 7
"""Of so many this one has somebody who says of roles and sets what only controllers may say."""

OLD_DISKS = 18, 16
"""Of so many this one has brokers whose disks are set back to earlier images."""

COPIED = 24, 11
"""Of so many this one has copies of brokers' stores that are started, too."""

LOSES_QUEUES = 14, 4
"""Of so many this one's dead brokers lose files of their consume queues."""

LULLS = 23, frozenset({0, 15, 17, 18, 19, 20, 21, 22})
"""Of so many, those that leave these have a time without faults in the midst of their run."""


@dataclass(frozen=True)
class Shape:
    contract: Contract
    has_learner: bool = False
    has_operator: bool = False
    is_unclean: bool = False
    is_harsh: bool = False
    is_sealed: bool = False
    reserves_pages: bool = False
    is_limited: bool = False
    has_resyncs: bool = False
    has_lulls: bool = False
    reads_in_order: bool = False
    are_hasty: bool = False
    has_transactions: bool = False
    some_abandon: bool = False
    has_choosers: bool = False
    has_strangers: bool = False
    has_bad_sectors: bool = False
    has_handlers: bool = False
    has_committers: bool = False
    is_flooded: bool = False
    has_forger: bool = False
    has_old_disks: bool = False
    has_copies: bool = False
    loses_queues: bool = False

    @staticmethod
    def of(seed: int) -> Shape:
        """By the remainder of the seed."""
        drawn = random.Random(f"{seed}/contract").choice(CONTRACTS)
        is_unclean = of(UNCLEAN, seed)
        return Shape(
            contract=CONTRACT_A if of(ALONE, seed) else CONTRACT_D if of(ON_DISK, seed) else drawn,
            has_learner=of(LEARNS, seed),
            has_operator=of(OPERATED, seed) or is_unclean,
            is_unclean=is_unclean,
            is_harsh=of(HARSH, seed),
            is_sealed=of(SEALED, seed),
            reserves_pages=of(IN_STEPS, seed),
            is_limited=of(LIMITED, seed),
            has_resyncs=of(RESYNCED, seed) and not is_unclean,
            has_lulls=seed % LULLS[0] in LULLS[1],
            reads_in_order=of(IN_ORDER, seed) and not is_unclean,
            are_hasty=of(HASTY, seed) and not is_unclean,
            has_transactions=(of(TRANSACTED, seed) or of(ABANDONS, seed)) and not is_unclean,
            some_abandon=of(ABANDONS, seed) and not is_unclean,
            has_choosers=of(CHOOSES, seed) and not is_unclean,
            has_strangers=of(STRANGE, seed),
            has_bad_sectors=of(UNREADABLE, seed),
            has_handlers=of(HANDLES, seed) and not is_unclean,
            has_committers=of(COMMITS, seed),
            is_flooded=of(FLOODED, seed),
            has_forger=of(FORGED, seed),
            has_old_disks=of(OLD_DISKS, seed) and not is_unclean,
            has_copies=of(COPIED, seed) and not is_unclean,
            loses_queues=of(LOSES_QUEUES, seed),
        )

    def settings(self) -> dict[str, object]:
        """What brokers are told besides."""
        return {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True} if self.is_sealed else {}


def of(kind: tuple[int, int], seed: int) -> bool:
    each, this = kind
    return seed % each == this
