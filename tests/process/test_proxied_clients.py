"""The source addresses of policies where clients come through a proxy: a PROXY header counts if its sender is configured."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from mqruntime.otherprotocols import UNEXPECTED_PROXY_HEADER
from mqruntime.proxyheader import MISSING
from mqruntime.tlsclient import context_from
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.frame import FrameReader
from remoting.headers.access import SubjectHeader, UserHeader
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.signing import Credentials, Signer
from scripts.peers.waits import WAIT_S
from simulation.hostile.frames import whole
from tests.process.serverprocess import ServerProcess
from tests.support.pki import Pki
from tests.unit.dledger.ledgergroup import free_ports

HOST, PROXY = "127.0.0.1", "127.0.0.2"
ADMIN, ALICE = Credentials("admin", "admin-password"), Credentials("alice", "alice-password")
TOPIC = "orders"
ALLOWED, ELSEWHERE = "10.9.1.2", "10.8.1.2"


def line(source: str) -> bytes:
    return f"PROXY TCP4 {source} 10.0.0.1 40001 10911\r\n".encode()


def binary(source: str) -> bytes:
    addresses = socket.inet_aton(source) + socket.inet_aton("10.0.0.1")
    return (
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"
        + addresses
        + (40_001).to_bytes(2, "big")
        + (10_911).to_bytes(2, "big")
    )


class Served(NamedTuple):
    """A running broker. `contexts` are those of connections that it serves; None for a plain one."""

    process: ServerProcess
    port: int
    mode: str
    contexts: list[ssl.SSLContext | None]

    def answer(
        self,
        command: RemotingCommand,
        *,
        by: Credentials,
        context: ssl.SSLContext | None,
        source: str = HOST,
        header: bytes = b"",
    ) -> RemotingCommand | None:
        """On a connection from `source` that begins with `header`; None if the broker closes it."""
        Signer(by).sign(command)
        plain = socket.create_connection((HOST, self.port), WAIT_S, source_address=(source, 0))
        used = plain
        if context is not None:
            used = context.wrap_socket(plain, do_handshake_on_connect=False, server_hostname=HOST)
        with used, suppress(ConnectionError, ssl.SSLError):
            socket.socket.sendall(used, header)  # before TLS begins
            used.sendall(whole(command))
            reader = FrameReader()
            while data := used.recv(1 << 16):
                for found in reader.receive(data):
                    return found
        return None

    def remark(self, context: ssl.SSLContext | None, source: str, header: bytes) -> str | None:
        """The remark to a request of alice, empty if it is served; None if the connection is closed."""
        asks = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(TOPIC))
        found = self.answer(asks, by=ALICE, context=context, source=source, header=header)
        if found is None:
            return None
        assert found.code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
        return found.remark or ""


@pytest.fixture(scope="module", params=["disabled", "permissive", "enforcing"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("proxied")
    mode: str = request.param
    pki = Pki(folder / "pki")
    over_tls = context_from(pki.file("client.properties", [f"tls.client.trustCertPath={pki.ca}"]))
    plain_ones: list[ssl.SSLContext | None] = [] if mode == "enforcing" else [None]
    contexts = plain_ones if mode == "disabled" else [*plain_ones, over_tls]
    raft, port, fast, ha = free_ports(4)
    with ServerProcess(
        "broker",
        f"storePathRootDir={folder}/store", f"listenPort={port}", f"fastListenPort={fast}", f"haListenPort={ha}",
        "enableDLegerCommitLog=true", "dLegerGroup=g", f"dLegerPeers=n0-{HOST}:{raft}", "dLegerSelfId=n0",
        "mappedFileSizeCommitLog=8388608",
        "authenticationEnabled=true", "authorizationEnabled=true",
        'innerClientAuthenticationCredentials={"accessKey":"servers","secretKey":"servers-secret"}',
        f'initAuthenticationUser={{"username":"{ADMIN.access_key}","password":"{ADMIN.secret_key}"}}',
        f"proxyProtocolHosts=10.0.0.0/8,{PROXY}",
        *pki.server(mode),
    ) as process:  # fmt: skip
        process.wait_to_say("administrator made")
        made = Served(process, port, mode, contexts)
        allow_from_one_network(made)
        yield made


def allow_from_one_network(served: Served) -> None:
    """Alice may read about the topic from 10.9.0.0/16."""
    entry = PolicyEntryInfo(f"Topic:{TOPIC}", ["Get"], ["10.9.0.0/16"], "Allow")
    acl = AclInfo(f"User:{ALICE.access_key}", [PolicyInfo("Custom", [entry])])
    user = UserInfo(ALICE.access_key, ALICE.secret_key)
    for asks in (
        RemotingCommand.request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(TOPIC, "TBW102", 4, 4, 6)
        ),
        RemotingCommand.request(RequestCode.AUTH_CREATE_USER, UserHeader(ALICE.access_key), user.encode()),
        RemotingCommand.request(RequestCode.AUTH_CREATE_ACL, SubjectHeader(acl.subject), acl.encode()),
    ):
        found = served.answer(asks, by=ADMIN, context=served.contexts[-1])
        assert found is not None and found.code == ResponseCode.SUCCESS, found


def denied(source: str) -> str:
    return f"User:alice has no permission to access Topic:{TOPIC} from {source}, no matched policies."


def test_a_policy_counts_the_address_in_the_header_of_a_configured_proxy(served: Served) -> None:
    for context in served.contexts:
        for header in (line, binary):
            assert served.remark(context, PROXY, header(ALLOWED)) == ""
            assert served.remark(context, PROXY, header(ELSEWHERE)) == denied(ELSEWHERE)
        assert served.remark(context, PROXY, b"PROXY UNKNOWN\r\n") == denied(PROXY)


def test_others_do_not_name_a_source_and_a_proxy_must(served: Served) -> None:
    for context in served.contexts:
        assert served.remark(context, HOST, b"") == denied(HOST)
        for header in (line, binary):
            assert served.remark(context, HOST, header(ALLOWED)) is None
        assert served.remark(context, PROXY, b"") is None
    served.process.wait_to_say(MISSING)
    assert UNEXPECTED_PROXY_HEADER in served.process.said


def test_a_header_does_not_replace_tls(served: Served) -> None:
    if served.mode == "enforcing":
        assert served.remark(None, PROXY, line(ALLOWED)) is None
    else:
        assert served.remark(None, PROXY, line(ALLOWED)) == ""
