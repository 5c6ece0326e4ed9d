"""The servers and clients of a simulated cluster: product apps with settings drawn from the seed.

Invariant: product code runs here unchanged. Only timers, file sizes and addresses differ from those of a real cluster."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from localcluster.history import Found, MessagePlace
from localcluster.load import SteadyLoad, body_hash, read_back
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.errors import PullFailed, RouteUnknown
from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.signing import Credentials
from simulation.cluster.contract import Contract
from simulation.workloads.accounts import signer_of
from simulation.workloads.administration import Administration, named_by
from simulation.workloads.delays import GROUP, LATER, UNREADABLE, DelayedWork
from simulation.workloads.facts import Facts

NAMESRV_HOST = "10.0.0.1"
NAMESRV_PORT = 9876
NAMESRV = f"{NAMESRV_HOST}:{NAMESRV_PORT}"
CONTROLLER_HOSTS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
CONTROLLER_PORT = 9878
CONTROLLERS = ";".join(f"{host}:{CONTROLLER_PORT}" for host in CONTROLLER_HOSTS)
PEERS = ";".join(f"n{number}-{host}:{CONTROLLER_PORT}" for number, host in enumerate(CONTROLLER_HOSTS))
BROKER_HOSTS = ("10.0.2.1", "10.0.2.2", "10.0.2.3")
LEARNER_HOST = "10.0.2.9"
BROKER_PORT = 10911
BROKER_SET = "broker-a"
CLIENT_HOST = "10.0.3.1"
COPY_HOST = "10.0.2.7"
STRANGER_HOST = "10.0.4.1"
HOSTILE_HOST = "10.0.4.2"
HOSTILE_TABLES_HOST = "10.0.4.3"
FORGER_HOST = "10.0.4.4"
FLOODS_HOST = "10.0.4.5"
OPERATOR_HOST = "10.0.5.1"
RESYNC_HOST = "10.0.5.2"
LOST_FOR_GOOD_HOST = "10.0.5.3"
READERS_HOST = "10.0.5.4"
TRANSACTIONS_HOST = "10.0.5.5"
CHOOSERS_HOST = "10.0.5.6"
HANDLERS_HOST = "10.0.5.7"
COMMITTERS_HOST = "10.0.5.8"
MEMBER_HOSTS = ("10.0.6.1", "10.0.6.2", "10.0.6.3", "10.0.6.4")
TOPIC = "facts"
QUEUES = 3
QUEUES_OF = {TOPIC: QUEUES, LATER: 1}
SEND_TIMEOUT_MS = 1500
SLAVE_SYNC_MS = 5000
BURST_IN_FLIGHT = 200


@dataclass(frozen=True)
class Timers:
    """Timers of one seed: upstream's defaults, or all timers scaled down, so that one run has more role changes."""

    broker_heartbeat_ms: int = 1000
    broker_dead_ms: int = 10_000
    not_caught_up_ms: int = 15_000
    ha_heartbeat_ms: int = 5000
    ha_silence_ms: int = 20_000
    metadata_poll_ms: int = 5000
    name_server_ms: int = 30_000


FAST = Timers(1000, 3000, 4000, 1500, 6000, 2000, 10_000)


def namesrv_app(runtime: Runtime, access: dict[str, object]) -> NamesrvApp:
    settings = NamesrvSettings.model_validate(
        {"listenPort": NAMESRV_PORT, "bindAddress": NAMESRV_HOST, **access}
    )
    return NamesrvApp(settings, runtime)


def controller_app(
    number: int, runtime: Runtime, raft_slowness: int, *, unclean: bool, access: dict[str, object]
) -> ControllerApp:
    """`raft_slowness` multiplies heartbeat interval and election timeouts; `unclean` switches unclean elections on."""
    settings = ControllerSettings.model_validate(
        {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": PEERS,
            "controllerDLegerSelfId": f"n{number}",
            "mappedFileSize": 1 << 20,
            "enableElectUncleanMaster": unclean,
            **access,
        }
    )
    app = ControllerApp(settings, runtime)
    raft = app.node.settings
    app.node.settings = replace(
        raft,
        heartbeat_interval_ms=raft.heartbeat_interval_ms * raft_slowness,
        election_timeout_min_ms=raft.election_timeout_min_ms * raft_slowness,
        election_timeout_max_ms=raft.election_timeout_max_ms * raft_slowness,
    )
    return app


def broker_app(
    host: str,
    runtime: Runtime,
    timers: Timers,
    segment_bytes: int,
    contract: Contract,
    besides: dict[str, object],
) -> BrokerApp:
    settings = BrokerSettings.model_validate(
        {
            "brokerName": BROKER_SET,
            "brokerIP1": host,
            "bindAddress": host,
            "listenPort": BROKER_PORT,
            "namesrvAddr": NAMESRV,
            "controllerAddr": CONTROLLERS,
            "mappedFileSizeCommitLog": segment_bytes,
            "mappedFileSizeConsumeQueue": 2000,
            "maxMessageSize": 4096,
            "allAckInSyncStateSet": contract.waits,
            "allFlushInSyncStateSet": contract.on_disk,
            "minInSyncReplicas": contract.members_min,
            "flushDiskType": contract.flush,
            "defaultTopicQueueNums": QUEUES,
            "asyncLearner": host == LEARNER_HOST,
            "slaveTimeout": 1000,
            "slaveSyncInterval": SLAVE_SYNC_MS,
            "brokerHeartbeatInterval": timers.broker_heartbeat_ms,
            "controllerHeartBeatTimeoutMills": timers.broker_dead_ms,
            "haMaxTimeSlaveNotCatchup": timers.not_caught_up_ms,
            "haSendHeartbeatInterval": timers.ha_heartbeat_ms,
            "haHousekeepingInterval": timers.ha_silence_ms,
            "syncBrokerMetadataPeriod": timers.metadata_poll_ms,
            "registerNameServerPeriod": timers.name_server_ms,
            # a disk that fills for a while causes no deletion, and matters only once it is full
            "cleanFileForciblyEnable": False,
            "diskSpaceWarningLevelRatio": 100,
            **besides,
        }
    )
    return BrokerApp(settings, runtime)


@dataclass
class ReaderNotes:
    """The first message that a consumer got at each place: (queue, offset) -> message."""

    seen: dict[MessagePlace, Found] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def note(self, found: Found) -> None:
        before = self.seen.setdefault(found.place, found)
        if before != found:
            self.contradictions.append(f"{found.place} held {before.message_id}, later {found.message_id}")


class ClientApp:
    """A producer, a consumer and a few delayed messages. They work until `stop_sending`."""

    def __init__(
        self,
        runtime: Runtime,
        interval_ms: int,
        notes: ReaderNotes,
        facts: Facts,
        credentials: Credentials | None,
    ) -> None:
        self.client = Client(
            NAMESRV,
            clock=runtime.clock,
            random=random.Random(runtime.random.getrandbits(32)),
            credentials=credentials,
        )
        self.signer = signer_of(credentials)
        self.load = SteadyLoad(
            self.client.producer("producer"),
            TOPIC,
            queues=QUEUES,
            clock=runtime.clock,
            random=runtime.random,
            interval_ms=interval_ms,
            timeout_ms=SEND_TIMEOUT_MS,
        )
        self.delayed = DelayedWork(self.client, runtime.random, SEND_TIMEOUT_MS)
        self.administration = Administration(
            self.client,
            facts,
            random.Random(runtime.random.getrandbits(32)),
            find_master=named_by(CONTROLLERS, BROKER_SET),
            topic=TOPIC,
            signer=self.signer,
        )
        self.notes = notes
        self.next_offset: dict[str, int] = {}
        """The offset where the reader continues, by queue."""
        self.reading: asyncio.Task[None] | None = None
        self.bursting = asyncio.Lock()
        self.never_fails: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        for topic, queues in QUEUES_OF.items():
            await self.create_topic(topic, queues)
        self.load.start()
        self.delayed.start()
        self.administration.start()
        self.reading = asyncio.get_running_loop().create_task(self.read(), name="reader")

    async def stop(self) -> None:
        await self.stop_sending()
        await self.client.close()

    async def wait_failed(self) -> BaseException:
        return await self.never_fails

    async def burst(self, count: int) -> None:
        """Send `count` messages as fast as answers come, after the messages of an earlier burst."""
        async with self.bursting:
            await self.load.send_burst(count, in_flight=BURST_IN_FLIGHT, progress=lambda ended: None)

    async def stop_sending(self) -> None:
        async with self.bursting:
            await self.load.stop()
        await self.delayed.stop()
        await self.administration.stop()
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait([self.reading])
            self.reading = None

    async def create_lost_topics(self) -> None:
        """Create a topic of the client's sends again if it is gone, or if it has fewer queues than before. A topic with more
        queues stays."""
        admin = AdminClient(self.client.clock, signer=self.signer)
        for topic, queues in QUEUES_OF.items():
            try:
                routed = (await admin.topic_route(NAMESRV, topic))["queueDatas"][0]
            except AdminError:
                routed = {"readQueueNums": 0, "writeQueueNums": 0}
            if routed["writeQueueNums"] < queues:
                await self.create_topic(topic, max(queues, routed["readQueueNums"]))
        await admin.close()

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create the topic on the master, and return once the name server has its route."""
        admin = AdminClient(self.client.clock, signer=self.signer)
        while True:
            try:
                state = (await admin.sync_states(CONTROLLERS, [BROKER_SET]))[BROKER_SET]
                await admin.create_topic(state.master_address or "", TopicSettings(topic, queues, queues))
                await admin.topic_route(NAMESRV, topic)
                break
            except (AdminError, KeyError):
                await asyncio.sleep(0.2)
        await admin.close()

    async def read(self) -> None:
        """Poll every queue in turn, as a consumer that follows the log does."""
        consumer = self.client.consumer(GROUP)
        next_offset = self.next_offset
        while True:
            await asyncio.sleep(1.5)
            try:
                queues = [queue for topic in (TOPIC, LATER) for queue in await consumer.queues(topic)]
                for queue in queues:
                    result = await consumer.pull(queue, next_offset.get(str(queue), 0))
                    if not result.messages and result.next_offset > next_offset.get(str(queue), 0):
                        next_offset[str(queue)] = result.next_offset  # retention has moved the beginning
                    for message in result.messages:
                        place = MessagePlace(str(queue), message.queue_offset)
                        key = message.properties.get("KEYS", "")
                        first_read = place not in self.notes.seen
                        self.notes.note(Found(key, body_hash(message.plain_body()), place))
                        next_offset[str(queue)] = message.queue_offset + 1
                        if message.topic == TOPIC and first_read:  # no message is handed back twice
                            self.delayed.newest = message
            except PullFailed as failure:
                if UNREADABLE in str(failure):
                    self.notes.contradictions.append(str(failure))
            except RouteUnknown:
                continue

    def read_again(self) -> None:
        """The reader begins again in every queue."""
        self.next_offset.clear()

    async def finds_master(self) -> None:
        """Return once the client's route of every topic names the master. Topics without a route are left out. The client may
        know old routes, because it has requested nothing since the load ended."""
        for topic in (TOPIC, *self.delayed.attempts):
            while True:
                self.client.routes.renew(topic)
                await asyncio.sleep(0.5)
                try:
                    route = await self.client.routes.get(topic)
                except RouteUnknown:
                    break
                if route.master(BROKER_SET) is not None:
                    break

    async def read_everything(self) -> list[Found]:
        """Read each queue of TOPIC from its first to its last readable message. Raises PullFailed if a second try fails too.
        The first may fail because a connection still leads to a former process of the broker."""
        consumer = self.client.consumer("judge")
        try:
            read = await read_back(consumer, TOPIC)
        except PullFailed:
            read = await read_back(consumer, TOPIC)
        for message in read:
            self.notes.note(message)
        return read
