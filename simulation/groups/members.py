"""The servers of a simulated Raft-mode set: product apps with settings drawn from the seed.

Invariant: product code runs here unchanged; only timers, file sizes and addresses differ from a real set's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from dledger.node import DLedgerNode
from dledger.settings import DLedgerSettings
from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from raftstore.ledgerstore import LedgerStore
from raftstore.member import ledger_settings
from simulation.cluster.dealers import SETTINGS
from simulation.kernel.node import Node

NAMESRV_HOST = "10.0.0.1"
NAMESRV = f"{NAMESRV_HOST}:9876"
HOSTS = ("10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.4", "10.0.2.5")
BROKER_PORT, RAFT_PORT = 10911, 40911
BROKER_SET = "broker-a"
CLIENT_HOST = "10.0.3.1"
FORGER_HOST = "10.0.4.4"
DEALERS_HOST = "10.0.3.2"
FORMER_CLIENT_HOST = "10.0.3.3"
DEALT = 8, 3
"""Of so many seeds this one has producers of messages in transactions."""
NAME_SERVER_MS = 30_000
INDEX_FILE_BYTES = 32 * 256
LAGS = 29, 22
"""Of so many seeds this one has followers that lack what rots at their leader, and any byte of an entry rots."""
OVERTAKEN = 23, 17
"""Of so many seeds this one has followers that stand still for longer than the log is kept."""
SET_BACK = 13, 3, 9
"""Of so many seeds these ones have disks that are set back to earlier images."""
MIXED = 7, 4
"""Of so many seeds this one goes on from a plain log."""
HANDED_ON = 37, 7
"""Of so many seeds this one plays what simulation.groups.handedon says."""
EXPIRES = 31, 12
"""Of so many seeds this one has files go while bits flip in them."""
COPIES = 43, 20
"""Of so many seeds this one has what rots copied, listed anew and cut behind."""
FORGED = 13, 6
"""Of so many seeds this one has somebody who says of its roles what only controllers may say, though it has none."""
FACTS = 5, 3
"""Of so many seeds this one has administrators and clients that lock queues."""


@dataclass(frozen=True)
class Kind:
    """What one seed plays. `kept_s` None: nothing is old enough to go."""

    brokers: int
    segment_bytes: int
    preferred: tuple[str, ...]
    kept_s: int | None
    recent_bytes: int
    push_bytes: int
    pushes: int
    rots: bool
    """Bits flip on disks at the end; the log is scrubbed all the time, and its files are small."""
    has_facts: bool
    """Administrators and clients that consume in order are at work."""
    hands_on: bool
    """Tables go from leader to leader where that is hardest, and members lose their connections, at the end."""
    has_deals: bool
    has_forger: bool
    overtaken: bool
    lags: bool
    """Bits flip as where it `rots`, in any byte, and where a follower needs it."""
    expires: bool
    """Bits flip, in any byte, in files that are about to go."""
    copies: bool
    """Records rot just before they are copied, listed anew or cut behind, at the end; nothing else looks for that."""
    sets_back: bool
    mixed: str
    """Empty: no plain log is before the DLedger log; else one member's is "equal" to the others', "empty" or "different"."""

    @property
    def ids(self) -> list[str]:
        return [f"n{number}" for number in range(self.brokers)]

    @property
    def peers(self) -> str:
        return ";".join(f"{name}-{host}:{RAFT_PORT}" for name, host in zip(self.ids, HOSTS, strict=False))

    @property
    def quorum(self) -> int:
        return self.brokers // 2 + 1


def kind_of(seed: int) -> Kind:
    drawn = random.Random(f"{seed}/group")
    brokers = drawn.choice((3, 3, 3, 5))
    kept_s = drawn.choice((3, 6)) if drawn.random() < 0.4 else None
    prefers = drawn.random() < 0.3
    rots = seed % 11 == 10
    overtaken = seed % OVERTAKEN[0] == OVERTAKEN[1]
    if overtaken:
        brokers, kept_s = 3, 3
    lags = seed % LAGS[0] == LAGS[1]
    if lags:
        kept_s = None
    hands_on = seed % HANDED_ON[0] == HANDED_ON[1]
    if hands_on:
        brokers, kept_s, prefers = 3, None, False
    expires = seed % EXPIRES[0] == EXPIRES[1]
    copies = seed % COPIES[0] == COPIES[1] and not expires
    if expires or copies:
        kept_s = (kept_s or 6) if expires else None
        rots = overtaken = lags = hands_on = False
    is_mixed = seed % MIXED[0] == MIXED[1] and not lags and not overtaken
    is_mixed = is_mixed and not expires and not copies
    rots = rots and not is_mixed
    segment_bytes = 16_384 if kept_s else drawn.choice((16_384, 65_536))
    return Kind(
        brokers=brokers,
        segment_bytes=16_384 if rots or lags or copies else segment_bytes,
        preferred=tuple(sorted(drawn.sample(["n0", "n1", "n2"], drawn.choice((1, 2))))) if prefers else (),
        kept_s=kept_s,
        recent_bytes=10_000 if lags else drawn.choice((10_000, 4 << 20)),
        push_bytes=drawn.choice((8_000, 1 << 20)),
        pushes=drawn.choice((1, 8)),
        rots=rots,
        has_facts=seed % FACTS[0] == FACTS[1] and not hands_on and not expires and not copies,
        hands_on=hands_on,
        has_deals=seed % DEALT[0] == DEALT[1] and not expires and not copies,
        has_forger=seed % FORGED[0] == FORGED[1],
        overtaken=overtaken and not lags,
        lags=lags,
        expires=expires,
        copies=copies,
        sets_back=seed % SET_BACK[0] in SET_BACK[1:]
        and not (rots or lags or expires or copies or is_mixed or overtaken),
        mixed=random.Random(f"{seed}/before").choice(("equal", "empty", "different")) if is_mixed else "",
    )


def namesrv_app(runtime: Runtime) -> NamesrvApp:
    settings = NamesrvSettings.model_validate({"listenPort": 9876, "bindAddress": NAMESRV_HOST})
    return NamesrvApp(settings, runtime)


def broker_app(number: int, kind: Kind, runtime: Runtime) -> BrokerApp:
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
        # a disk that is full for a while takes nothing away, and is felt when it is full
        "cleanFileForciblyEnable": False,
        "diskSpaceWarningLevelRatio": 100,
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


def small_ledger(kind: Kind) -> Callable[..., DLedgerSettings]:
    """Stands in for raftstore.member.ledger_settings: what a member holds in memory, sends at once and indexes in one file is
    little."""

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
    """A broker whose log is open, at one moment; `app` and `raft` go on."""

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
        """And takes messages."""
        return self.app.membership.accepts_sends and self.raft.is_active


def broker_on(node: Node, number: int) -> Look | None:
    """None where none runs, its log is not open yet, or not any more; nor for one without Raft mode."""
    app = node.app
    if not isinstance(app, BrokerApp) or not isinstance(app.store, LedgerStore):
        return None
    log = app.store._member.node  # a look
    look = Look(node.name, number, app, log, (node.name, node.incarnation))
    return look if log.core is not None and look.is_open else None
