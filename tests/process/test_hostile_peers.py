"""Hostile peers send malformed requests to every port of a real cluster while a client sends and reads.

No acknowledged message is lost, no process ends, no role changes, and all resources are released
afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.history import judge
from localcluster.layout import BROKER_SET, CLUSTER_NAME, CONTROLLER_GROUP, Mode
from localcluster.load import SteadyLoad, read_back, read_messages
from localcluster.peers import owner_of
from localcluster.secured import admin_of, context_of, credentials_of
from localcluster.waiting import NotYet, wait_for
from mqadmin.calls.access import create_user
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.consumer import PullConsumer
from mqclient.message import SYS_FLAG_COMPRESSED
from mqruntime.clock import SystemClock
from remoting.bodies.access import UserInfo
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageHeader
from remoting.signing import Credentials, Signer
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from simulation.hostile import frames, links, members, requests, roles
from tests.process.hostilepeer import HostilePeer
from tests.process.pagesport import pages_port

TOPIC, STRANGE_TOPIC = "Orders", "Strange"
REAL = {"topic": STRANGE_TOPIC, "b": STRANGE_TOPIC}
CODES = sorted({*map(int, RequestCode), -5, 999, 40_000} - requests.CHANGE_MUCH)
IDLE, IDLE_TLS = 2_000, 200
"""Connections that say nothing. The allocator keeps the memory of ended TLS connections for the next ones."""
LISTEN = "0A"
"""In the tables of the kernel."""
ELECTIONS_MAX = 20
GROWTH_MIB, OPEN_MORE = 48, 12
SHOWN = ("broker-0", "controller-0")
"""Servers with pages for metrics and probes."""
NO_PERMISSION = ResponseCode.NO_PERMISSION
GUEST = Credentials("guest", "guest-password")
FOR_ALL_USERS = {
    RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.END_TRANSACTION,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
}  # fmt: skip
"""Brokers accept them if they name nothing that needs a right: a heartbeat without consumers, an empty list."""
FAILED = re.compile(r"Traceback|handler failed|never retrieved|was destroyed|page not made")
HTTP = {
    "traversal": b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
    "encoded traversal": b"GET /%2e%2e/%00 HTTP/1.1\r\n\r\n",
    "post": b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    "headers without end": b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2_000,
    "half a request": b"GET /metr",
    "a long target": b"GET /" + b"x" * 7_000 + b" HTTP/1.1\r\n\r\n",
}


def test_a_controller_mode_cluster_survives_hostile_peers(tmp_path: Path) -> None:
    with Cluster.create(
        tmp_path / "cluster",
        brokers=2,
        broker_settings=NOBODY_IS_LATE,
        controller_settings={"enableElectUncleanMaster": "false"},
    ) as cluster:
        for name in SHOWN:
            conf = cluster.directory / f"{name}.conf"
            pages = f"metricsExporterType=PROM\nmetricsPromExporterPort={pages_port(cluster, name)}\n"
            conf.write_text(conf.read_text() + pages)
        cluster.start()
        attacks = [
            strange_requests, strange_members, strange_roles, strange_pages, strange_links, strange_brokers, strange_sizes,
        ]  # fmt: skip
        asyncio.run(bears(cluster, attacks, pages=[pages_port(cluster, name) for name in SHOWN]))


def test_a_raft_mode_set_survives_hostile_peers(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", mode=Mode.RAFT, segment_bytes=8 << 20) as cluster:
        cluster.start()
        asyncio.run(bears(cluster, [strange_requests, strange_members, strange_roles, strange_sizes]))


def test_a_secure_cluster_accepts_nothing_of_hostile_peers(tmp_path: Path) -> None:
    """They have the certificate of a client, and may be a user without rights."""
    with Cluster.create(
        tmp_path / "cluster", brokers=2, secure=True, broker_settings=NOBODY_IS_LATE
    ) as cluster:
        cluster.start()
        attacks = [refused_requests, refused_members, strange_roles, strange_links, refused_brokers]
        asyncio.run(bears(cluster, attacks))


Attack = Callable[[Cluster, SyncStateInfo], Awaitable[None]]


async def bears(cluster: Cluster, attacks: list[Attack], pages: Sequence[int] = ()) -> None:
    await cluster.wait_whole(timeout_ms=WAIT_MS)
    known = {port for _, port in remoting_ports(cluster)} | replication_ports(cluster)
    assert listened(cluster) == known | {*pages}, "a port that no hostile peer connects to"
    await cluster.create_topic(TOPIC)
    await cluster.create_topic(STRANGE_TOPIC)
    async with a_client(cluster) as (load, consumer):
        assert await load.acknowledged_after(0, WAIT_MS, 20)
        state = await cluster.wait_whole(timeout_ms=WAIT_MS)
        before = {name: holds(cluster, name) for name in cluster.layout.names}
        processes = cluster.states()
        peers = await strange_connections(cluster)
        for attack in attacks:
            await attack(cluster, state)
        now_ms = SystemClock().now_ms()
        assert await load.acknowledged_after(now_ms, WAIT_MS, 50), "nothing is acknowledged during the attack"
        for peer in peers:
            peer.leave()
        await wait_for("what it was", lambda: given_back(cluster, before), WAIT_MS)
        await load.stop()
        verdict = judge(load.attempts, await read_back(consumer, TOPIC, load.attempts, WAIT_MS))
        if not cluster.layout.secure:
            await reads_what_strangers_sent(consumer)
    assert verdict.faults == []
    cluster.check_alive()
    assert cluster.states() == processes
    after = await cluster.wait_whole(timeout_ms=WAIT_MS)
    if cluster.layout.in_raft_mode:  # a busy machine may cause elections, but no forged term is taken
        assert after.master_epoch <= state.master_epoch + ELECTIONS_MAX
    else:
        assert (after.master_id, after.master_epoch) == (state.master_id, state.master_epoch)
    for name in cluster.layout.names:
        assert not FAILED.findall(cluster.log_file(name).read_text(errors="replace")), cluster.log_tail(
            name, 60
        )


@asynccontextmanager
async def a_client(cluster: Cluster) -> AsyncIterator[tuple[SteadyLoad, PullConsumer]]:
    """Sends all the time and reads one queue."""
    layout = cluster.layout
    async with Client(
        layout.namesrv,
        clock=SystemClock(),
        random=random.Random(5),
        tls=context_of(layout),
        credentials=credentials_of(layout),
    ) as client:
        load = SteadyLoad(
            client.producer("Producers"), TOPIC, queues=4, clock=SystemClock(), random=random.Random(6),
            interval_ms=20, timeout_ms=10_000,
        )  # fmt: skip
        consumer = client.consumer("Readers")
        load.start()
        reading = asyncio.create_task(read_along(consumer))
        try:
            yield load, consumer
            assert not reading.done(), f"the reader of a queue failed: {reading.exception()}"
        finally:
            await load.stop()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def read_along(consumer: PullConsumer) -> None:
    """Read without end, also through an election that a busy machine causes."""
    queue = (await consumer.queues(TOPIC))[0]
    async for _ in consumer.read(queue, 0, 1 << 62, patience_ms=WAIT_MS):
        pass


async def reads_what_strangers_sent(consumer: PullConsumer) -> None:
    """Each message is read, or its body cannot be decompressed; a bomb takes no memory."""
    opened, refused = 0, 0
    async for _, message in read_messages(consumer, STRANGE_TOPIC, WAIT_MS):
        try:
            message.plain_body()
            opened += 1
        except ValueError:
            refused += 1
    assert opened and refused


def peer_of(cluster: Cluster, port: int) -> HostilePeer:
    return HostilePeer(port, context_of(cluster.layout))


def remoting_ports(cluster: Cluster) -> list[tuple[str, int]]:
    """Every port of remoting frames, of Raft-mode brokers also the member port."""
    layout, ha = cluster.layout, replication_ports(cluster)
    found = [(name, port) for name in layout.names for port in layout.ports_of(name)]
    return [(name, port) for name, port in found if port not in ha]


def replication_ports(cluster: Cluster) -> set[int]:
    layout = cluster.layout
    return {layout.ports_of(name)[-1] for name in layout.broker_names if not layout.in_raft_mode}


def listened(cluster: Cluster) -> set[int]:
    """The ports that processes of the cluster listen on, from the kernel's tables."""
    pids = {name: identity.pid for name, identity in cluster.states().items() if identity is not None}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    inodes = {int(row[9]): int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTEN}
    return {port for inode, port in inodes.items() if owner_of(inode, pids) is not None}


async def strange_connections(cluster: Cluster) -> list[HostilePeer]:
    """Bytes that are no frame, on short connections; incomplete frames and unread answers, on lasting
    ones."""
    peers = []
    for name, port in remoting_ports(cluster):
        peer = peer_of(cluster, port)
        peers.append(peer)
        plain = HostilePeer(port)
        await asyncio.gather(
            *(each.say(data) for each in (plain, peer) for data in frames.not_frames().values())
        )
        for data in frames.begun_frames().values():
            await peer.hold(data)
        big = RemotingCommand.request(
            RequestCode.GET_ALL_TOPIC_CONFIG if "broker" in name else RequestCode.GET_NAMESRV_CONFIG
        )
        await peer.hold(frames.whole(big) * 5_000)
        idle = IDLE_TLS if cluster.layout.secure else IDLE
        await peer.hold(count=idle if name == "broker-0" and port == cluster.layout.ports_of(name)[1] else 20)
    return peers


async def strange_requests(cluster: Cluster, state: SyncStateInfo) -> None:
    """Each code that a port serves, with all headers and bodies; each other code once."""
    for name, port in remoting_ports(cluster):
        is_fast_port = port + 2 in cluster.layout.ports_of(name)  # same router as the broker's other port
        if not is_fast_port:
            peer = peer_of(cluster, port)
            served = await peer.served(CODES)
            assert served, f"{name}: {port} serves nothing"
            answers = await peer.ask(requests.requests(served, REAL))
            assert {answer.code for answer in answers} > {0, 1}


async def refused_requests(cluster: Cluster, state: SyncStateInfo) -> None:
    """Every code at every port, unsigned and signed by a user without rights, with all headers and bodies."""
    admin = admin_of(cluster.layout)
    await create_user(admin, state.master_address or "", UserInfo(GUEST.access_key, GUEST.secret_key))
    await admin.close()
    for name, port in remoting_ports(cluster):
        opened = {RequestCode.GET_ROUTEINFO_BY_TOPIC} if name == "namesrv" else set()
        asked = list(requests.requests(CODES, REAL))
        answers = await peer_of(cluster, port).ask(asked)
        unsigned = {asked[each.opaque - 1].code for each in answers if each.code != NO_PERMISSION}
        assert unsigned <= opened, name
        answers = await HostilePeer(port, context_of(cluster.layout), Signer(GUEST)).ask(asked)
        signed = {asked[each.opaque - 1].code for each in answers if each.code == ResponseCode.SUCCESS}
        assert signed <= opened | (FOR_ALL_USERS if name in cluster.layout.broker_names else set()), name


async def refused_members(cluster: Cluster, state: SyncStateInfo) -> None:
    names = cluster.layout.controller_names
    for number, name in enumerate(names):
        said = members.between_members(CONTROLLER_GROUP, f"n{(number + 1) % len(names)}", f"n{number}")
        answers = await peer_of(cluster, cluster.layout.ports_of(name)[-1]).ask(said)
        assert {answer.code for answer in answers} == {NO_PERMISSION}


async def refused_brokers(cluster: Cluster, state: SyncStateInfo) -> None:
    for name in cluster.layout.controller_names:
        claims = members.to_controllers(CLUSTER_NAME, BROKER_SET, state.master_id or 0, state.master_id or 0)
        answers = await peer_of(cluster, cluster.layout.ports_of(name)[0]).ask(claims)
        assert {answer.code for answer in answers} == {NO_PERMISSION}


async def strange_members(cluster: Cluster, state: SyncStateInfo) -> None:
    """Requests to the Raft groups, with their members' names."""
    layout = cluster.layout
    group, names = (
        (BROKER_SET, layout.broker_names)
        if layout.in_raft_mode
        else (CONTROLLER_GROUP, layout.controller_names)
    )
    for number, name in enumerate(names):
        sender, receiver = f"n{(number + 1) % len(names)}", f"n{number}"
        await peer_of(cluster, layout.ports_of(name)[-1]).ask(
            members.between_members(group, sender, receiver)
        )


async def strange_roles(cluster: Cluster, state: SyncStateInfo) -> None:
    """Requests about the set with its real master and members, of this and other epochs. Brokers in Raft mode
    do not serve them."""
    addresses = {each.broker_id: each.address for each in state.in_sync}
    said = list(roles.notifications(addresses, state.master_epoch, state.sync_state_set_epoch))
    refused = {ResponseCode.REQUEST_CODE_NOT_SUPPORTED} if cluster.layout.in_raft_mode else {0, 29}
    if cluster.layout.secure:
        refused = {NO_PERMISSION}
    for name in cluster.layout.broker_names:
        answers = await peer_of(cluster, cluster.layout.ports_of(name)[1]).ask(said)
        assert {answer.code for answer in answers} == refused


async def strange_links(cluster: Cluster, state: SyncStateInfo) -> None:
    """Frames for the replication ports; some connections stay open as if slow."""
    layout = cluster.layout
    for name in layout.broker_names:
        peer = peer_of(cluster, layout.ports_of(name)[-1])
        bad = links.to_masters(77, state.master_id or 0)
        await asyncio.gather(*(peer.say(data) for data in bad.values()))
        await peer.hold(links.handshake(77)[:11], 20)
        peer.leave()


async def strange_brokers(cluster: Cluster, state: SyncStateInfo) -> None:
    """Requests to controllers in the name of a broker of the set."""
    slave = next(each.broker_id for each in state.in_sync if each.broker_id != state.master_id)
    for name in cluster.layout.controller_names:
        claims = members.to_controllers(CLUSTER_NAME, BROKER_SET, state.master_id or 0, slave)
        await peer_of(cluster, cluster.layout.ports_of(name)[0]).ask(claims)


async def strange_sizes(cluster: Cluster, state: SyncStateInfo) -> None:
    """Bodies that are small until they are decompressed, or declare a huge size."""
    layout = cluster.layout
    topics = b"".join(
        len(line).to_bytes(4, "big") + line for line in (b"%d 1 1 6 S" % number for number in range(200_000))
    )
    bomb = zlib.compress(b"\0\0\0\2{}" + (200_000).to_bytes(4, "big") + topics + b"\0\0\0\2[]")
    header = {
        "brokerName": "x",
        "brokerAddr": "6.6.6.6:1",
        "clusterName": "x",
        "haServerAddr": "",
        "brokerId": "0",
    }
    header |= {"compressed": "true", "bodyCrc32": "0"}
    zeros = zlib.compress(bytes(100 << 20), 1)
    bodies = [RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body) for body in (bomb, zeros)]
    answers = await peer_of(cluster, layout.ports_of("namesrv")[0]).ask(bodies)
    assert [answer.code for answer in answers] == [1, 1], answers
    master = layout.name_of(state.master_address or "") or ""
    crowd = HeartbeatData("c", [], [ConsumerData(f"Made-up-{number}") for number in range(20_000)]).encode()
    heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, None, crowd)
    send = SendMessageHeader("P", STRANGE_TOPIC, "", 4, 0, SYS_FLAG_COMPRESSED, 0, 0)
    sent = RemotingCommand.request(RequestCode.SEND_MESSAGE, send, zeros)
    answers = await peer_of(cluster, layout.ports_of(master)[1]).ask([heartbeat, sent])
    assert {answer.opaque: answer.code for answer in answers} == {1: 1, 2: 0}


async def strange_pages(cluster: Cluster, state: SyncStateInfo) -> None:
    for name in SHOWN:
        peer = peer_of(cluster, pages_port(cluster, name))
        await asyncio.gather(*(peer.say(data) for data in (*HTTP.values(), *frames.OTHER_PROTOCOLS.values())))


def holds(cluster: Cluster, name: str) -> tuple[int, int]:
    """The number of open files and sockets of a process, and its anonymous memory in MiB."""
    identity = cluster.states()[name]
    assert identity is not None, f"{name} has ended: {cluster.log_tail(name, 30)}"
    status = Path(f"/proc/{identity.pid}/status").read_text()
    [kib] = re.findall(r"RssAnon:\s+(\d+) kB", status)
    return len(os.listdir(f"/proc/{identity.pid}/fd")), int(kib) // 1024


async def given_back(cluster: Cluster, before: dict[str, tuple[int, int]]) -> None:
    """Raises NotYet."""
    for name, (had_open, had_mib) in before.items():
        is_open, mib = holds(cluster, name)
        if is_open > had_open + OPEN_MORE or mib > had_mib + GROWTH_MIB:
            raise NotYet(f"{name} has {is_open} files open and {mib} MiB; it had {had_open} and {had_mib}")
