"""Bad input on every port of a running cluster: each is answered with the correct code or closed, and nothing
is lost.

The tests share the cluster and run in order; each leaves all replicas in sync."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.history import SendAttempt, judge
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.load import SteadyLoad, read_back
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.frame import encode
from remoting.headers.controller import (
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    RegisterBrokerToControllerHeader,
)
from remoting.headers.send import SendMessageHeader
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.serverprocess import ServerProcess

CUT_OFF = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
MESSAGE_BYTES_MAX = 64 * 1024

GARBAGE = random.Random(9).randbytes(1 << 20)
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
OVERSIZED = struct.pack(">ii", 17 << 20, 100)
NEGATIVE = struct.pack(">ii", -1, -1)
HEADER_BEYOND_FRAME = struct.pack(">ii", 8, 5000) + b"{}{}"
NO_JSON = struct.pack(">ii", 8, 4) + b"!!!!"
CUT = b"".join(bytes(part) for part in encode(RemotingCommand.request(105, {"topic": "T"})))[:-3]
NONSENSE = {
    "garbage": GARBAGE,
    "http": HTTP,
    "oversized": OVERSIZED,
    "negative": NEGATIVE,
    "header beyond frame": HEADER_BEYOND_FRAME,
    "no json": NO_JSON,
    "cut": CUT,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("bad days") / "cluster"
    settings = {"maxMessageSize": str(MESSAGE_BYTES_MAX), **NOBODY_IS_LATE}
    with Cluster.create(directory, broker_settings=settings) as made:
        made.start()
        whole(made)
        asyncio.run(made.create_topic("T"))
        yield made


def whole(cluster: Cluster) -> SyncStateInfo:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


def ports_of(cluster: Cluster) -> dict[str, int]:
    """Every port of the cluster, by its kind."""
    found: dict[str, int] = {}
    for name in cluster.layout.names:
        port = int(cluster.layout.address(name).rpartition(":")[2])
        found[name] = port
        if name in cluster.layout.broker_names:
            found[f"{name} fast"], found[f"{name} replication"] = port - 2, port + 1
    return found


def throw(port: int, data: bytes) -> bytes:
    """The answer to `data` until the other end closes or resets."""
    got = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                got += chunk
        except OSError as cut:
            assert cut.errno in CUT_OFF, cut
    return got


def send_request(topic: str, body: bytes) -> RemotingCommand:
    header = SendMessageHeader("PG", topic, "TBW102", 4, 0, 0, 1_700_000_000_000, 0)
    return RemotingCommand.request(RequestCode.SEND_MESSAGE, header, body)


async def answer(address: str, command: RemotingCommand) -> RemotingCommand:
    client = RemotingClient(clock=SystemClock())
    try:
        return await client.call(address, command, WAIT_MS)
    finally:
        await client.close()


def ask(address: str, command: RemotingCommand) -> RemotingCommand:
    return asyncio.run(answer(address, command))


def master_of(cluster: Cluster) -> str:
    address = whole(cluster).master_address
    assert address is not None
    return address


def logs(cluster: Cluster) -> dict[str, str]:
    return {name: cluster.log_file(name).read_text() for name in cluster.layout.names}


def resident_kib(cluster: Cluster, name: str) -> int:
    identity = cluster.states()[name]
    assert identity is not None
    status = Path(f"/proc/{identity.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_nonsense_on_any_port_harms_no_server(cluster: Cluster) -> None:
    before = whole(cluster)
    lines = {name: text.count("\n") for name, text in logs(cluster).items()}
    for port in ports_of(cluster).values():
        for data in NONSENSE.values():
            throw(port, data)
    after = whole(cluster)
    assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
    assert ask(master_of(cluster), send_request("T", b"still here")).code == ResponseCode.SUCCESS
    for name, text in logs(cluster).items():
        assert "Traceback" not in text, text
        assert text.count("\n") - lines[name] <= 4 * len(NONSENSE), f"a log storm in {name}"
        assert resident_kib(cluster, name) < 120 * 1024


def test_half_a_frame_does_not_block_other_connections(cluster: Cluster) -> None:
    """Slow or stuck peers hold one connection each; other clients are served meanwhile."""
    master = master_of(cluster)
    port = int(master.rpartition(":")[2])
    stuck = [
        socket.create_connection(("127.0.0.1", port + beside)) for beside in (0, -2, 1) for _ in range(20)
    ]
    try:
        for connection in stuck:
            connection.sendall(CUT[:7])
        assert ask(master, send_request("T", b"served")).code == ResponseCode.SUCCESS
    finally:
        for connection in stuck:
            connection.close()


@pytest.mark.parametrize(
    "topic,body,code,why",
    [
        ("T", bytes(MESSAGE_BYTES_MAX + 1), ResponseCode.MESSAGE_ILLEGAL, f"{MESSAGE_BYTES_MAX} are allowed"),
        ("no blanks", b"x", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("T" * 300, b"x", ResponseCode.INVALID_PARAMETER, "longer than"),
        ("", b"x", ResponseCode.INVALID_PARAMETER, "blank"),
        ("SCHEDULE_TOPIC_XXXX", b"x", ResponseCode.NO_PERMISSION, "is forbidden"),
    ],
    ids=["over the limit", "bad character", "long name", "no name", "reserved"],
)
def test_an_invalid_message_is_refused_with_its_own_code(
    cluster: Cluster, topic: str, body: bytes, code: ResponseCode, why: str
) -> None:
    reply = ask(master_of(cluster), send_request(topic, body))
    assert (ResponseCode(reply.code), why in (reply.remark or "")) == (code, True), reply.remark


def test_a_slave_refuses_sends_and_unknown_requests(cluster: Cluster) -> None:
    state = whole(cluster)
    for replica in state.in_sync:
        if replica.address != state.master_address:
            reply = ask(replica.address, send_request("T", b"x"))
            assert reply.code == ResponseCode.SYSTEM_BUSY and reply.remark  # clients then try another broker
    for name in cluster.layout.names:
        unknown = ask(cluster.layout.address(name), RemotingCommand.request(9_999))
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        for code in (
            RequestCode.REGISTER_BROKER,
            RequestCode.SEND_MESSAGE,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            RequestCode.PULL_MESSAGE,
        ):
            refused = ask(cluster.layout.address(name), RemotingCommand.request(code, body=b"\xff{"))
            assert refused.code != ResponseCode.SUCCESS and refused.remark
    assert all("Traceback" not in text for text in logs(cluster).values())


async def load_under(cluster: Cluster, harm: list[int]) -> list[SendAttempt]:
    """Sends messages while each port of `harm` gets 1 MiB of garbage; no acknowledged message may be
    missing."""
    clock = SystemClock()
    await cluster.create_topic("Harmed")
    async with Client(cluster.layout.namesrv, clock=clock, random=random.Random(3)) as client:
        load = SteadyLoad(client.producer("PG"), "Harmed", queues=4, clock=clock, random=random.Random(4))
        load.start()
        assert await load.acknowledged_after(0, WAIT_MS, count=20)
        for _ in range(3):
            await asyncio.gather(*(asyncio.to_thread(throw, port, GARBAGE) for port in harm))
        assert await load.acknowledged_after(clock.now_ms(), WAIT_MS, count=20)
        await load.stop()
        found = await read_back(client.consumer("CG"), "Harmed", load.attempts, WAIT_MS)
        assert judge(load.attempts, found).faults == []
        return load.attempts


def test_garbage_on_the_replication_ports_under_load_loses_nothing(cluster: Cluster) -> None:
    before = whole(cluster)
    ports = [port for name, port in ports_of(cluster).items() if name.endswith("replication")]
    attempts = asyncio.run(load_under(cluster, ports))
    assert len(attempts) >= 40
    assert whole(cluster).master_epoch == before.master_epoch


def test_a_server_that_is_no_master_stops_on_sigterm(cluster: Cluster) -> None:
    state = whole(cluster)
    slave = next(replica.address for replica in state.in_sync if replica.address != state.master_address)
    leader = asyncio.run(cluster.wait_leader())
    follower = next(
        name for name in cluster.layout.controller_names if cluster.layout.address(name) != leader
    )
    named = cluster.layout.name_of(slave)
    assert named is not None
    for name in (named, follower, "namesrv"):
        assert cluster.stop([name]) == [name]
        text = logs(cluster)[name]
        assert text.splitlines()[-1].endswith(" stopped") and "Traceback" not in text
        cluster.start([name])
    whole(cluster)


def test_a_broker_of_another_cluster_is_refused_with_the_reason(cluster: Cluster) -> None:
    stranger = cluster.directory / "stranger.conf"
    settings = cluster.layout.properties("broker-0") | {
        "brokerClusterName": "AnotherCluster",
        "storePathRootDir": str(cluster.directory / "stranger"),
        "listenPort": "0",
        "haListenPort": "0",
    }
    stranger.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with ServerProcess("broker", "-c", str(stranger)) as process:
        process.wait_to_say("controller refused")
        process.stop()
    assert "is of cluster DefaultCluster, not AnotherCluster; correct brokerClusterName" in process.said
    assert "Traceback" not in process.said and "role taken" not in process.said
    state = whole(cluster)
    assert len(state.in_sync) == 3 and state.not_in_sync == ()


def test_brokers_registered_at_impossible_addresses_harm_no_server(cluster: Cluster) -> None:
    """Controllers notify every live broker of an election, and masters resolve the hosts of their set."""
    leader, name = asyncio.run(cluster.wait_leader()), (CLUSTER_NAME, BROKER_SET)
    for broker_id, address in enumerate(("typed..twice:1", "x" * 64 + ":1", "127.0.0.1:" + "9" * 200), 50):
        registration = (
            (
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                ApplyBrokerIdHeader(name[1], broker_id, f"{address};1", name[0]),
            ),
            (
                RequestCode.CONTROLLER_REGISTER_BROKER,
                RegisterBrokerToControllerHeader(name[1], broker_id, address, name[0]),
            ),
            (
                RequestCode.BROKER_HEARTBEAT,
                BrokerHeartbeatHeader(name[0], address, name[1], broker_id, heartbeat_timeout_mills=WAIT_MS),
            ),
        )
        for code, header in registration:
            assert ask(leader, RemotingCommand.request(code, header)).code == ResponseCode.SUCCESS
    former = cluster.layout.name_of(master_of(cluster))
    assert former is not None
    cluster.kill([former])
    asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
    cluster.start([former])
    whole(cluster)
    assert ask(master_of(cluster), send_request("T", b"served")).code == ResponseCode.SUCCESS
    cluster.check_alive()
    assert all("Traceback" not in text for text in logs(cluster).values())
