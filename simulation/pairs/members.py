"""The servers and the client of a simulated pair: product apps with settings drawn from the seed.

Invariant: product code runs here unchanged; only timers, file sizes and addresses differ from a real pair's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from localcluster.history import Found
from localcluster.load import Load, read_back, read_messages
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from simulation.cluster.dealers import SETTINGS

NAMESRV_HOST = "10.0.0.1"
NAMESRV = f"{NAMESRV_HOST}:9876"
BROKER_HOSTS = ("10.0.2.1", "10.0.2.2", "10.0.2.3")
BROKER_PORT = 10911
CLIENT_HOST = "10.0.3.1"
FORGER_HOST = "10.0.4.4"
TOPIC = "pairs"
QUEUES = 3
SEND_TIMEOUT_MS = 2_500
FACTS = 10, 7
"""Of so many seeds this one has administrators and clients that lock queues."""
DEALT = 8, 5
"""Of so many this one has producers of messages in transactions."""
DELAYED = 9, 4
"""Of so many this one has a producer of delayed messages."""
LOSES_MASTERS = 18, 4
"""Of those, in these a slave takes the place of a master that loses its memory."""
GOES_ON = 36, 31
"""Of those, in these the master that loses its memory leads on, but where administrators are at work."""
FORGED = 11, 3
"""Of so many this one has somebody who says of its roles what only controllers may say, though it has none."""
BROKER_SET = "broker-a"


@dataclass(frozen=True)
class Kind:
    """What one seed plays; the master waits for a slave where it is `sync`."""

    sync: bool
    slaves: int
    segment_bytes: int
    gap_max: int
    flush: str
    ha_heartbeat_ms: int
    has_facts: bool
    """Administrators and clients that consume in order are at work."""
    has_deals: bool
    has_delays: bool
    has_forger: bool
    goes_on: bool
    """A master that loses what it has not synced leads on, with slaves that are emptied."""
    keeps: bool | None
    """Whether the log is kept; None is for the seed to say."""


def kind_of(seed: int) -> Kind:
    drawn = random.Random(f"{seed}/pair")
    kind = Kind(
        sync=drawn.random() < 0.8,
        slaves=drawn.choice((1, 1, 2)),
        segment_bytes=drawn.choice((16_384, 65_536, 1 << 20)),
        gap_max=drawn.choice((4_000, 1 << 20)),
        flush=drawn.choice(("ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH")),
        ha_heartbeat_ms=drawn.choice((500, 5_000)),
        has_facts=seed % FACTS[0] == FACTS[1],
        has_deals=seed % DEALT[0] == DEALT[1],
        has_delays=seed % DELAYED[0] == DELAYED[1],
        has_forger=seed % FORGED[0] == FORGED[1],
        goes_on=False,
        keeps=None,
    )
    if seed % LOSES_MASTERS[0] == LOSES_MASTERS[1]:
        return replace(kind, sync=True, gap_max=1 << 20, keeps=True)
    if seed % GOES_ON[0] == GOES_ON[1] and not kind.has_facts:
        return replace(kind, sync=False, flush="ASYNC_FLUSH", goes_on=True, keeps=True)
    return kind


def namesrv_app(runtime: Runtime) -> NamesrvApp:
    settings = NamesrvSettings.model_validate({"listenPort": 9876, "bindAddress": NAMESRV_HOST})
    return NamesrvApp(settings, runtime)


def broker_app(
    host: str, broker_id: int, runtime: Runtime, kind: Kind, retention: dict[str, object]
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
    """On the master, until the name server routes it."""
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
        self.load = Load(
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
        """Each queue from its first to its last readable message. Raises PullFailed."""
        return await read_back(self.client.consumer("judge"), TOPIC)

    async def read_messages(self, topic: str) -> list[StoredMessage]:
        """The same of another topic."""
        return [message async for _, message in read_messages(self.client.consumer("judge"), topic)]
