"""Ports that tell TLS from plain connections, both loops: who is served, who is not, what is logged, and reloading."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvloop

from mqruntime import tlsbounds, tlsport
from mqruntime.certificates import make_server
from mqruntime.clock import SystemClock
from mqruntime.network import PLAIN, Connector, Link, OpenPort, Protection
from mqruntime.settings import SettingsError
from mqruntime.tls import TlsNetwork, network_of_environment
from mqruntime.tlsbounds import UNBOUNDED
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector, connector_of_environment
from mqruntime.tlsfiles import FILE_VARIABLE, TlsUnusable
from mqruntime.tlssettings import ClientAuth, TlsSettings
from tests.support.pki import Pki

HOST = "127.0.0.1"
REMOTING = Link.REMOTING
Run = Callable[[Coroutine[Any, Any, None]], None]

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    open: ClassVar[set[Echo]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Asking(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.came.done() and self.received.endswith(b"."):
            self.came.set_result(bytes(self.received))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.came.done():
            self.came.set_exception(error or ConnectionError("closed"))
            self.came.exception()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def network(lines: list[str]) -> TlsNetwork:
    return TlsNetwork(TlsSettings.load(None, lines), SystemClock())


async def opened(lines: list[str], link: Link = REMOTING) -> OpenPort:
    return await network(lines).listen(Echo, HOST, 0, link)


async def echoed(connector: Connector, port: int, host: str = HOST, link: Link = REMOTING) -> bytes:
    """What comes back. Raises OSError."""
    asking = await connector.connect(Asking, host, port, 10_000, link)
    asking.transport.write(b"hello.")
    try:
        return await asking.came
    finally:
        asking.transport.abort()


async def ended(port: OpenPort) -> None:
    """Closes the port, and waits until its connections have ended, which clients do."""
    await port.close()
    while Echo.open:  # noqa: ASYNC110 - two loops take turns here
        await asyncio.sleep(0.01)


def client_of(pki: Pki, *lines: str) -> TlsConnector:
    return TlsConnector(
        context_from(pki.file("client.properties", [f"tls.client.trustCertPath={pki.ca}", *lines]))
    )


def alice(pki: Pki) -> TlsConnector:
    own = [f"tls.client.certPath={pki.folder}/alice.pem", f"tls.client.keyPath={pki.folder}/alice.key"]
    return client_of(pki, *own)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.fields["why"] for record in caplog.records if record.message == "connection refused"]  # type: ignore[attr-defined]


def test_a_permissive_port_serves_plain_and_tls(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.server("permissive"))
        assert await echoed(PLAIN, port.port) == await echoed(client_of(pki), port.port) == b"hello."
        await ended(port)

    run(story())


def test_an_enforcing_port_serves_tls_only_and_names_a_plain_client_once(
    pki: Pki, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        port = await opened(pki.server("enforcing"))
        for _ in range(3):
            with pytest.raises(OSError):
                await echoed(PLAIN, port.port)
        assert await echoed(client_of(pki), port.port) == b"hello."
        await ended(port)

    run(story())
    assert refusals(caplog) == ["plain connection at a port that serves only TLS"]


def test_a_disabled_port_serves_plain(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.server("disabled"))
        assert await echoed(PLAIN, port.port) == b"hello."
        with pytest.raises(OSError):
            await echoed(client_of(pki), port.port)
        await ended(port)

    run(story())


def test_a_port_may_ask_for_a_certificate(pki: Pki, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        port = await opened(pki.mutual())
        with pytest.raises(OSError):
            await echoed(client_of(pki), port.port)
        stranger = client_of(
            pki,
            f"tls.client.certPath={pki.folder}/stranger/all.pem",
            f"tls.client.keyPath={pki.folder}/stranger/all.key",
        )
        with pytest.raises(OSError):
            await echoed(stranger, port.port)
        assert await echoed(alice(pki), port.port) == b"hello."
        await ended(port)

    run(story())
    assert len(refusals(caplog)) == 2 and all("handshake failed" in why for why in refusals(caplog))


def test_a_page_is_asked_for_without_a_certificate_but_a_wrong_one_is_refused(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.mutual(), Link.PAGES)
        assert await echoed(client_of(pki), port.port, link=Link.PAGES) == b"hello."
        await ended(port)

    run(story())


def test_replication_stays_plain_only_with_the_named_java_brokers(pki: Pki, run: Run) -> None:
    async def story() -> None:
        strict = network(pki.server())
        lenient = network(pki.server("enforcing", f"tls.ha.plainHosts={HOST}"))
        port = await strict.listen(Echo, HOST, 0, Link.REPLICATION)
        assert await echoed(strict, port.port, link=Link.REPLICATION) == b"hello."
        with pytest.raises(OSError):
            await echoed(lenient, port.port, link=Link.REPLICATION)
        await ended(port)
        port = await lenient.listen(Echo, HOST, 0, Link.REPLICATION)
        assert await echoed(lenient, port.port, link=Link.REPLICATION) == b"hello."
        await ended(port)
        port = await lenient.listen(Echo, HOST, 0, REMOTING)
        with pytest.raises(OSError):
            await echoed(PLAIN, port.port)
        await ended(port)

    run(story())


def test_a_server_that_is_not_the_one_dialled_is_refused(pki: Pki, run: Run) -> None:
    make_server(pki.folder, "elsewhere", ["elsewhere.example"], replace=True)

    async def story() -> None:
        port = await opened(pki.server(name="elsewhere"))
        with pytest.raises(
            ConnectionRefusedError, match="certificate verify failed .*not valid for '127.0.0.1'"
        ):
            await echoed(client_of(pki), port.port)
        assert await echoed(client_of(pki, "tls.client.authServer=false"), port.port) == b"hello."
        await ended(port)
        port = await opened(
            ["tls.server.mode=enforcing", f"tls.server.certPath={pki.folder}/stranger/all.pem",
             f"tls.server.keyPath={pki.folder}/stranger/all.key"],
        )  # fmt: skip
        with pytest.raises(ConnectionRefusedError, match="certificate verify failed"):
            await echoed(client_of(pki), port.port)
        with pytest.raises(ConnectionRefusedError):
            await echoed(TlsConnector(ssl.create_default_context()), port.port)
        await ended(port)

    run(story())


def test_the_common_name_of_a_certificate_is_no_host(pki: Pki, run: Run) -> None:
    make_server(pki.folder, "localhost", ["10.9.9.9"], replace=True)

    async def story() -> None:
        port = await opened(pki.server(name="localhost"))
        with pytest.raises(ConnectionRefusedError, match="certificate verify failed"):
            await echoed(client_of(pki), port.port, host="localhost")
        await ended(port)

    run(story())


def test_a_server_whose_certificate_names_other_addresses_is_refused(pki: Pki, run: Run) -> None:
    make_server(pki.folder, "narrow", [HOST], [f"{HOST}:1"], replace=True)

    async def story() -> None:
        port = await opened(pki.server(name="narrow"))
        with pytest.raises(
            ConnectionRefusedError, match=f"the certificate there is not that of {HOST}:{port.port}"
        ):
            await echoed(client_of(pki), port.port)
        await ended(port)

    run(story())


def test_a_tls_client_does_not_become_plain_where_there_is_no_tls(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await PLAIN.listen(Echo, HOST, 0, REMOTING)
        with pytest.raises(ConnectionRefusedError, match="TLS handshake failed"):
            await echoed(client_of(pki), port.port)
        await ended(port)

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_ticket_lets_a_session_outlive_its_certificate(
    pki: Pki, run: Run, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.minimum_version = context.maximum_version = version

    async def story() -> None:
        port = await opened(pki.server())
        asking = await TlsConnector(context).connect(Asking, HOST, port.port, 10_000, REMOTING)
        asking.transport.write(b"hello.")
        assert await asking.came == b"hello."
        session = asking.transport.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket
        asking.transport.abort()
        await ended(port)

    run(story())


@pytest.mark.parametrize("link", [REMOTING, Link.PAGES])
def test_no_session_of_tls_1_2_is_kept(pki: Pki, run: Run, link: Link) -> None:
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.load_cert_chain(pki.folder / "alice.pem", pki.folder / "alice.key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def session(port: int, former: ssl.SSLSession | None) -> ssl.SSLSession | None:
        plain = socket.create_connection((HOST, port))
        with context.wrap_socket(plain, server_hostname=HOST, session=former) as secured:
            secured.sendall(b"hello.")
            assert secured.recv(6) == b"hello."
            assert not secured.session_reused
            kept = secured.session
            with suppress(OSError):
                secured.unwrap().close()  # OpenSSL forgets the session of a connection that ends without this
            return kept

    async def story() -> None:
        port = await opened(pki.mutual(), link)
        await asyncio.to_thread(session, port.port, await asyncio.to_thread(session, port.port, None))
        await ended(port)

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_many_certificates_is_refused(
    pki: Pki, run: Run, version: ssl.TLSVersion, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, others = (pki.folder / "alice.pem").read_text(), (pki.folder / "all.pem").read_text()

    def context(count: int) -> ssl.SSLContext:
        chain = tmp_path / f"{count}.pem"
        chain.write_text(own + count * others)
        made = ssl.create_default_context(cafile=str(pki.ca))
        made.load_cert_chain(chain, pki.folder / "alice.key")
        made.minimum_version = made.maximum_version = version
        return made

    async def story() -> None:
        port = await opened(pki.mutual())
        assert await echoed(TlsConnector(context(5)), port.port) == b"hello."
        with pytest.raises(OSError):
            await echoed(TlsConnector(context(40)), port.port)
        await ended(port)

    run(story())
    assert refusals(caplog) == ["TLS handshake failed: excessive message size"]


def test_a_python_that_cannot_set_the_bounds_is_reported(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    assert UNBOUNDED not in network(pki.mutual()).warnings
    monkeypatch.setattr(tlsbounds, "_control", lambda: None)
    assert UNBOUNDED in network(pki.mutual()).warnings


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_served(pki: Pki, run: Run, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.minimum_version = context.maximum_version = version

    async def story() -> None:
        port = await opened(pki.server())
        assert await echoed(TlsConnector(context), port.port) == b"hello."
        await ended(port)

    run(story())


@pytest.mark.parametrize("first", [b"\x16", b"\x16garbage", b"", None])
def test_a_connection_that_does_not_decide_is_ended(
    pki: Pki, run: Run, first: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlsport, "DECISION_MS", 50)
    monkeypatch.setattr(tlsport, "HANDSHAKE_MS", 50)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        reader, writer = await asyncio.open_connection(HOST, port.port)
        if first is None:
            writer.write_eof()
        elif first:
            writer.write(first)
        try:
            rest = await reader.read()
        except ConnectionError:
            rest = b""
        assert b"hello" not in rest, "an alert of TLS at most"
        writer.close()
        assert await echoed(client_of(pki), port.port) == b"hello."
        await ended(port)

    run(story())


def test_the_longest_silent_connection_makes_room(
    pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlsport, "UNDECIDED_MAX", 2)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        silent = [await asyncio.open_connection(HOST, port.port) for _ in range(3)]
        assert await silent[0][0].read() == b""
        for _, writer in silent[1:]:
            writer.write(b"hello.")
        assert [await reader.readexactly(6) for reader, _ in silent[1:]] == [b"hello."] * 2
        for _, writer in silent:
            writer.close()
        await ended(port)

    run(story())


def test_handshakes_that_take_long_give_way_to_others(
    pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their place is taken after PATIENCE_MS, long before they would end by themselves."""
    monkeypatch.setattr(tlsport, "IN_PROGRESS_MAX", 2)
    monkeypatch.setattr(tlsport, "PATIENCE_MS", 50)
    monkeypatch.setattr(tlsport, "HANDSHAKE_MS", 3_600_000)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        silent = [await asyncio.open_connection(HOST, port.port) for _ in range(2)]
        for _, writer in silent:
            writer.write(b"\x16\x03\x01")
        assert await echoed(client_of(pki), port.port) == b"hello."
        for _, writer in silent:
            writer.close()
        await ended(port)

    run(story())


def test_one_host_does_not_take_all_places(pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tlsport, "OF_ONE_HOST_MAX", 2)
    for name in ("PATIENCE_MS", "HANDSHAKE_MS"):
        monkeypatch.setattr(tlsport, name, 3_600_000)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        silent = [
            await asyncio.open_connection(HOST, port.port, local_addr=("127.0.0.2", 0)) for _ in range(5)
        ]
        for _, writer in silent:
            writer.write(b"\x16\x03\x01")
        assert await echoed(client_of(pki), port.port) == b"hello."
        for _, writer in silent:
            writer.close()
        await ended(port)

    run(story())


def test_what_has_waited_for_long_is_closed_and_known_hosts_come_first(
    pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlsport, "PATIENCE_MS", 50)
    monkeypatch.setattr(tlsport, "HANDSHAKE_MS", 3_600_000)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        assert await echoed(client_of(pki), port.port) == b"hello."  # from now on a known host
        monkeypatch.setattr(tlsport, "IN_PROGRESS_MAX", 1)
        silent = []
        for number in range(20):
            source = f"127.0.0.{2 + number}"
            silent.append(await asyncio.open_connection(HOST, port.port, local_addr=(source, 0)))
            silent[-1][1].write(b"\x16\x03\x01")
        assert await echoed(client_of(pki), port.port) == b"hello."
        assert sum(reader.at_eof() for reader, _ in silent) < 10, "it did not wait for all of them"
        monkeypatch.setattr(tlsport, "WAITING_MS", -1)
        for reader, writer in silent:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        await ended(port)

    run(story())


@pytest.mark.parametrize("hosts", [1, 3])
def test_beyond_the_bound_the_host_with_most_loses_the_oldest(
    pki: Pki, run: Run, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlsport, "WAITING_MAX", 3)
    monkeypatch.setattr(tlsport, "IN_PROGRESS_MAX", 0)

    async def story() -> None:
        port = await opened(pki.server("permissive"))
        sources = [f"127.0.0.{2 + number % hosts}" for number in (0, 0, 1, 2)]
        waiting = []
        for source in sources:
            reader, writer = await asyncio.open_connection(HOST, port.port, local_addr=(source, 0))
            writer.write(b"\x16\x03\x01")
            waiting.append((reader, writer))
            while port._undecided:  # type: ignore[attr-defined]  # noqa: ASYNC110, SLF001 - it is decided on in order
                await asyncio.sleep(0.01)
        with suppress(ConnectionError):
            assert await waiting[0][0].read() == b""
        assert [reader.at_eof() for reader, _ in waiting[1:]] == [False] * 3
        for _, writer in waiting:
            writer.close()
        await port.close()

    run(story())


def test_closing_ends_what_is_not_served_and_leaves_what_is(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.server("permissive"))
        served = await client_of(pki).connect(Asking, HOST, port.port, 10_000, REMOTING)
        silent = [await asyncio.open_connection(HOST, port.port) for _ in range(3)]
        silent[1][1].write(b"\x16\x03\x01")
        await asyncio.sleep(0.05)
        await port.close()
        for reader, writer in silent:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        served.transport.write(b"hello.")
        assert await served.came == b"hello."
        served.transport.abort()
        with pytest.raises(OSError):
            await echoed(PLAIN, port.port)

    run(story())


def test_a_crowd_of_handshakes_is_served(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.server())
        client = client_of(pki)
        answers = await asyncio.gather(*(echoed(client, port.port) for _ in range(100)))
        assert answers == [b"hello."] * 100
        await ended(port)

    run(story())


def test_a_busy_port_is_reported_as_by_the_plain_network(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await opened(pki.server())
        with pytest.raises(OSError, match="in use"):
            await network(pki.server()).listen(Echo, HOST, port.port, REMOTING)
        await ended(port)

    run(story())


# Files


def serial_of(port: int) -> str:
    """Of the certificate that new connections get, as OpenSSL's own client shows it."""
    pem = ssl.get_server_certificate((HOST, port))
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-serial"], input=pem, text=True, capture_output=True, check=True
    )
    return shown.stdout


def copy_of(pki: Pki, folder: Path) -> list[str]:
    for name in ("all.pem", "all.key", "ca.pem"):
        shutil.copy(pki.folder / name, folder / name)
    return [
        "tls.server.mode=enforcing",
        f"tls.server.certPath={folder}/all.pem",
        f"tls.server.keyPath={folder}/all.key",
    ]


@needs_openssl
def test_a_renewed_certificate_is_served_and_open_connections_stay(
    pki: Pki, run: Run, tmp_path: Path
) -> None:
    lines = copy_of(pki, tmp_path)
    shutil.copy(pki.folder / "ca.key", tmp_path / "ca.key")

    async def story() -> None:
        found = network(lines)
        port = await found.listen(Echo, HOST, 0, REMOTING)
        before = await asyncio.to_thread(serial_of, port.port)
        served = await client_of(pki).connect(Asking, HOST, port.port, 10_000, REMOTING)
        await found.look()
        assert found.reloads == 0
        make_server(tmp_path, "all", [HOST, "localhost"], replace=True)
        await found.look()
        assert found.reloads == 1
        after = await asyncio.to_thread(serial_of, port.port)
        assert before != after
        served.transport.write(b"hello.")
        assert await served.came == b"hello."
        served.transport.abort()
        await ended(port)

    run(story())


@needs_openssl
def test_a_renewed_certificate_of_the_same_key_is_served(pki: Pki, run: Run, tmp_path: Path) -> None:
    """Upstream waits for both files to change."""
    lines = copy_of(pki, tmp_path)
    subprocess.run(
        ["openssl", "req", "-x509", "-new", "-key", tmp_path / "all.key", "-out", tmp_path / "other.pem", "-days", "9",
         "-subj", "/CN=renewed"], check=True, capture_output=True,
    )  # fmt: skip

    async def story() -> None:
        found = network(lines)
        port = await found.listen(Echo, HOST, 0, REMOTING)
        before = await asyncio.to_thread(serial_of, port.port)
        shutil.copy(tmp_path / "other.pem", tmp_path / "all.pem")
        await found.look()
        assert await asyncio.to_thread(serial_of, port.port) != before
        await ended(port)

    run(story())


def test_a_broken_pair_is_reported_once_and_the_former_one_stays(
    pki: Pki, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = copy_of(pki, tmp_path)

    async def story() -> None:
        found = network(lines)
        port = await found.listen(Echo, HOST, 0, REMOTING)
        whole = (tmp_path / "all.pem").read_bytes()
        for broken in (b"", whole[:300], (pki.folder / "alice.pem").read_bytes()):
            (tmp_path / "all.pem").write_bytes(broken)
            await found.look()
            await found.look()
            assert await echoed(client_of(pki), port.port) == b"hello."
        (tmp_path / "all.key").unlink()
        await found.look()
        assert (found.reloads, found.failed_reloads) == (0, 4)
        shutil.copy(pki.folder / "all.key", tmp_path / "all.key")
        (tmp_path / "all.pem").write_bytes(whole)
        await found.look()
        assert (found.reloads, found.failed_reloads) == (1, 4)
        await ended(port)

    run(story())
    reported = [record for record in caplog.records if record.message == "changed TLS files not used"]
    assert len(reported) == 4


def test_a_changed_file_of_settings_counts_too(pki: Pki, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    own = f"tls.server.certPath={pki.folder}/all.pem\ntls.server.keyPath={pki.folder}/all.key\n"
    file.write_text(own)

    async def story() -> None:
        found = network(["tls.server.mode=enforcing", f"tls.config.file={file}"])
        port = await found.listen(Echo, HOST, 0, REMOTING)
        assert await echoed(client_of(pki), port.port) == b"hello."
        file.write_text(f"{own}tls.server.need.client.auth=require\ntls.server.trustCertPath={pki.ca}\n")
        await found.look()
        with pytest.raises(OSError):
            await echoed(client_of(pki), port.port)
        assert await echoed(alice(pki), port.port) == b"hello."
        await ended(port)

    run(story())


@pytest.mark.parametrize(
    "change",
    [
        "tls.client.certPath=/tmp/a\\u0000b\ntls.client.keyPath=/k\n",
        "tls.test.mode.enable=true\n",
        "tls.server.keyPath=\n",
    ],
)
def test_whatever_a_changed_file_says_the_next_good_one_counts(
    pki: Pki, run: Run, tmp_path: Path, change: str
) -> None:
    file = tmp_path / "tls.properties"
    own = f"tls.server.certPath={pki.folder}/all.pem\ntls.server.keyPath={pki.folder}/all.key\n"
    file.write_text(own)

    async def story() -> None:
        found = network([f"tls.config.file={file}", "tls.enable=true"])
        port = await found.listen(Echo, HOST, 0, REMOTING)
        file.write_text(change if "keyPath=\n" in change else own + change)
        await found.look()
        assert await echoed(client_of(pki), port.port) == b"hello."
        file.write_text(f"{own}\n")
        await found.look()
        assert found.reloads >= 1
        assert await echoed(client_of(pki), port.port) == b"hello."
        await ended(port)

    run(story())


def test_a_file_cut_off_at_any_place_asks_no_less_of_the_other_end(
    pki: Pki, run: Run, tmp_path: Path
) -> None:
    """Connections that are accepted while the port asks for no certificate may claim to be any server, as long as they last."""
    whole = "".join(f"{line}\n" for line in pki.mutual() if not line.startswith("tls.server.mode"))
    file = tmp_path / "tls.properties"
    file.write_text(whole)

    async def story() -> None:
        found = network(["tls.server.mode=enforcing", f"tls.config.file={file}"])
        port = await found.listen(Echo, HOST, 0, REMOTING)
        for size in range(len(whole)):
            file.write_text(whole[:size])
            await found.look()
            assert found.options.client_auth is ClientAuth.REQUIRE and found.options.server_trust == pki.ca
        file.write_text(whole.replace("=require", "=optional"))
        await found.look()
        with pytest.raises(OSError):
            await echoed(client_of(pki), port.port)
        assert await echoed(alice(pki), port.port) == b"hello."
        await ended(port)

    run(story())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("need.client.auth=require", "need.client.auth=none"), "tls.server.need.client.auth"),
        (("tls.server.need.client.auth=require\n", ""), "tls.server.need.client.auth"),
        (("tls.client.trust", "#"), "tls.client.trustCertPath"),
        (("tls.client.trust", "tls.client.authServer=false\ntls.client.trust"), "tls.client.authServer"),
        (
            ("need.client.auth=require", "need.client.auth=none\ntls.test.mode.enable=true"),
            "tls.test.mode.enable",
        ),
    ],
)
def test_a_changed_file_that_asks_less_is_reported_and_not_used(
    pki: Pki, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: tuple[str, str], key: str
) -> None:
    whole = "".join(f"{line}\n" for line in pki.mutual() if not line.startswith("tls.server.mode"))
    file = tmp_path / "tls.properties"
    file.write_text(whole)

    async def story() -> None:
        found = network(["tls.server.mode=enforcing", f"tls.config.file={file}"])
        before = found.options
        file.write_text(whole.replace(*change))
        for _ in range(2):
            await found.look()
        assert (found.options, found.failed_reloads) == (before, 1)
        file.write_text(f"{whole}\n")
        await found.look()
        assert found.reloads == 1

    run(story())
    [said] = [record for record in caplog.records if record.message == "changed TLS files not used"]
    assert f"by {key}, " in str(said.fields["why"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["all.pem", "all.key", "ca.pem"])
def test_a_fifo_in_place_of_a_file_is_an_error_at_once(pki: Pki, tmp_path: Path, name: str) -> None:
    lines = [*copy_of(pki, tmp_path), f"tls.server.trustCertPath={tmp_path}/ca.pem"]
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(TlsUnusable, match=f"{name} cannot be read: it is no file"):
        network([*lines, "tls.server.need.client.auth=optional"])


def test_a_file_that_names_others_is_loaded_once(pki: Pki, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    own = f"tls.server.certPath={pki.folder}/all.pem\ntls.server.keyPath={pki.folder}/all.key\n"
    file.write_text(own)

    async def story() -> None:
        found = network(["tls.server.mode=enforcing", f"tls.config.file={file}"])
        file.write_text(
            f"{own}tls.server.need.client.auth=optional\ntls.server.trustCertPath={tmp_path}/late.pem\n"
        )
        for _ in range(3):
            await found.look()
        assert (found.reloads, found.failed_reloads) == (0, 1), "the named file is missing"
        shutil.copy(pki.ca, tmp_path / "late.pem")
        for _ in range(3):
            await found.look()
        assert (found.reloads, found.failed_reloads) == (1, 1)

    run(story())


def encrypted(pki: Pki, folder: Path, password: str) -> Path:
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", pki.folder / "all.key", "-out", folder / "locked.key",
         "-passout", f"pass:{password}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "locked.key"


@needs_openssl
def test_an_encrypted_key_is_opened_by_its_password_only(pki: Pki, tmp_path: Path) -> None:
    key = encrypted(pki, tmp_path, "sesame")
    lines = [
        "tls.server.mode=enforcing",
        f"tls.server.certPath={pki.folder}/all.pem",
        f"tls.server.keyPath={key}",
    ]
    network([*lines, "tls.server.keyPassword=sesame"])
    for wrong in ([], ["tls.server.keyPassword=other"]):
        with pytest.raises(
            TlsUnusable, match="locked.key are no pair that can be used: .*keyPassword"
        ) as caught:
            network([*lines, *wrong])
        assert "other" not in str(caught.value)


@pytest.mark.parametrize("name", ["all.pem", "all.key", "ca.pem"])
def test_a_missing_file_ends_a_start_with_its_name(pki: Pki, tmp_path: Path, name: str) -> None:
    lines = [*copy_of(pki, tmp_path), f"tls.server.trustCertPath={tmp_path}/ca.pem"]
    (tmp_path / name).unlink()
    with pytest.raises(TlsUnusable, match=f"{name} cannot be read: No such file"):
        network([*lines, "tls.server.need.client.auth=optional"])


@pytest.mark.parametrize(
    ("days_away", "message"),
    [
        (-1, "certificate not yet valid"),
        (336, "certificate expires soon"),
        (366, "certificate expired"),
        (300, None),
    ],
)
def test_the_dates_of_the_certificate_are_watched(
    pki: Pki, days_away: int, message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Shifted(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + days_away * 86_400_000

    async def story() -> None:
        found = TlsNetwork(TlsSettings.load(None, pki.server()), Shifted())
        watching = asyncio.create_task(found.watch())
        await asyncio.sleep(0)
        watching.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [record.message for record in caplog.records] == ([] if message is None else [message])


# Tools and test mode


def test_tools_take_the_file_that_the_environment_names(
    pki: Pki, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    assert connector_of_environment() is PLAIN
    assert network_of_environment(SystemClock()) is PLAIN
    monkeypatch.setenv(FILE_VARIABLE, str(pki.file("tools.properties", pki.server())))

    async def story() -> None:
        found = network_of_environment(SystemClock())
        assert found.protection is Protection.TLS
        port = await found.listen(Echo, HOST, 0, REMOTING)
        assert await echoed(connector_of_environment(), port.port) == b"hello."
        with pytest.raises(OSError):
            await echoed(PLAIN, port.port)
        await ended(port)

    run(story())
    monkeypatch.setenv(FILE_VARIABLE, "/nowhere/tls.properties")
    for made in (connector_of_environment, lambda: network_of_environment(SystemClock())):
        with pytest.raises(TlsUnusable, match="/nowhere/tls.properties: cannot be read"):
            made()


def test_test_mode_needs_no_files_and_checks_nothing(run: Run, tmp_path: Path) -> None:
    asked = ["tls.server.mode=enforcing", "tls.test.mode.enable=true"]

    async def story() -> None:
        found = network(asked)
        port = await found.listen(Echo, HOST, 0, REMOTING)
        assert await echoed(found, port.port) == b"hello."
        await ended(port)

    run(story())


@pytest.mark.parametrize(
    ("more", "protection"),
    [
        (["tls.server.mode=permissive"], Protection.NONE),
        ([], Protection.TLS),
        (["tls.server.need.client.auth=require"], Protection.CERTIFICATE),
        (["tls.server.need.client.auth=optional"], Protection.TLS),
    ],
)
def test_the_protection_is_that_of_the_weakest_connection(
    pki: Pki, more: list[str], protection: Protection
) -> None:
    assert network([*pki.server(), *more]).protection is protection


def test_an_unusable_setting_is_no_network(pki: Pki) -> None:
    with pytest.raises(SettingsError):
        network(["tls.server.mode=on"])


def test_a_host_without_an_address_is_an_error_of_the_system(pki: Pki, run: Run) -> None:
    async def story() -> None:
        with pytest.raises(OSError):
            await network(pki.server()).listen(Echo, "no-such-host.invalid", 0, REMOTING)

    run(story())


def test_ports_on_every_address_share_a_number(pki: Pki, run: Run) -> None:
    async def story() -> None:
        port = await network(pki.server()).listen(Echo, "", 0, REMOTING)
        with socket.create_connection((HOST, port.port)):
            pass
        await ended(port)

    run(story())
