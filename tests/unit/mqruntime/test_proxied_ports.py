"""Ports that know proxies, both loops: the source address that a protocol gets, the bytes after a header, and refusals."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar

import pytest
import uvloop

from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from mqruntime import tlsport
from mqruntime.clock import SystemClock
from mqruntime.hostports import AddressRanges
from mqruntime.network import PLAIN, Link, OpenPort
from mqruntime.otherprotocols import UNEXPECTED_PROXY_HEADER
from mqruntime.proxyheader import MISSING, SIGNATURE, ClientAddress
from mqruntime.proxysettings import ProxySettings
from mqruntime.serve import network_of
from mqruntime.settings import Settings, SettingsError
from mqruntime.tls import TlsNetwork
from mqruntime.tlsclient import context_from
from mqruntime.tlsport import TlsPort
from mqruntime.tlssettings import TlsSettings
from namesrv.settings import NamesrvSettings
from scripts.peers.waits import WAIT_S
from tests.support.pki import Pki

HOST, PROXY = "127.0.0.1", "127.0.0.2"
LINE = b"PROXY TCP4 10.9.1.2 10.0.0.1 40001 10911\r\n"
BLOCK = (
    SIGNATURE
    + b"\x21\x11\x00\x11"
    + bytes([10, 9, 1, 3, 10, 0, 0, 1, 0x9C, 0x41, 0x2A, 0x9F])
    + b"\x04\x00\x02ab"
)
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
NAMED = [(LINE, "10.9.1.2:40001"), (BLOCK, "10.9.1.3:40001")]
PLAIN_REFUSED = "plain connection at a port that serves only TLS"
Run = Callable[[Coroutine[Any, Any, None]], None]


class Answering(asyncio.Protocol):
    """Sends back the address of the client, and what it receives."""

    open: ClassVar[set[Answering]] = set()
    client: ClientAddress | None = None

    def forwarded_from(self, source: ClientAddress) -> None:
        self.client = source

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.name = "{}:{}".format(*(self.client or transport.get_extra_info("peername")))
        self.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(f"{self.name} ".encode() + data)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


async def opened(lines: list[str], proxies: str = PROXY, link: Link = Link.REMOTING) -> OpenPort:
    network = TlsNetwork(TlsSettings.load(None, lines), SystemClock(), AddressRanges(proxies))
    return await network.listen(Answering, HOST, 0, link)


async def ended(port: OpenPort) -> None:
    await port.close()
    while Answering.open:  # noqa: ASYNC110 - two loops take turns here
        await asyncio.sleep(0.01)


def client_context(pki: Pki) -> ssl.SSLContext:
    return context_from(pki.file("client.properties", [f"tls.client.trustCertPath={pki.ca}"]))


def ask(port: int, source: str, pieces: list[bytes], context: ssl.SSLContext | None) -> str:
    """The answer to the last byte of `pieces`, and to the beginning of TLS in the same segment; empty if the connection is
    closed."""
    with (
        socket.create_connection((HOST, port), WAIT_S, source_address=(source, 0)) as plain,
        suppress(ConnectionError),
    ):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces[:-1]:
            plain.sendall(piece)
            time.sleep(0.001)
        if context is None:
            plain.sendall(pieces[-1])
            return plain.recv(1_000).decode("latin-1")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        before = pieces[-1]
        for step in (tls.do_handshake, lambda: tls.write(b"hello"), lambda: tls.read(1_000)):
            while True:
                try:
                    done = step()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(before + outgoing.read())
                    before = b""
                    incoming.write(plain.recv(10_000) or b"ended")
                except ssl.SSLError:
                    return ""
            if outgoing.pending:
                plain.sendall(outgoing.read())
        return bytes(done).decode()  # type: ignore[arg-type]
    return ""


async def answer(
    port: OpenPort, *pieces: bytes, source: str = PROXY, context: ssl.SSLContext | None = None
) -> str:
    """Over TLS, `hello` is sent after `pieces`."""
    return await asyncio.to_thread(ask, port.port, source, list(pieces), context)


def refusals(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    said = [record.fields for record in caplog.records if record.message == "connection refused"]  # type: ignore[attr-defined]
    return [(each["peer"], each["why"]) for each in said]


@pytest.mark.parametrize(("header", "client"), NAMED)
@pytest.mark.parametrize("mode", ["disabled", "permissive"])
def test_the_client_of_a_plain_connection_is_the_one_in_the_header(
    pki: Pki, run: Run, mode: str, header: bytes, client: str
) -> None:
    async def story() -> None:
        port = await opened(pki.server(mode))
        in_bytes = [bytes([each]) for each in header]
        for pieces in (
            [header + b"hello"],
            [header, b"hello"],
            [*in_bytes, b"hello"],
            [header[:15], header[15:] + b"hello"],
        ):
            assert await answer(port, *pieces) == f"{client} hello", pieces
        assert await answer(port, header + LINE) == f"{client} {LINE.decode()}", "only one header is read"
        await ended(port)

    run(story())


@pytest.mark.parametrize(("header", "client"), NAMED)
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_the_client_of_a_tls_connection_is_the_one_in_the_header(
    pki: Pki, run: Run, mode: str, header: bytes, client: str
) -> None:
    async def story() -> None:
        port = await opened(pki.server(mode))
        in_bytes = [bytes([each]) for each in header]
        for pieces in ([header], [header, b""], [*in_bytes, b""], [header[:15], header[15:]]):
            assert await answer(port, *pieces, context=client_context(pki)) == f"{client} hello", pieces
        await ended(port)

    run(story())


@pytest.mark.parametrize("header", [LOCAL, b"PROXY UNKNOWN\r\n", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n"])
def test_a_header_without_another_client_leaves_the_proxys_address(pki: Pki, run: Run, header: bytes) -> None:
    async def story() -> None:
        port = await opened(pki.server("permissive"))
        assert (await answer(port, header + b"hello")).startswith(f"{PROXY}:")
        assert (await answer(port, header, context=client_context(pki))).startswith(f"{PROXY}:")
        await ended(port)

    run(story())


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_a_header_from_elsewhere_names_nobody(
    pki: Pki, run: Run, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A protocol gets its bytes, and the reader of frames refuses them by name."""

    async def story() -> None:
        for proxies in (PROXY, ""):
            port = await opened(pki.server(mode), proxies)
            for header in (LINE, BLOCK):
                found = await answer(port, header, source=HOST)
                assert found.startswith(f"{HOST}:") is (mode != "enforcing")
                assert (
                    await answer(port, header, source=HOST, context=client_context(pki)) == ""
                    or mode != "enforcing"
                )
            await ended(port)

    run(story())
    assert refusals(caplog) == ([(HOST, UNEXPECTED_PROXY_HEADER)] * 2 if mode == "enforcing" else [])


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_a_proxy_that_forgets_the_header_is_refused_once_by_name(
    pki: Pki, run: Run, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        port = await opened(pki.server(mode), "10.0.0.0/8; 127.0.0.2/31")
        for source in (PROXY, "127.0.0.3"):
            for pieces in ([b"hello"], [b"PROXY", b"!"], [b"\0\0\0\x20" + LINE]):
                assert await answer(port, *pieces, source=source) == ""
        assert await answer(port, b"", context=client_context(pki)) == ""
        await ended(port)

    run(story())
    assert refusals(caplog) == [(PROXY, MISSING), ("127.0.0.3", MISSING)]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"PROXY TCP4 10.9.1.2\r\n", "a malformed PROXY line"),
        (b"PROXY " + b"x" * 600, "a PROXY line of more than 107 bytes"),
        (SIGNATURE + b"\x21\x11\xff\xff", "a PROXY header of 65551 bytes; 536 are read"),
    ],
)
def test_a_wrong_header_is_refused_by_name(
    pki: Pki, run: Run, header: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        port = await opened(pki.server("disabled"))
        in_bytes = [bytes([each]) for each in header[:110]]
        for pieces in ([header], [header + LINE], in_bytes):
            assert await answer(port, *pieces) == ""
        await ended(port)

    run(story())
    assert refusals(caplog) == [(PROXY, why)]


@pytest.mark.parametrize(
    ("sent", "is_named"), [(b"", True), (LINE[:-1], True), (BLOCK[:-1], True), (LINE, False), (BLOCK, False)]
)
def test_a_connection_without_a_whole_header_is_ended_in_time(
    pki: Pki, run: Run, sent: bytes, is_named: bool,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """So is one without a byte after it. Meanwhile the loop is idle."""
    monkeypatch.setattr(tlsport, "DECISION_MS", 200)
    looks: list[socket.socket] = []
    look = TlsPort._look

    def noted(port: TlsPort, connection: socket.socket) -> None:
        looks.append(connection)
        look(port, connection)

    monkeypatch.setattr(TlsPort, "_look", noted)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        assert await answer(port, sent) == ""
        await ended(port)

    run(story())
    assert len(looks) <= 2
    assert refusals(caplog) == ([(PROXY, "no whole PROXY header within 200 ms")] if is_named else [])


def test_a_proxy_may_look_whether_the_port_is_open(
    pki: Pki, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        port = await opened(pki.server("disabled"))
        for sent in (b"", LINE[:20], LOCAL):
            with socket.create_connection((HOST, port.port), source_address=(PROXY, 0)) as plain:
                plain.sendall(sent)
            while Answering.open or port._undecided:  # type: ignore[attr-defined]  # noqa: ASYNC110 - it ends by itself
                await asyncio.sleep(0.01)
        await ended(port)

    run(story())
    assert refusals(caplog) == []


@pytest.mark.parametrize("link", [Link.REPLICATION, Link.PAGES])
def test_other_ports_read_no_header(pki: Pki, run: Run, link: Link, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        for mode in ("disabled", "permissive", "enforcing"):
            port = await opened(pki.server(mode), link=link)
            found = await answer(port, LINE)
            assert found.endswith(LINE.decode()) if mode != "enforcing" else found == ""
            assert found.startswith(f"{PROXY}:") or mode == "enforcing"
            await ended(port)

    run(story())
    assert refusals(caplog) == [(PROXY, UNEXPECTED_PROXY_HEADER)]


def test_handshakes_count_by_the_clients_behind_a_proxy(
    pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlsport, "OF_ONE_HOST_MAX", 1)
    for name in ("PATIENCE_MS", "HANDSHAKE_MS"):
        monkeypatch.setattr(tlsport, name, 3_600_000)

    async def story() -> None:
        port = await opened(pki.server())
        reader, writer = await asyncio.open_connection(HOST, port.port, local_addr=(PROXY, 0))
        writer.write(LINE + b"\x16\x03\x01")
        assert await answer(port, BLOCK, context=client_context(pki)) == "10.9.1.3:40001 hello"
        assert not reader.at_eof()
        writer.close()
        await ended(port)

    run(story())


def test_a_client_behind_a_proxy_is_named_when_it_is_refused(
    pki: Pki, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        port = await opened(pki.server())
        assert await answer(port, LINE + b"hello") == ""
        assert await answer(port, BLOCK + LINE) == "", "a second header"
        await ended(port)

    run(story())
    assert refusals(caplog) == [("10.9.1.2", PLAIN_REFUSED), ("10.9.1.3", UNEXPECTED_PROXY_HEADER)]


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (NamesrvSettings, []),
        (BrokerSettings, []),
        (
            ControllerSettings,
            ["controllerDLegerGroup=g", "controllerDLegerPeers=n0-127.0.0.1:1", "controllerDLegerSelfId=n0"],
        ),
    ],
)
def test_each_server_has_the_setting_and_none_reads_headers_without_it(
    kind: type[Settings], own: list[str]
) -> None:
    assert network_of(kind.load(None, own)) is PLAIN
    found = kind.load(None, [*own, "proxyProtocolHosts=10.0.0.1, 10.1.0.0/16;2001:db8::/32"])
    assert isinstance(found, ProxySettings)
    assert [host in found.proxies for host in ("10.0.0.1", "10.0.0.2", "10.1.9.9", "2001:db8::9", "::1")] == [
        True, False, True, True, False,
    ]  # fmt: skip
    network = network_of(found)
    assert isinstance(network, TlsNetwork) and not network.options.is_used and list(network.warnings) == []
    with pytest.raises(SettingsError, match="proxyProtocolHosts=proxy: 'proxy' is neither ADDRESS"):
        kind.load(None, [*own, "proxyProtocolHosts=proxy"])


def test_proxies_everywhere_are_warned_of() -> None:
    network = network_of(NamesrvSettings.load(None, ["proxyProtocolHosts=10.0.0.1,::/0"]))
    assert list(network.warnings) == ["proxyProtocolHosts: each client may claim any source address"]


def test_a_used_port_is_reported_as_by_the_plain_network(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened([])
        with pytest.raises(OSError, match="in use"):
            await TlsNetwork(TlsSettings.load(None, []), SystemClock(), AddressRanges(PROXY)).listen(
                Answering, HOST, port.port, Link.REMOTING
            )
        await ended(port)

    run(story())
