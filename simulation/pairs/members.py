"""The servers and the client of a simulated pair: product apps with settings drawn from the seed.

Invariant: product code runs here unchanged. Only timers, file sizes and addresses differ from those of a real pair."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from localcluster.history import Found
from localcluster.load import SteadyLoad, read_back, read_messages
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from simulation.kernel.features import NOTHING_ASKED, Asked, Feature, Features
from simulation.workloads.dealers import SETTINGS

NAMESRV_HOST = "10.0.0.1"
NAMESRV = f"{NAMESRV_HOST}:9876"
BROKER_HOSTS = ("10.0.2.1", "10.0.2.2", "10.0.2.3")
BROKER_PORT = 10911
CLIENT_HOST = "10.0.3.1"
FORGER_HOST = "10.0.4.4"
TOPIC = "pairs"
QUEUES = 3
SEND_TIMEOUT_MS = 2_500
BROKER_SET = "broker-a"


@dataclass(frozen=True)
class PairsKind:
    """The features and sizes of one seed. With `sync` the master waits for a slave."""

    sync: bool
    slaves: int
    segment_bytes: int
    gap_max: int
    flush: str
    ha_heartbeat_ms: int
    played: frozenset[str]
    """Names of FEATURES."""
    has_facts: bool
    """Whether administrators and clients that consume in order are at work."""
    has_deals: bool
    has_delays: bool
    has_forger: bool
    goes_on: bool
    """Whether a master that loses unsynced data keeps leading, with slaves that are emptied."""
    has_retention: bool
    """Whether old segments are deleted."""


FEATURES = Features(
    Feature(
        "lost masters",
        1 / 15,
        "A master dies as slaves copy its offsets of delayed messages, loses its memory, and a slave is promoted.",
        "D1 to D3.",
        frozenset({"SYNC_MASTER", "delayed messages"}),
    ),
    Feature(
        "lost memory",
        1 / 20,
        "A master that loses unsynced data keeps leading, with slaves that are emptied.",
        "Answered messages may be gone; the rest is delivered.",
        frozenset({"delayed messages"}),
        frozenset({"SYNC_MASTER", "facts"}),
    ),
    Feature(
        "SYNC_MASTER",
        0.8,
        "The master waits for a slave; an operator promotes a slave when a master has lost its memory.",
        "P2: a message that was answered OK is at a slave.",
    ),
    Feature(
        "facts",
        1 / 10,
        "Administrators change tables, and clients lock queues.",
        "T1, O1 and O2 of a master's answers, while it is the master: a promoted slave only has its last copy.",
    ),
    Feature(
        "transactions",
        1 / 8,
        "Producers send messages in transactions, as in the cluster.",
        "E1 to E4 of the history that is left in the end; each message that any broker shows a consumer was committed.",
    ),
    Feature(
        "delayed messages",
        1 / 9,
        "A producer sends delayed messages; the log reaches slaves late, and masters die right after deliveries.",
        "D1 to D3 of the history that is left, and all messages that waited in it are delivered.",
    ),
    Feature(
        "forger",
        1 / 10,
        "A host sends forged notifications (1008), though there are no controllers.",
        "No member of a pair believes them.",
    ),
    Feature(
        "retention",
        0.35,
        "Old segments are deleted after seconds, and an operator empties a slave that was left behind.",
        "P5: no segment is deleted that a connected slave has still to read.",
        excludes=frozenset({"lost masters", "lost memory"}),
    ),
)


def kind_of(seed: int, asked: Asked = NOTHING_ASKED) -> PairsKind:
    """Raises FeatureError."""
    played = FEATURES.of(seed, asked)
    drawn = random.Random(f"{seed}/pair")
    flush = drawn.choice(("ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"))
    gap_max = drawn.choice((4_000, 1 << 20))
    return PairsKind(
        played=played,
        sync="SYNC_MASTER" in played,
        slaves=drawn.choice((1, 1, 2)),
        segment_bytes=drawn.choice((16_384, 65_536, 1 << 20)),
        gap_max=1 << 20 if "lost masters" in played else gap_max,
        flush="ASYNC_FLUSH" if "lost memory" in played else flush,
        ha_heartbeat_ms=drawn.choice((500, 5_000)),
        has_facts="facts" in played,
        has_deals="transactions" in played,
        has_delays="delayed messages" in played,
        has_forger="forger" in played,
        goes_on="lost memory" in played,
        has_retention="retention" in played,
    )


def namesrv_app(runtime: Runtime) -> NamesrvApp:
    settings = NamesrvSettings.model_validate({"listenPort": 9876, "bindAddress": NAMESRV_HOST})
    return NamesrvApp(settings, runtime)


def broker_app(
    host: str, broker_id: int, runtime: Runtime, kind: PairsKind, retention: dict[str, object]
) -> BrokerApp:
    """Broker id 0 is the master."""
    role = ("SYNC_MASTER" if kind.sync else "ASYNC_MASTER") if broker_id == 0 else "SLAVE"
    settings = BrokerSettings.model_validate(
        {
            "enableControllerMode": False,
            "brokerRole": role,
            "brokerId": broker_id,
            "brokerIP1": host,
            "bindAddress": host,
            "listenPort": BROKER_PORT,
            "namesrvAddr": NAMESRV,
            "mappedFileSizeCommitLog": kind.segment_bytes,
            "mappedFileSizeConsumeQueue": 2000,
            "maxMessageSize": 4096,
            "flushDiskType": kind.flush,
            "flushIntervalCommitLog": 2_000,
            "syncFlushTimeout": 1_000,
            "haSlaveFallbehindMax": kind.gap_max,
            "haSendHeartbeatInterval": kind.ha_heartbeat_ms,
            "haHousekeepingInterval": 4 * kind.ha_heartbeat_ms,
            "registerNameServerPeriod": 10_000,
            "slaveReadEnable": True,
            **retention,
            **(SETTINGS if kind.has_deals else {}),
            **({"flushConsumerOffsetInterval": 300} if kind.goes_on else {}),
        }
    )
    return BrokerApp(settings, runtime)


async def topic_made(admin: AdminClient, topic: str, queues: int, master_address: Callable[[], str]) -> None:
    """Create the topic on the master, and return once the name server has its route."""
    while True:
        try:
            await admin.create_topic(master_address(), TopicSettings(topic, queues, queues))
            await admin.topic_route(NAMESRV, topic)
            return
        except AdminError:
            await asyncio.sleep(0.2)


class ClientApp:
    """A producer at work until `stop_sending`."""

    def __init__(self, runtime: Runtime, interval_ms: int) -> None:
        self.client = Client(
            NAMESRV, clock=runtime.clock, random=random.Random(runtime.random.getrandbits(32))
        )
        self.load = SteadyLoad(
            self.client.producer("producer"),
            TOPIC,
            queues=QUEUES,
            clock=runtime.clock,
            random=runtime.random,
            interval_ms=interval_ms,
            timeout_ms=SEND_TIMEOUT_MS,
        )
        self.is_ready = False
        self.never_fails: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        admin = AdminClient(self.client.clock)
        await topic_made(admin, TOPIC, QUEUES, lambda: f"{BROKER_HOSTS[0]}:{BROKER_PORT}")
        await admin.close()
        self.load.start()
        self.is_ready = True

    async def stop(self) -> None:
        await self.load.stop()
        await self.client.close()

    async def wait_failed(self) -> BaseException:
        return await self.never_fails

    async def read_everything(self) -> list[Found]:
        """Read each queue from its first to its last readable message. Raises PullFailed."""
        return await read_back(self.client.consumer("judge"), TOPIC)

    async def read_messages(self, topic: str) -> list[StoredMessage]:
        """Read another topic in the same way."""
        return [message async for _, message in read_messages(self.client.consumer("judge"), topic)]
