"""The features of a seed's cluster, in addition to three brokers, three controllers, a name server and a client."""

from __future__ import annotations

import random
from dataclasses import dataclass

from simulation.cluster.contract import CONTRACT_A, CONTRACT_D, CONTRACTS, Contract
from simulation.kernel.features import NOTHING_ASKED, Asked, Feature, Features
from simulation.workloads.accounts import SETTINGS

LOSES = frozenset({"unclean", "contract A"})
"""Under these contracts an election may lose acknowledged records, so checks that need all of them are left out."""


def feature(
    name: str,
    share: float,
    plays: str,
    checks: str = "",
    *,
    brings: tuple[str, ...] = (),
    excludes: frozenset[str] = frozenset(),
) -> Feature:
    """A feature that one of `share` seeds draws."""
    return Feature(name, 1 / share, plays, checks, frozenset(brings), excludes)


FEATURES = Features(
    feature(
        "unclean",
        13,
        "Unclean elections are allowed, and an operator asks for them and lets replicas truncate.",
        "Up to the first unclean election, all that holds elsewhere. After it, the promises of contract A, except for "
        "records that readers saw and changes that administrators got an answer to.",
        brings=("operator",),
    ),
    feature(
        "contract A",
        9,
        "A send waits for the master only. Whole sets die and the master comes back first, killed or stopped.",
        "If an acknowledged message is lost, the first epoch that began without it had another master. No rejected message "
        "is stored, no message is stored twice, readable messages stay readable, logs are equal in the end.",
    ),
    feature(
        "contract D",
        12,
        "A record counts once it is on disk. All brokers lose power at once while disks are slow.",
        "The promises of contract C.",
        excludes=frozenset({"contract A"}),
    ),
    feature(
        "learner",
        11,
        "A learner is killed, cut off, emptied, or left alone.",
        "S6: a learner is never a member or eligible, and never counts for contract C. In the end its log and tables are "
        "equal to the master's.",
    ),
    feature(
        "operator",
        8,
        "An operator elects masters, with and without a name, replaces and forgets brokers, and tries to forget living ones.",
        "M4: the elected broker was in the SyncStateSet or eligible. B2: a living broker is not forgotten, a forgotten one "
        "stays forgotten.",
    ),
    feature(
        "harsh",
        10,
        "Hostile frames reach every port, 400 sends come at once. When all is whole, a master's disk hangs for good, and a "
        "slave cannot write its epochs.",
        "No process ends because of hostile bytes. Another master takes messages within 30 s.",
    ),
    feature(
        "record CRCs",
        16,
        "Records end with a CRC of their own, which is verified. Any bit of an old record may flip.",
        "L7: each confirmed record has the CRC and agrees with it; a damaged record is neither served nor copied.",
    ),
    feature(
        "blocks in steps",
        16,
        "The log gets its disk blocks a page at a time.",
        "L8, in every seed: a segment has blocks for all bytes that were written into it.",
    ),
    feature(
        "catch-up limits",
        9,
        "Until all is healed, replicas that catch up get a limited number of bytes a second.",
        "F: a replica outside the set gets no more than this, and a member never waits for the limit.",
    ),
    feature(
        "resync",
        11,
        "An operator resyncs replicas, which are killed meanwhile, or whose disks are full.",
        "Z: a replica that begins again cannot be elected, enough other members are left, no replica begins whose disk "
        "cannot hold a second copy, and the old store stays aside until the new copy was in the set.",
        excludes=frozenset({"unclean"}),
    ),
    feature(
        "lulls",
        3,
        "A time without faults in the midst of the run; a broker and a controller are down all the while.",
        "V2 of [proofs](proofs.md): the set serves.",
    ),
    feature(
        "retention",
        3.3,
        "Old segments, of 16 KiB, are deleted after 3 to 30 s.",
        "D: deleted records are confirmed, old enough, on disk, not to be read by a connected slave, and none is an "
        "undelivered delayed message.",
        excludes=LOSES,
    ),
    feature(
        "rotten store times",
        7,
        "A bit of a store time flips on a slave and flips back.",
        "D.",
        brings=("retention",),
        excludes=LOSES,
    ),
    feature(
        "full disk",
        2,
        "The disk of a server is full for a while.",
        "V2: a full disk ends no broker that serves.",
    ),
    feature(
        "foreign epoch file",
        2.5,
        "A deposed master comes back with its own log and its successor's epoch file.",
        "The log is truncated where the two differ.",
    ),
    feature(
        "rotten segment",
        1.4,
        "A bit of an old record flips while its broker is down.",
        "L1: the damaged record is neither served nor copied, and is repaired from another replica.",
    ),
    feature(
        "hand-over in trouble",
        2.5,
        "An operator elects a slave, and a moment later this slave or the former master dies, hangs or is cut off.",
        "All that holds elsewhere.",
    ),
    feature(
        "ordered readers",
        8,
        "Clients lock queues, renew, unlock and fall silent. A master dies now and then as one of them gets a lock.",
        "O1: two clients never trust that they hold one queue. O2: a lock that nobody renews is free after its lease.",
        excludes=frozenset({"unclean"}),
    ),
    feature(
        "hasty readers",
        40,
        "Ordered readers unlock one-way and lock again at once, as Java's clients do. Meanwhile their master is paused "
        "until its successor leads.",
        "O1 and O2: a request that waited in the paused master's socket takes no queue from its new holder.",
        brings=("ordered readers",),
        excludes=frozenset({"unclean"}),
    ),
    feature(
        "transactions",
        10,
        "Producers of messages in transactions die at every step. Masters die right after half messages and ends. Ends come "
        "twice, late, to every broker, and opposite to the answered end.",
        "E1: a transaction is committed at most once. E2: an answered end stays. E3: nothing else can be read. E4: once all "
        "is whole, no transaction waits for ever. E5: no transaction is given up before it is as old as the log is kept or "
        "was checked 15 times.",
        excludes=LOSES,
    ),
    feature(
        "abandoned transactions",
        20,
        "Other producers begin a transaction and never come back, or answer checks with UNKNOWN for ever.",
        "E4: a half message without an end is given up, and is in `TRANS_CHECK_MAX_TIME_TOPIC` as it was sent.",
        brings=("transactions", "retention"),
        excludes=LOSES,
    ),
    feature(
        "filters",
        18,
        "Consumers filter by drawn SQL92 expressions. Administrators reset their offsets by offset, by time and by clone "
        "while these and other consumers commit late. Masters die right after a reset.",
        "F1: each pull gives exactly the confirmed messages that the expression takes, by the check's own evaluation. F2: the "
        "master keeps each expression. V1: a consumer whose reset was answered stays at that offset until it continues from "
        "there. V2: no other offset is sent to it.",
        excludes=LOSES,
    ),
    feature(
        "handlers",
        20,
        "Two readers of one group lock queues, exchange them every 4 s, and handle what they read from the "
        "committed offset on.",
        "O3: each confirmed message of a queue is handled, in order, and only by the present holder of the queue.",
        excludes=LOSES | {"retention"},
    ),
    feature(
        "group members",
        25,
        "Members of two consumer groups, one in order, come, leave, die, are paused, fail and are slow; one behaves as a "
        "member in Java. An administrator moves a group back to the beginning.",
        "G1: each confirmed message is handled or a dead letter. G2: in order, two members never handle messages of one "
        "queue. G3: nor is a message handled before the one in front of it. G4: acknowledged messages do not come again to "
        "a member that joins once all others have left.",
        excludes=LOSES | {"retention"},
    ),
    feature(
        "committers",
        20,
        "Groups commit rising offsets to the master or to the broker that their route names, and query them. Members that "
        "were rebalanced away send older offsets to former masters, one-way. A master is paused before a commit now and "
        "then.",
        "O4: within a master epoch an answered offset never goes back. O5: an offset that was answered 15 s before a "
        "switchover of a whole cluster is there under the next master, and on all brokers in the end. In a failover a group "
        "may go back by the slaves' last poll (5 s here).",
    ),
    feature(
        "bad sectors",
        18,
        "Segments on the disk of any broker cannot be read for up to 8 s, every few seconds.",
        "A reader gets an error that names the cause; the broker serves the rest and reads again.",
    ),
    feature(
        "floods",
        22,
        "Once all is whole, twelve connections send 7,000 small one-way requests each to the master, the leading controller "
        "and the name server in turn. A request costs its process 100 us of virtual time meanwhile.",
        "W1: another client is answered within 1 s, and the master keeps its epoch.",
    ),
    feature(
        "strangers",
        18,
        "Strangers send the bytes of `simulation/hostile` to every port, 250 to 420 times a seed.",
        "No process ends because of it, answers with an internal error, or keeps more than its tables have names for. No "
        "member accepts a message that no member sent (R11).",
    ),
    feature(
        "forger",
        15,
        "A host sends brokers forged notifications (1008) with living ids and addresses, present, next and far epochs and "
        "smaller sets, up to 300 at once; asks masters to hold sends back (290022); and sends controllers forged registrations "
        "(1003).",
        "M1, M2, S and C: the master and the set follow from the controllers alone.",
    ),
    feature(
        "old disks",
        15,
        "A broker's disk is set back to an image that is 6 s old or older, of an open store or of a killed one. Half of the "
        "time all brokers die then, and the broker with the old image comes back first.",
        "Acknowledged messages are there, and the set becomes whole without an operator.",
        excludes=LOSES,
    ),
    feature(
        "copies",
        20,
        "A copy of a broker's store is started at another address for 6 to 15 s while that broker runs.",
        "B2: while the registered process lives, its copy is not registered and has no role.",
        excludes=frozenset({"unclean"}),
    ),
    feature(
        "lost queues",
        14,
        "Files of consume queues of a dead broker are emptied, cut, deleted, zeroed or overwritten; or a queue's or a topic's "
        "folder is gone.",
        "Q3: once started, the broker lists the records of its log, at the same queue offsets.",
    ),
    feature(
        "bulk",
        2,
        "Stores list all records in bulk, however few there are, and without the compiled module.",
        "All that holds elsewhere.",
    ),
    feature(
        "access",
        10,
        "All servers check signatures and rights. Administrators create, change and revoke users; these ask all brokers, "
        "also with former passwords and without a signature. Masters die, are paused or hand over at a change.",
        "A1: once a revocation was answered, no broker serves that user. A2: a user is never refused what was granted. A3: "
        "while nothing is broken, the master serves. A4: the master has all answered changes, in the end all brokers have "
        "them.",
        excludes=frozenset({"unclean"}),
    ),
)


@dataclass(frozen=True)
class Shape:
    contract: Contract
    played: frozenset[str]
    """Names of FEATURES."""

    @staticmethod
    def of(seed: int, asked: Asked = NOTHING_ASKED) -> Shape:
        """Raises FeatureError."""
        played = FEATURES.of(seed, asked)
        drawn = random.Random(f"{seed}/contract").choice(CONTRACTS)
        others = {"contract A": CONTRACT_A, "contract D": CONTRACT_D}
        return Shape(next((others[name] for name in others if name in played), drawn), played)

    def has(self, name: str) -> bool:
        """Raises KeyError for an unknown feature."""
        if name not in FEATURES:
            raise KeyError(name)
        return name in self.played

    @property
    def may_lose(self) -> bool:
        """Whether an election may lose acknowledged records."""
        return bool(self.played & LOSES)

    @property
    def access(self) -> dict[str, object]:
        """Additional settings of all servers."""
        return SETTINGS if self.has("access") else {}

    def settings(self) -> dict[str, object]:
        """Additional settings of brokers."""
        return {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True} if self.has("record CRCs") else {}
