"""TLS contexts from files that may change, and the network that uses them.

Invariant: a connection is plain only if the settings allow it for its port and its other end; none becomes plain because TLS
failed. A changed file counts once all files load together, unless less would be asked of the other end; until then the former
contexts stay in use. Open connections stay open."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from mqruntime.certificatedates import NoCertificate, Validity, validity_of
from mqruntime.clock import Clock
from mqruntime.hostports import AddressRanges
from mqruntime.log import fields
from mqruntime.network import PLAIN, CertificateStatus, Connector, Link, Network, OpenPort, Protection
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.settings import SettingsError
from mqruntime.tlsbounds import UNBOUNDED, bound
from mqruntime.tlsclient import check_readable, client_context, load_pair, load_trusted
from mqruntime.tlsconnector import TlsConnector
from mqruntime.tlsfiles import TlsUnusable, environment_file
from mqruntime.tlsport import TlsPort, listening_sockets
from mqruntime.tlssettings import ClientAuth, KeyPair, TlsMode, TlsOptions, TlsSettings, tls_options

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.BaseProtocol)
Stamps = tuple[tuple[int, int, int] | None, ...]

LOOK_MS = 1_000
EXPIRES_SOON_MS = 30 * 86_400_000
REMIND_MS = 86_400_000


class TlsContexts:
    """The contexts of `options`: `server` for accepted connections, `pages` for those of HTTP pages. `client` opens own
    ones."""

    def __init__(self, options: TlsOptions) -> None:
        """Reads the files. Raises TlsUnusable."""
        self.options = options
        self.validity = None if options.server is None else _validity_of(options.server)
        self.is_bounded = True
        """Whether the contexts of accepted connections have the bounds of mqruntime.tlsbounds."""
        self.server = self._server_context(options.client_auth)
        self.pages = self._server_context(
            ClientAuth.OPTIONAL if options.client_auth is ClientAuth.REQUIRE else options.client_auth
        )
        self.client: Connector = TlsConnector(client_context(options)) if options.connects else PLAIN

    def _server_context(self, client_auth: ClientAuth) -> ssl.SSLContext | None:
        options = self.options
        if options.mode is TlsMode.DISABLED:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.num_tickets = 0  # a resumed session outlives its certificate; making tickets costs 0.3 ms
        context.options |= ssl.OP_NO_TICKET  # the same for TLS 1.2
        self.is_bounded = bound(context) and self.is_bounded
        if options.server is None:
            from mqruntime.certificates import CannotIssue, self_signed_pair

            try:
                with self_signed_pair() as pair:
                    load_pair(context, pair)
            except CannotIssue as error:
                raise TlsUnusable(f"tls.test.mode.enable: {error}") from None
            return context
        load_pair(context, options.server)
        if client_auth is not ClientAuth.NONE:
            assert options.client_trust is not None
            load_trusted(context, options.client_trust)
            context.verify_mode = (
                ssl.CERT_REQUIRED if client_auth is ClientAuth.REQUIRE else ssl.CERT_OPTIONAL
            )
        return context


def network_of_environment(clock: Clock) -> Network:
    """The network of a server without a configuration file: TLS on all connections by the file that FILE_VARIABLE names; plain
    without one. Raises TlsUnusable."""
    file = environment_file()
    if file is None:
        return PLAIN
    try:
        return TlsNetwork(
            TlsSettings.load(None, ["tls.server.mode=enforcing", f"tls.config.file={file}"]), clock
        )
    except SettingsError as error:
        raise TlsUnusable(str(error)) from None


class TlsNetwork:
    """The network of one server. `settings` name the files. Connections from `proxies` begin with a PROXY header."""

    def __init__(self, settings: TlsSettings, clock: Clock, proxies: AddressRanges | None = None) -> None:
        """Reads the files. Raises SettingsError, TlsUnusable."""
        self._settings = settings
        self._clock = clock
        self._proxies = proxies or AddressRanges()
        self._contexts, self._stamps = self._loaded()
        self._reported: object = None
        """The changed files that are not used, and the reason."""
        self._reports = RepeatedFailures(REMIND_MS)
        self.reloads = self.failed_reloads = 0

    @property
    def options(self) -> TlsOptions:
        return self._contexts.options

    @property
    def protection(self) -> Protection:
        if self.options.mode is not TlsMode.ENFORCING:
            return Protection.NONE
        asks = self.options.client_auth is ClientAuth.REQUIRE
        return Protection.CERTIFICATE if asks else Protection.TLS

    @property
    def warnings(self) -> Sequence[str]:
        warnings = [*self.options.warnings]
        if self._proxies.have_all_of_a_family:
            warnings.append("proxyProtocolHosts: each client may claim any source address")
        if not self._contexts.is_bounded:
            warnings.append(UNBOUNDED)
        return warnings

    @property
    def validity(self) -> Validity | None:
        """Of this server's certificate; None without one."""
        return self._contexts.validity

    @property
    def certificate(self) -> CertificateStatus | None:
        validity = self.validity
        if validity is None:
            return None
        return CertificateStatus(validity.ends_ms - self._clock.now_ms(), self.reloads, self.failed_reloads)

    async def listen(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int, link: Link
    ) -> OpenPort:
        mode = self.options.mode
        proxies = self._proxies if link is Link.REMOTING else AddressRanges()
        if mode is TlsMode.DISABLED and not proxies:
            return await PLAIN.listen(make, host, port, link)

        def takes_plain(source: str) -> bool:
            is_java_slave = link is Link.REPLICATION and source in self.options.plain_hosts
            return mode is not TlsMode.ENFORCING or is_java_slave

        def context() -> ssl.SSLContext:
            chosen = self._contexts.pages if link is Link.PAGES else self._contexts.server
            assert chosen is not None
            return chosen

        sockets = await listening_sockets(host, port)
        contexts = None if mode is TlsMode.DISABLED else context
        return TlsPort(sockets, make, contexts, takes_plain, proxies, self._clock)

    async def connect(self, make: Callable[[], P], host: str, port: int, timeout_ms: int, link: Link) -> P:
        to_java = link is Link.REPLICATION and host in self.options.plain_hosts
        connector: Connector = PLAIN if to_java else self._contexts.client
        return await connector.connect(make, host, port, timeout_ms, link)

    async def watch(self) -> None:
        """Looks for changed files, and at the dates of the certificate, until it is cancelled."""
        while True:
            self._look_at_dates()
            await asyncio.sleep(LOOK_MS / 1000)
            await self.look()

    async def look(self) -> None:
        """Loads the files again if one has changed."""
        there = self._stamps
        try:
            there = await asyncio.to_thread(_stamps_of, self.options.files)
            if there == self._stamps:
                return
            contexts, stamps = await asyncio.to_thread(self._loaded)
            if contexts.options.mode is not self.options.mode:
                raise TlsUnusable(
                    "they would change the mode of open ports: restart, or put the certificate back"
                )
            if (key := contexts.options.asks_less_than(self.options)) is not None:
                raise TlsUnusable(
                    f"they would ask less of the other end, by {key}, as a half-written file may: restart if it is meant"
                )
        except (SettingsError, TlsUnusable, OSError, RuntimeError, MemoryError) as error:
            if (there, str(error)) != self._reported:
                self._reported = there, str(error)
                self.failed_reloads += 1
                said = fields(why=error, hint="the former ones stay in use")
                logger.error("changed TLS files not used", extra=said)
            return  # tried again at the next look: the cause may be elsewhere
        self._contexts, self._stamps, self._reported = contexts, stamps, None
        self.reloads += 1
        logger.info("TLS files loaded", extra=fields(files=" ".join(map(str, contexts.options.files))))

    def _loaded(self) -> tuple[TlsContexts, Stamps]:
        """What the files say now. Their stamps are taken before they are read, so a later change is noticed."""
        options = tls_options(self._settings)
        stamps = _stamps_of(options.files)
        return TlsContexts(options), stamps

    def _look_at_dates(self) -> None:
        validity, now_ms = self.validity, self._clock.now_ms()
        if validity is None:
            return
        left_ms = validity.ends_ms - now_ms
        is_early = now_ms < validity.begins_ms
        if not is_early and left_ms > EXPIRES_SOON_MS:
            return
        if not self._reports.failed(("dates", validity), self._clock.monotonic_ms()):
            return
        assert self.options.server is not None
        file = self.options.server.certificate
        if is_early:
            logger.error("certificate not yet valid", extra=fields(file=file, hint="look at the clock"))
        elif left_ms <= 0:
            logger.error(
                "certificate expired", extra=fields(file=file, hint="replace it; no restart is needed")
            )
        else:
            days = left_ms // 86_400_000
            logger.warning("certificate expires soon", extra=fields(file=file, days=days))


def _validity_of(pair: KeyPair) -> Validity:
    check_readable(pair.certificate)
    try:
        return validity_of(pair.certificate.read_text(errors="replace"))
    except OSError as error:
        raise TlsUnusable(f"{pair.certificate} cannot be read: {error.strerror}") from None
    except NoCertificate as error:
        raise TlsUnusable(f"{pair.certificate}: {error}") from None


def _stamps_of(files: Iterable[Path]) -> Stamps:
    return tuple(map(_stamp, files))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file; None if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
