"""The cost of existing topics and groups for a broker set of three brokers at contract C, with everything on this machine.

Invariant: one change at a time is timed until every member of the set has it. Sends are compared with those in the same run on
the same brokers before the first topic was created."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from localcluster.cluster import Cluster
from mqadmin.admin import AdminClient
from mqadmin.replies import TopicSettings
from mqclient.route import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC
from mqruntime.clock import SystemClock
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.bodies.topics import TopicConfig, TopicConfigList
from remoting.codes import RequestCode
from remoting.headers.send import SendMessageHeader
from scripts.bench.lightclient import Sends, load
from scripts.bench.measured import machine, own_mib
from scripts.bench.sampledbroker import begin_sampling, end_sampling
from scripts.bench.servers import Servers
from scripts.bench.sides import Side, cluster_of
from scripts.bench.turnbroker import longest_turn_ms

QUEUES, BODY = 8, 1024
CHANGES = 30
AT_ONCE = 100
"""Topics in one request while the topics are created."""
IN_FLIGHT = 8
LOADED = "loaded"
T = TypeVar("T")
SIDE = Side("ours C", "C", "scripts.bench.turnbroker")


@dataclass(frozen=True)
class GrowthRow:
    """The figures of brokers with that many topics and as many groups."""

    topics: int
    topic_ms: list[float]
    group_ms: list[float]
    sends: float
    sends_beside_changes: float
    longest_ms: float
    slave_longest_ms: float
    mib: float
    start_s: float


class Growth:
    def __init__(self, cluster: Cluster, seconds: float, *, written: bool, profile: bool) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._written = written
        self._profile = profile
        self._made = 0
        self._master = ""

    async def _with_admin(self, do: Callable[[AdminClient, str], Awaitable[T]]) -> T:
        admin = AdminClient(SystemClock())
        try:
            return await do(admin, self._master)
        finally:
            await admin.close()

    def find_master(self) -> Servers:
        servers = Servers(self._cluster)
        self._master = servers.address
        return servers

    def bring_to(self, count: int) -> None:
        """Create topics and groups up to that many."""
        self.find_master()
        asyncio.run(self._with_admin(lambda admin, master: self._bring_to(admin, master, count)))

    async def _bring_to(self, admin: AdminClient, master: str, count: int) -> None:
        while self._made < count:
            numbers = range(self._made, min(count, self._made + AT_ONCE))
            topics = TopicConfigList([TopicConfig(f"topic-{n:06d}", QUEUES, QUEUES) for n in numbers])
            groups = SubscriptionGroupList([SubscriptionGroupConfig(f"group-{n:06d}") for n in numbers])
            await admin.ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=topics.encode())
            await admin.ask(
                master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=groups.encode()
            )
            self._made = numbers.stop
            if self._written:
                sent = [
                    send_one(admin, master, topic.topic_name, queue)
                    for topic in topics.topic_config_list
                    for queue in range(QUEUES)
                ]
                await asyncio.gather(*sent)

    async def _changes(self, admin: AdminClient, master: str) -> tuple[list[float], list[float]]:
        topic_ms, group_ms = [], []
        for number in range(CHANGES):
            name = f"single-{self._made}-{number}"
            began = time.perf_counter()
            await admin.create_topic(master, TopicSettings(name, QUEUES, QUEUES))
            topic_ms.append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            body = SubscriptionGroupConfig(name).encode()
            await admin.ask(master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            group_ms.append(1000 * (time.perf_counter() - began))
        return topic_ms, group_ms

    async def _sends_beside_changes(self, admin: AdminClient, master: str) -> float:
        sending = asyncio.create_task(asyncio.to_thread(self._sends, master))
        number = 0
        while not sending.done():
            await admin.create_topic(master, TopicSettings(f"beside-{self._made}-{number}", QUEUES, QUEUES))
            number += 1
            await asyncio.sleep(0.1)
        return await sending

    def _sends(self, master: str) -> float:
        outcome = load(master, Sends(LOADED, QUEUES, BODY), IN_FLIGHT, self._seconds)
        return outcome.messages / outcome.seconds

    def row(self) -> GrowthRow:
        servers = self.find_master()
        pids = {name: servers.pid(name) for name in (servers.master, *servers.slaves)}
        for name, pid in pids.items():
            longest_turn_ms(pid, servers.log(name))
        if self._profile:
            begin_sampling(pids[servers.master])
        topic_ms, group_ms = asyncio.run(self._with_admin(self._changes))
        if self._profile:
            print("changes\n" + end_sampling(pids[servers.master], servers.log(servers.master)))
            begin_sampling(pids[servers.master])
        sends = self._sends(servers.address)
        if self._profile:
            print("sends\n" + end_sampling(pids[servers.master], servers.log(servers.master)))
        beside = asyncio.run(self._with_admin(self._sends_beside_changes))
        servers.settle()
        longest = {name: longest_turn_ms(pid, servers.log(name)) for name, pid in pids.items()}
        mib = max(own_mib(pid) for pid in pids.values())
        start_s = self._start_after_kill(servers)
        slaves = max(longest[name] for name in servers.slaves)
        return GrowthRow(
            self._made, topic_ms, group_ms, sends, beside, longest[servers.master], slaves, mib, start_s
        )

    def _start_after_kill(self, servers: Servers) -> float:
        """The time of a slave's start until it answers."""
        name = servers.slaves[0]
        self._cluster.kill([name])
        began = time.perf_counter()
        self._cluster.start([name])
        asyncio.run(answers(self._cluster.layout.address(name)))
        took = time.perf_counter() - began
        asyncio.run(self._cluster.wait_whole())
        return took


async def send_one(admin: AdminClient, master: str, topic: str, queue_id: int) -> None:
    header = SendMessageHeader(
        producer_group="bench",
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=AUTO_CREATE_QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="",
    )
    await admin.ask(master, RequestCode.SEND_MESSAGE_V2, header.to_short_ext(), body=bytes(BODY))


async def answers(address: str) -> None:
    """Wait until the server at `address` answers requests."""
    from mqadmin.errors import AdminError

    admin = AdminClient(SystemClock())
    try:
        while True:
            try:
                await admin.knows_topic(address, LOADED)
            except AdminError:
                await asyncio.sleep(0.02)
            else:
                return
    finally:
        await admin.close()


def measure(counts: list[int], seconds: float, *, written: bool, profile: bool) -> None:
    print(machine())
    with cluster_of(SIDE) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole())
        asyncio.run(cluster.create_topic(LOADED, QUEUES))
        growth = Growth(cluster, seconds, written=written, profile=profile)
        first: GrowthRow | None = None
        print(
            "| topics, groups | ms a topic: median, max | ms a group | sends/s | of the first | beside changes |"
        )
        for count in counts:
            growth.bring_to(count)
            row = growth.row()
            first = first or row
            print(
                f"| {row.topics:,} | {statistics.median(row.topic_ms):.1f}, {max(row.topic_ms):.1f} | "
                f"{statistics.median(row.group_ms):.1f}, {max(row.group_ms):.1f} | {row.sends:,.0f} | "
                f"{row.sends / first.sends:.0%} | {row.sends_beside_changes:,.0f} | longest turn "
                f"{row.longest_ms:.1f}, slave {row.slave_longest_ms:.1f} ms | {row.mib:.0f} MiB | "
                f"start {row.start_s:.2f} s |",
                flush=True,
            )
    print(machine())
