"""Clusters of real processes whose connections all use TLS, with a certificate for each process: drills, and who is served at
which port."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.messages import HeartBeatRequest, ResultCode
from ha.frames import Handshake
from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, DrillReport, run_drills
from localcluster.layout import BROKER_SET, CLUSTER_NAME, HOST, TLS_FOLDER, Mode
from localcluster.secured import APPLICATION_FILE, admin_of, tools_file
from mqruntime.clock import SystemClock
from mqruntime.passwords import TOOLS_FILE
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector
from mqruntime.tlsfiles import FILE_VARIABLE
from mqruntime.toolcredentials import FILE_VARIABLE as KEYS_VARIABLE
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from scripts.peers.waits import WAIT_MS, WAIT_S
from simulation.hostile.frames import whole
from sparkreplay.errors import LiveBrokerFailed
from sparkreplay.store.livebroker import look_at
from tests.process.pagesport import pages_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
AUDIT_LOG = "audit.log"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secure") / "cluster"
    with Cluster.create(folder, secure=True) as made:
        with (folder / "broker-0.conf").open("a") as file:
            file.write(f"metricsExporterType=PROM\nmetricsPromExporterPort={pages_port(made, 'broker-0')}\n")
        with (folder / "namesrv.conf").open("a") as file:
            file.write(f"auditLogPath={folder / AUDIT_LOG}\n")
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def drilled(cluster: Cluster, kind: DrillKind) -> DrillReport:
    said: list[str] = []
    return asyncio.run(
        run_drills(cluster, kind, 1, seed=3, topic=f"Secure{kind.name}", say=said.append, settle_ms=100)
    )


def mqadmin(*arguments: str, tls: Path | None, keys: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if key not in (FILE_VARIABLE, KEYS_VARIABLE)
    }
    for name, path in ((FILE_VARIABLE, tls), (KEYS_VARIABLE, keys)):
        if path is not None:
            environment[name] = str(path)
    command = [sys.executable, "-m", "mqadmin", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def context_of_process(cluster: Cluster, name: str) -> ssl.SSLContext:
    """The context of a client with the certificate of the process `name`."""
    folder = cluster.directory / TLS_FOLDER
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def ports(cluster: Cluster) -> list[tuple[str, int]]:
    return [(name, port) for name in cluster.layout.names for port in cluster.layout.ports_of(name)]


@pytest.mark.parametrize("kind", [DrillKind.KILL, DrillKind.ELECT])
def test_a_secure_cluster_fails_over_without_a_loss(cluster: Cluster, kind: DrillKind) -> None:
    report = drilled(cluster, kind)
    assert report.verdict is not None and report.verdict.faults == [] and report.failure is None
    assert report.verdict.acknowledged > 0
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


async def answer_of(port: int, context: ssl.SSLContext | None, sent: bytes) -> bytes:
    """All that comes back within a second."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        writer.write(sent)
        found = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while piece := await reader.read(1 << 16):
                    found += piece
        writer.transport.abort()
        return found
    except OSError:
        return b""


def test_no_port_answers_a_plain_client_or_one_without_a_certificate(cluster: Cluster) -> None:
    stranger = ssl.create_default_context(cafile=str(cluster.directory / TLS_FOLDER / "ca.pem"))
    sent = [
        whole(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)),
        Handshake(2).encode(),
        b"GET /metrics HTTP/1.1\r\n\r\n",
    ]

    async def story() -> None:
        for name, port in ports(cluster):
            for data in sent:
                assert await answer_of(port, None, data) == b"", (name, port, data)
                assert await answer_of(port, stranger, data) == b"", (name, port, data)
            served = await answer_of(port, context_from(tools_file(cluster.layout)), sent[0])
            is_replication = name.startswith("broker") and port == cluster.layout.ports_of(name)[-1]
            assert bool(served) is not is_replication, (name, port)

    asyncio.run(story())


def test_pages_need_tls_but_no_certificate(cluster: Cluster) -> None:
    """A probe of an orchestrator has none."""
    port = pages_port(cluster, "broker-0")
    trusting = ssl.create_default_context(cafile=str(cluster.directory / TLS_FOLDER / "ca.pem"))

    async def story() -> None:
        asked = b"GET /health HTTP/1.1\r\n\r\n"
        assert await answer_of(port, None, asked) == b""
        assert (await answer_of(port, trusting, asked)).startswith(b"HTTP/1.1 200")
        metrics = await answer_of(port, trusting, b"GET /metrics HTTP/1.1\r\n\r\n")
        left = re.search(rb"^rocketmq_tls_certificate_seconds_left ([\d.e+]+)$", metrics, re.MULTILINE)
        assert left is not None and 360 < float(left[1]) / 86_400 <= 365

    asyncio.run(story())


def test_tools_are_served_with_their_file_only(cluster: Cluster) -> None:
    tls, keys = tools_file(cluster.layout), cluster.directory / TLS_FOLDER / TOOLS_FILE
    listed = mqadmin("clusterList", "-n", cluster.layout.namesrv, tls=tls, keys=keys)
    assert listed.returncode == 0 and CLUSTER_NAME in listed.stdout
    unsigned = mqadmin("clusterList", "-n", cluster.layout.namesrv, tls=tls)
    assert unsigned.returncode == 1 and "username cannot be null" in unsigned.stderr
    application = cluster.directory / TLS_FOLDER / APPLICATION_FILE
    unknown = mqadmin("clusterList", "-n", cluster.layout.namesrv, tls=tls, keys=application)
    assert unknown.returncode == 1 and "User:application is not found" in unknown.stderr
    audited = (cluster.directory / AUDIT_LOG).read_text()
    assert "request refused" in audited and "user=application" in audited and "code=106" in audited
    assert "request refused" not in cluster.log_file("namesrv").read_text()
    refused = mqadmin("clusterList", "-n", cluster.layout.namesrv, tls=None)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    missing = mqadmin("clusterList", "-n", cluster.layout.namesrv, tls=Path("/nowhere/tls.properties"))
    assert missing.returncode == 1 and "/nowhere/tls.properties: cannot be read" in missing.stderr


def test_a_spark_job_asks_a_broker_with_the_credentials_of_its_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS)).master_address or ""
    monkeypatch.setenv(FILE_VARIABLE, str(tools_file(cluster.layout)))
    with pytest.raises(LiveBrokerFailed, match="username cannot be null"):
        look_at(master)
    monkeypatch.setenv(KEYS_VARIABLE, str(cluster.directory / TLS_FOLDER / TOOLS_FILE))
    assert look_at(master).broker_name == BROKER_SET


def test_a_certificate_of_one_member_does_not_speak_for_another(cluster: Cluster) -> None:
    """All processes share a host: what distinguishes them are the addresses in their certificates."""
    layout = cluster.layout
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    master = layout.name_of(state.master_address or "")
    assert master is not None
    other, third = [name for name in layout.broker_names if name != master]
    ids = {layout.name_of(replica.address): replica.broker_id for replica in state.in_sync}
    handshake = Handshake(ids[other]).encode()
    ha_port = layout.ports_of(master)[-1]

    async def story() -> None:
        assert await answer_of(ha_port, context_of_process(cluster, third), handshake) == b""
        assert await answer_of(ha_port, context_of_process(cluster, "controller-0"), handshake) == b""
        assert await answer_of(ha_port, context_from(tools_file(layout)), handshake) == b""
        request = RemotingCommand.request(RequestCode.HAND_OVER)
        for name in (other, "namesrv"):
            client = RemotingClient(
                clock=SystemClock(), network=TlsConnector(context_of_process(cluster, name))
            )
            answer = await client.call(state.master_address or "", request, WAIT_MS)
            await client.close()
            assert answer.code == ResponseCode.NO_PERMISSION and "certificate" in (answer.remark or "")

    asyncio.run(story())
    text = cluster.log_file(master).read_text()
    assert "replication link refused" in text and "its certificate does not speak for the address" in text


def test_a_client_does_not_speak_for_a_broker(cluster: Cluster) -> None:
    """At the controllers and the name server, in the name of the master; an administrator's signature does not replace the
    certificate."""
    layout = cluster.layout
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    master = state.master_address or ""
    named = {
        "brokerName": BROKER_SET,
        "clusterName": CLUSTER_NAME,
        "brokerAddr": master,
        "brokerAddress": master,
    }
    own = named | {
        "brokerId": str(state.master_id),
        "masterBrokerId": str(state.master_id),
        "masterEpoch": "1",
    }
    requests = [
        *((name, RequestCode.BROKER_HEARTBEAT) for name in ("namesrv", *layout.controller_names)),
        ("namesrv", RequestCode.UNREGISTER_BROKER),
        *((name, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET) for name in layout.controller_names),
        *((name, RequestCode.CONTROLLER_REGISTER_BROKER) for name in layout.controller_names),
    ]

    async def story() -> None:
        client = admin_of(layout).remoting
        for name, code in requests:
            answer = await client.call(layout.address(name), RemotingCommand.request(code, own), WAIT_MS)
            assert answer.code == ResponseCode.NO_PERMISSION and "certificate" in (answer.remark or ""), (
                name,
                code,
            )
        await client.close()

    asyncio.run(story())
    assert asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS)).master_epoch == state.master_epoch


def test_a_server_with_the_certificate_of_another_is_not_talked_to(cluster: Cluster) -> None:
    """A client that dials one process meets another one's certificate."""
    port = cluster.layout.ports_of("controller-1")[0]
    context = context_from(tools_file(cluster.layout))

    async def story() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: None, HOST, 0, ssl=served_by(cluster, "controller-0")
        )
        address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        client = RemotingClient(clock=SystemClock(), network=TlsConnector(context))
        with pytest.raises(RemotingError, match="the certificate there is not that of"):
            await client.call(
                address, RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO), WAIT_MS
            )
        own = admin_of(cluster.layout).remoting
        answer = await own.call(
            f"{HOST}:{port}", RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO), WAIT_MS
        )
        assert answer.code == ResponseCode.SUCCESS
        await own.close()
        await client.close()
        server.close()

    asyncio.run(story())


def served_by(cluster: Cluster, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = cluster.directory / TLS_FOLDER
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def test_a_renewed_certificate_is_taken_while_the_cluster_runs(cluster: Cluster) -> None:
    folder = cluster.directory / TLS_FOLDER
    broker = cluster.layout.broker_names[0]
    host, _, port = cluster.layout.address(broker).partition(":")

    def shown() -> bytes:
        with socket.create_connection((host, int(port))) as plain:
            context = context_from(tools_file(cluster.layout))
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return secured.getpeercert(binary_form=True) or b""

    before = shown()
    hosts = [HOST, "localhost"]
    addresses = [f"{HOST}:{port}" for port in cluster.layout.ports_of(broker)]
    command = ["server", str(folder), broker, *hosts, "--replace"]
    for address in addresses:
        command += ["--address", address]
    subprocess.run(
        [sys.executable, "-m", "mqruntime.certificates", *command], cwd=ROOT, check=True, capture_output=True
    )
    wait_until("the new certificate is shown", lambda: shown() != before)
    assert "TLS files loaded" in cluster.log_file(broker).read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tls.server.mode=on"], "tls.server.mode=on: is none of disabled, permissive, enforcing"),
        (["tls.server.mode=enforcing"], "needs tls.server.certPath and tls.server.keyPath"),
        (
            ["tls.server.certPath=/nowhere.pem", "tls.server.keyPath=/nowhere.key"],
            "/nowhere.pem cannot be read",
        ),
    ],
)
@pytest.mark.parametrize("module", ["broker", "controller", "namesrv"])
def test_a_server_does_not_start_with_unusable_tls(
    module: str, settings: list[str], message: str, tmp_path: Path
) -> None:
    own = {
        "broker": [f"storePathRootDir={tmp_path}", "listenPort=0"],
        "controller": [f"controllerStorePath={tmp_path}", "controllerDLegerPeers=n0-127.0.0.1:1",
                       "controllerDLegerSelfId=n0", "controllerDLegerGroup=g"],
        "namesrv": [f"kvConfigPath={tmp_path}/kv.json", "listenPort=0"],
    }  # fmt: skip
    command = [sys.executable, "-m", module, *own[module], *settings]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 2
    assert message in ended.stderr and ended.stderr.count("\n") == 1


def test_a_secure_set_in_raft_mode_hands_over_without_a_loss(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", secure=True, mode=Mode.RAFT) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        report = drilled(made, DrillKind.ELECT)
        assert report.verdict is not None and report.verdict.faults == [] and report.failure is None
        member = made.layout.broker_names[0]
        port = made.layout.ports_of(member)[-1]

        async def story() -> None:
            client = admin_of(made.layout).remoting
            body = encode_request(Envelope(BROKER_SET, "n1", "n0"), HeartBeatRequest(1_000))
            forged = RemotingCommand.request(RequestCode.DLEDGER_HEART_BEAT, body=body)
            answer = await client.call(f"{HOST}:{port}", forged, WAIT_MS)
            await client.close()
            assert json.loads(bytes(answer.body or b""))["code"] == ResultCode.UNKNOWN_MEMBER

        asyncio.run(story())
        assert "certificate" in made.log_file(member).read_text()
