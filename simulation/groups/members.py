"""The servers of a simulated Raft-mode set: product apps with settings drawn from the seed.

Invariant: product code runs here unchanged. Only timers, file sizes and addresses differ from those of a real set."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from dledger.node.node import DLedgerNode
from dledger.raft.settings import DLedgerSettings
from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from raftstore.ledgerstore import LedgerStore
from raftstore.member import ledger_settings
from remoting.signing import Credentials
from simulation.kernel.features import NOTHING_ASKED, Asked, Feature, Features
from simulation.kernel.node import Node
from simulation.workloads.accounts import OPERATOR
from simulation.workloads.accounts import SETTINGS as ACCESS
from simulation.workloads.dealers import SETTINGS

NAMESRV_HOST = "10.0.0.1"
NAMESRV = f"{NAMESRV_HOST}:9876"
HOSTS = ("10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.4", "10.0.2.5")
BROKER_PORT, RAFT_PORT = 10911, 40911
BROKER_SET = "broker-a"
CLIENT_HOST = "10.0.3.1"
FORGER_HOST = "10.0.4.4"
DEALERS_HOST = "10.0.3.2"
FORMER_CLIENT_HOST = "10.0.3.3"
NAME_SERVER_MS = 30_000
INDEX_FILE_BYTES = 32 * 256
ROTS = frozenset({"rot", "rot where a follower needs it", "rot that expires", "rot that is copied"})
"""Features whose checks allow nothing else to remove entries."""
ALONE = frozenset({"rot that expires", "rot that is copied"})

FEATURES = Features(
    Feature(
        "rot that expires",
        1 / 31,
        "Bits flip in files that are about to go, in any byte, often of the first or last entry of a file.",
        "G8: the record is repaired, or was deleted with its file. G11: old files are deleted despite the damage. G12: "
        "where a log begins, its first entry continues from the kept check value. P5.",
        frozenset({"retention"}),
    ),
    Feature(
        "rot that is copied",
        1 / 43,
        "Bits flip in records just before they are copied, listed again or truncated behind.",
        "G10: a message that is delivered late, committed or sent back is the one that was sent; queues list the committed "
        "messages; a log is truncated behind a proven entry, or its member reports that it is to be emptied.",
        excludes=frozenset({"rot that expires", "retention"}),
    ),
    Feature(
        "rot where a follower needs it",
        1 / 29,
        "Bits flip in any byte of an entry, also of an entry that a follower is missing at that moment.",
        "G9: the leader keeps leading, and the follower gets the entry.",
        excludes=ALONE | {"retention"},
    ),
    Feature(
        "overtaken",
        1 / 20,
        "Followers are paused for longer than the log is kept, and get another member's log while they dispatch.",
        "G1.",
        frozenset({"retention"}),
        ROTS - {"rot"},
    ),
    Feature(
        "handed on",
        1 / 25,
        "Once all is whole, leaders change when it is hardest to hand on tables: a former leader that receives no Raft "
        "message still sends copies, the member with the newest tables restarts while another has older tables, or a lease "
        "is old when its leader dies. Members lose their connections five times in a row.",
        "T1, O1 and N2.",
        excludes=ALONE | {"overtaken", "retention", "preferred"},
    ),
    Feature(
        "plain log before",
        1 / 7,
        "The set begins with a plain log: all members have it, one member does not have it, or one member is missing its "
        "end.",
        "O1: each record of the plain log stays on each disk, in queues and for readers. O2: the plain log is deleted in "
        "whole files that are old enough. O3: no member leads while a member has another log.",
        excludes=ROTS - {"rot"} | {"overtaken"},
    ),
    Feature(
        "rot",
        1 / 11,
        "Once all is whole, bits flip on one disk after the other, but not in the last two entries that a checkpoint has "
        "sealed. Members die meanwhile. The log is scrubbed.",
        "G8: the record is there again, on disk, as it was written.",
        excludes=ROTS - {"rot"} | {"plain log before"},
    ),
    Feature(
        "old disks",
        1 / 6,
        "A disk is set back to an earlier image, and its broker comes back first.",
        "G1.",
        excludes=ROTS | {"plain log before", "overtaken"},
    ),
    Feature("retention", 0.4, "Old files are deleted after seconds.", "P5: deleted files are old enough."),
    Feature(
        "preferred", 0.3, "One or two members are preferred leaders.", "G6: one of them leads in the end."
    ),
    Feature(
        "transactions",
        1 / 8,
        "Producers send messages in transactions, as in the cluster.",
        "E1 to E4, and E6: no member's table is past a half message that the log does not name as done, because a later "
        "master may have an older table.",
        excludes=ALONE,
    ),
    Feature(
        "facts",
        1 / 5,
        "Administrators change tables, and clients lock queues.",
        "T1: the leader of the newest term has all changes that administrators got an answer to, also deletions. T2: in the "
        "end all members have them. O1 and O2 of locks, as in the cluster.",
        excludes=ALONE | {"handed on"},
    ),
    Feature(
        "forger",
        1 / 10,
        "A host sends forged notifications (1008), though there are no controllers.",
        "G2: the roles follow from Raft alone.",
    ),
    Feature(
        "five brokers",
        1 / 4,
        "There are five members instead of three.",
        excludes=frozenset({"overtaken", "handed on"}),
    ),
    Feature(
        "access",
        1 / 8,
        "All servers check signatures and rights. Administrators create, change and revoke users; these ask all members, as "
        "in the cluster.",
        "A1 to A4, as in the cluster.",
    ),
)


@dataclass(frozen=True)
class GroupsKind:
    """The features and sizes of one seed. If `kept_s` is None, files are never old enough to be deleted."""

    played: frozenset[str]
    """Names of FEATURES."""
    brokers: int
    segment_bytes: int
    preferred: tuple[str, ...]
    kept_s: int | None
    recent_bytes: int
    push_bytes: int
    pushes: int
    rots: bool
    """Whether bits flip on disks at the end. The log is then scrubbed all the time, and its files are small."""
    has_facts: bool
    """Whether administrators and clients that consume in order are at work."""
    hands_on: bool
    """Whether, at the end, the most difficult cases of passing tables to the next leader are played, and members lose
    connections."""
    has_deals: bool
    has_forger: bool
    overtaken: bool
    lags: bool
    """Whether bits flip as with `rots`, but in any byte, and in entries that a follower needs."""
    expires: bool
    """Whether bits flip, in any byte, in files that are about to be deleted."""
    copies: bool
    """Whether, at the end, bits flip in records just before they are copied, listed again, or the log is truncated behind
    them. Nothing else reads these records."""
    sets_back: bool
    mixed: str
    """Empty if there is no plain log before the DLedger log. Else one member's plain log is "equal" to the others', "empty" or
    "different"."""
    is_guarded: bool
    """Whether servers check signatures and rights."""

    @property
    def credentials(self) -> Credentials | None:
        """Those of all clients, if there is access control."""
        return OPERATOR if self.is_guarded else None

    @property
    def access(self) -> dict[str, object]:
        """Additional settings of all servers."""
        return ACCESS if self.is_guarded else {}

    @property
    def ids(self) -> list[str]:
        return [f"n{number}" for number in range(self.brokers)]

    @property
    def peers(self) -> str:
        return ";".join(f"{name}-{host}:{RAFT_PORT}" for name, host in zip(self.ids, HOSTS, strict=False))

    @property
    def quorum(self) -> int:
        return self.brokers // 2 + 1


def kind_of(seed: int, asked: Asked = NOTHING_ASKED) -> GroupsKind:
    """Raises FeatureError."""
    played = FEATURES.of(seed, asked)
    drawn = random.Random(f"{seed}/group")
    kept_s = drawn.choice((3, 6)) if "retention" in played else None
    if "overtaken" in played:
        kept_s = 3
    rots = "rot" in played
    lags = "rot where a follower needs it" in played
    copies = "rot that is copied" in played
    segment_bytes = 16_384 if kept_s or rots or lags or copies else drawn.choice((16_384, 65_536))
    preferred = tuple(sorted(drawn.sample(["n0", "n1", "n2"], drawn.choice((1, 2)))))
    return GroupsKind(
        played=played,
        brokers=5 if "five brokers" in played else 3,
        segment_bytes=segment_bytes,
        preferred=preferred if "preferred" in played else (),
        kept_s=kept_s,
        recent_bytes=10_000 if lags else drawn.choice((10_000, 4 << 20)),
        push_bytes=drawn.choice((8_000, 1 << 20)),
        pushes=drawn.choice((1, 8)),
        rots=rots,
        has_facts="facts" in played,
        hands_on="handed on" in played,
        has_deals="transactions" in played,
        has_forger="forger" in played,
        overtaken="overtaken" in played,
        lags=lags,
        expires="rot that expires" in played,
        copies=copies,
        sets_back="old disks" in played,
        mixed=drawn.choice(("equal", "empty", "different")) if "plain log before" in played else "",
        is_guarded="access" in played,
    )


def namesrv_app(runtime: Runtime, access: dict[str, object]) -> NamesrvApp:
    settings = NamesrvSettings.model_validate({"listenPort": 9876, "bindAddress": NAMESRV_HOST, **access})
    return NamesrvApp(settings, runtime)


def broker_app(number: int, kind: GroupsKind, runtime: Runtime) -> BrokerApp:
    settings: dict[str, object] = {
        "brokerName": BROKER_SET,
        "enableDLegerCommitLog": True,
        "dLegerGroup": BROKER_SET,
        "dLegerPeers": kind.peers,
        "dLegerSelfId": f"n{number}",
        "preferredLeaderIds": ";".join(kind.preferred),
        "brokerIP1": HOSTS[number],
        "bindAddress": HOSTS[number],
        "listenPort": BROKER_PORT,
        "namesrvAddr": NAMESRV,
        "mappedFileSizeCommitLog": kind.segment_bytes,
        "mappedFileSizeConsumeQueue": 2000,
        "maxMessageSize": 4096,
        "syncFlushTimeout": 1_500,
        "slaveSyncInterval": 5_000,
        "registerNameServerPeriod": NAME_SERVER_MS,
        # a disk that fills for a while causes no deletion, and matters only once it is full
        "cleanFileForciblyEnable": False,
        "diskSpaceWarningLevelRatio": 100,
        **kind.access,
    }
    if kind.kept_s is not None:
        settings |= {
            "fileReservedSeconds": kind.kept_s,
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": 500,
            "slaveCatchupReserveBytes": 40_000,
        }
    if kind.rots or kind.lags or kind.expires:
        settings |= {"scrubInterval": 1_000}
    if kind.has_deals:
        settings |= SETTINGS
    return BrokerApp(BrokerSettings.model_validate(settings), runtime)


def small_ledger(kind: GroupsKind) -> Callable[..., DLedgerSettings]:
    """Replaces raftstore.member.ledger_settings. A member holds little in memory, sends little at once and indexes little in
    one file."""

    def smaller(*store: Any, **besides: Any) -> DLedgerSettings:
        return replace(
            ledger_settings(*store, **besides),
            index_file_bytes=INDEX_FILE_BYTES,
            recent_bytes_max=kind.recent_bytes,
            push_bytes_max=kind.push_bytes,
            pushes_in_flight_max=kind.pushes,
        )

    return smaller


@dataclass(frozen=True)
class Look:
    """A broker whose log is open, at one moment. `app` and `raft` are the live objects."""

    name: str
    number: int
    app: BrokerApp
    raft: DLedgerNode

    key: tuple[str, int]

    @property
    def is_open(self) -> bool:
        return not self.app.store.is_on_disk and not self.raft._closed

    @property
    def leads(self) -> bool:
        """Whether the broker leads and takes messages."""
        return self.app.membership.accepts_sends and self.raft.is_active

    @property
    def votes(self) -> bool:
        """Whether the broker votes: its disk was neither lost nor set back, or a leader has caught it up since."""
        return self.raft.core is not None and not self.raft.core.rejoin.newcomer


def broker_on(node: Node, number: int) -> Look | None:
    """The broker on the node. None if no broker runs, its log is not open, or it is not in Raft mode."""
    app = node.app
    if not isinstance(app, BrokerApp) or not isinstance(app.store, LedgerStore):
        return None
    log = app.store._member.node  # a look
    look = Look(node.name, number, app, log, (node.name, node.incarnation))
    return look if log.core is not None and look.is_open else None
