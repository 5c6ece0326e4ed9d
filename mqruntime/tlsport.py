"""One port for plain connections and for TLS, distinguished by the first byte. Upstream: NettyRemotingServer.TlsModeHandler.

Invariant: a connection is served only after its first byte has come, within `DECISION_MS`, and a TLS one after its handshake;
no connection that is not served yet outlives `close`. A connection from a proxy is served only after its PROXY header, and
only a header from a proxy is read. A few handshakes begin in each turn of the loop, and few are in progress at a time, so that
a crowd of new connections does not hold up those that are open: the second message of each handshake costs up to a ms, and all
that have come are handled in one turn. A handshake that takes long gives way to another one. Behind a proxy, the limits of a
host are those of the client's host."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from ssl import SSLContext
from typing import NamedTuple

from mqruntime.clock import Clock
from mqruntime.hostports import AddressRanges
from mqruntime.log import fields
from mqruntime.network import BACKLOG, Forwarded
from mqruntime.otherprotocols import PREFIX_BYTES, PROXY_HEADER_BEGINS, UNEXPECTED_PROXY_HEADER
from mqruntime.proxyheader import PROXY_BYTES_MAX, ClientAddress, ProxyHeaderError, read_proxy_header
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.tlsconnector import why_no_handshake

logger = logging.getLogger(__name__)

DECISION_MS = 3_000
HANDSHAKE_MS = 10_000
UNDECIDED_MAX = 4_096
"""Beyond this the connection that has been silent for the longest time is closed."""
ACCEPTED_A_TURN = 64
BEGUN_A_TURN = 4
IN_PROGRESS_MAX, OF_ONE_HOST_MAX = 32, 16
PATIENCE_MS = 1_000
"""After this time a handshake in progress is ended, if others wait for its place."""
WAITING_MAX, WAITING_OF_ONE_HOST_MAX, HOSTS_A_TURN = 4_096, 128, 64
WAITING_MS = 3_000
"""What has waited longer for its handshake is closed: its client has given up."""
KNOWN_HOSTS_MAX = 1_024
"""Hosts whose handshake succeeded lately: they come first."""
AGAIN_MS = 1_000
"""Pause after the system had no room for another connection."""
HANDSHAKE = 0x16
"""First byte of a TLS connection: the type of its record."""
NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Make = Callable[[], asyncio.BaseProtocol]


@dataclass(slots=True)
class Undecided:
    """An accepted connection without a first byte."""

    host: str
    """The client's; the proxy's until a header with the client's is whole."""
    timer: asyncio.TimerHandle
    header: bytes | None
    """What has come of the PROXY header; None if no header is due."""
    source: ClientAddress | None = None
    """The client behind a proxy."""


class Waiting(NamedTuple):
    """A TLS connection whose handshake has not begun."""

    connection: socket.socket
    source: ClientAddress | None
    since_ms: int


class Underway(NamedTuple):
    """A handshake in progress."""

    host: str
    begun_ms: int


class TlsPort:
    """Serves connections to `sockets`, which listen, with protocols from `make`. `context()` is that of the next TLS
    connection; without it there is no TLS. `takes_plain(host)`: whether a plain connection from there is served. Connections
    from `proxies` begin with a PROXY header; with proxies, protocols are Forwarded."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Make,
        context: Callable[[], SSLContext] | None,
        takes_plain: Callable[[str], bool],
        proxies: AddressRanges,
        clock: Clock,
    ) -> None:
        self.port = int(sockets[0].getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._make = make
        self._context = context
        self._takes_plain = takes_plain
        self._proxies = proxies
        self._clock = clock
        self._undecided: OrderedDict[socket.socket, Undecided] = OrderedDict()
        self._waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        """TLS connections whose handshake has not begun, by host; hosts take turns."""
        self._waiting_count = 0
        self._known: OrderedDict[str, None] = OrderedDict()
        """Hosts whose handshake succeeded, the latest last."""
        self._begins: asyncio.Handle | None = None
        self._give_way: asyncio.TimerHandle | None = None
        self._handed_over: dict[asyncio.Task[None], Underway | None] = {}
        """Connections on their way to their protocol, the oldest first; None for plain ones."""
        self._again: asyncio.TimerHandle | None = None
        self._failures = RepeatedFailures()
        self._listen_on()

    async def close(self) -> None:
        """Accept no more. Connections that are served stay open."""
        if self._again is not None:
            self._again.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        for connection in list(self._undecided):
            self._decided(connection)
            connection.close()
        for timer in (self._begins, self._give_way):
            if timer is not None:
                timer.cancel()
        for queue in self._waiting.values():
            for each in queue:
                each.connection.close()
        self._waiting.clear()
        for task in list(self._handed_over):
            task.cancel()
        await asyncio.gather(*self._handed_over, return_exceptions=True)

    def _listen_on(self) -> None:
        self._again = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_ROOM:
                    self._pause(error)
                    return
                continue  # the other end gave up before
            self._accepted(connection, str(address[0]))

    def _pause(self, error: OSError) -> None:
        if self._failures.failed("accept", self._clock.monotonic_ms()):
            logger.error("no connection can be accepted", extra=fields(port=self.port, why=error.strerror))
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._again = self._loop.call_later(AGAIN_MS / 1000, self._listen_on)

    def _accepted(self, connection: socket.socket, host: str) -> None:
        connection.setblocking(False)
        if len(self._undecided) >= UNDECIDED_MAX:
            self._give_up(next(iter(self._undecided)))
        timer = self._loop.call_later(DECISION_MS / 1000, self._too_late, connection)
        header = b"" if self._proxies and host in self._proxies else None
        self._undecided[connection] = Undecided(host, timer, header)
        self._loop.add_reader(connection, self._look, connection)

    def _too_late(self, connection: socket.socket) -> None:
        undecided = self._undecided[connection]
        if undecided.header is not None:
            self._refused(undecided.host, f"no whole PROXY header within {DECISION_MS} ms")
        self._give_up(connection)

    def _give_up(self, connection: socket.socket) -> None:
        self._decided(connection)
        connection.close()

    def _decided(self, connection: socket.socket) -> None:
        """Waits for its first byte no longer."""
        self._loop.remove_reader(connection)
        self._undecided.pop(connection).timer.cancel()

    def _look(self, connection: socket.socket) -> None:
        undecided = self._undecided[connection]
        try:
            if undecided.header is not None and not self._take_header(connection, undecided):
                return
            first = connection.recv(PREFIX_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except ProxyHeaderError as error:
            self._refused(undecided.host, str(error))
            first = b""
        except OSError:
            first = b""
        self._decided(connection)
        host, source = undecided.host, undecided.source
        if not first:
            connection.close()
        elif first[0] == HANDSHAKE and self._context is not None:
            self._make_room(host)
            waiting = Waiting(connection, source, self._clock.monotonic_ms())
            self._waiting.setdefault(host, deque()).append(waiting)
            self._waiting_count += 1
            self._begin_soon()
        elif self._takes_plain(host):
            self._hand_over(connection, host, source, None)
        else:
            plain = "plain connection at a port that serves only TLS"
            self._refused(host, UNEXPECTED_PROXY_HEADER if first in PROXY_HEADER_BEGINS else plain)
            connection.close()

    def _take_header(self, connection: socket.socket, undecided: Undecided) -> bool:
        """Take the bytes of the header from the connection, and none after it: those are for the protocol, or for TLS. The
        bytes of an incomplete header are taken, too, or the loop would report them again and again. Returns whether the header
        is whole. Raises ProxyHeaderError, OSError."""
        assert undecided.header is not None
        before = undecided.header
        there = connection.recv(PROXY_BYTES_MAX, socket.MSG_PEEK)
        if not there:
            raise ConnectionResetError
        header = read_proxy_header(before + there)
        connection.recv(len(there) if header is None else header.size - len(before))
        if header is None:
            undecided.header = before + there
            return False
        undecided.header, undecided.source = None, header.source
        if header.source is not None:
            undecided.host = header.source.host
        return True

    def _begin_soon(self) -> None:
        if self._begins is None and self._waiting:
            self._begins = self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._begins = None
        of_host = Counter(each.host for each in self._handed_over.values() if each is not None)
        in_progress = of_host.total()
        begun, since_ms = 0, self._clock.monotonic_ms() - WAITING_MS
        for host in self._next_hosts():
            if begun == BEGUN_A_TURN or in_progress + begun == IN_PROGRESS_MAX:
                break
            while host in self._waiting and self._waiting[host][0].since_ms < since_ms:
                self._next_of(host).connection.close()
            if host in self._waiting and of_host[host] < OF_ONE_HOST_MAX:
                assert self._context is not None
                begun += 1
                waiting = self._next_of(host)
                self._hand_over(waiting.connection, host, waiting.source, self._context())
        if begun and in_progress + begun < IN_PROGRESS_MAX:
            self._begin_soon()
        elif self._waiting and self._give_way is None:
            self._give_way = self._loop.call_later(PATIENCE_MS / 1000, self._end_slow_ones)

    def _next_hosts(self) -> list[str]:
        known = [host for host in self._known if host in self._waiting]
        return known + [host for host in islice(self._waiting, HOSTS_A_TURN) if host not in self._known]

    def _make_room(self, host: str) -> None:
        """For one more waiting connection of `host`: where there are too many, the oldest of the host with most is closed."""
        if len(self._waiting.get(host, ())) >= WAITING_OF_ONE_HOST_MAX:
            self._next_of(host).connection.close()
        elif self._waiting_count >= WAITING_MAX:
            self._next_of(max(self._waiting, key=lambda each: len(self._waiting[each]))).connection.close()

    def _next_of(self, host: str) -> Waiting:
        """The connection of `host` that has waited for the longest time; its host's next turn is the last one."""
        queue = self._waiting.pop(host)
        waiting = queue.popleft()
        self._waiting_count -= 1
        if queue:
            self._waiting[host] = queue
        return waiting

    def _end_slow_ones(self) -> None:
        """End handshakes that take long while others wait."""
        self._give_way = None
        since_ms = self._clock.monotonic_ms() - PATIENCE_MS
        for task, handshake in list(self._handed_over.items()):
            if self._waiting and handshake is not None and handshake.begun_ms <= since_ms:
                task.cancel()
        self._begin_soon()

    def _hand_over(
        self, connection: socket.socket, host: str, source: ClientAddress | None, context: SSLContext | None
    ) -> None:
        task = self._loop.create_task(self._serve(connection, host, source, context))
        handshake = None if context is None else Underway(host, self._clock.monotonic_ms())
        self._handed_over[task] = handshake
        task.add_done_callback(self._handed_over_ended)

    def _handed_over_ended(self, task: asyncio.Task[None]) -> None:
        del self._handed_over[task]
        self._begin_soon()

    async def _serve(
        self, connection: socket.socket, host: str, source: ClientAddress | None, context: SSLContext | None
    ) -> None:
        timeout_s = None if context is None else HANDSHAKE_MS / 1000

        def made() -> asyncio.BaseProtocol:
            protocol = self._make()
            if source is not None:
                assert isinstance(protocol, Forwarded)
                protocol.forwarded_from(source)
            return protocol

        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                made, connection, ssl=context, ssl_handshake_timeout=timeout_s
            )
            if context is not None:
                self._known[host] = None
                self._known.move_to_end(host)
                if len(self._known) > KNOWN_HOSTS_MAX:
                    self._known.popitem(last=False)
        except OSError as error:
            connection.close()
            if context is not None:
                self._refused(host, why_no_handshake(error))
        except BaseException:
            connection.close()
            raise

    def _refused(self, host: str, why: str) -> None:
        if self._failures.failed((host, why), self._clock.monotonic_ms()):
            logger.warning("connection refused", extra=fields(peer=host, port=self.port, why=why))


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on each address of `host`; empty: every address. Raises OSError."""
    infos = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            try:
                listening = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(infos) > 1:
                    continue  # as without IPv6
                raise
            opened.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = opened[0].getsockname()[1] if port == 0 and len(opened) > 1 else port
            listening.bind((address[0], chosen, *address[2:]))
            listening.listen(BACKLOG)
        if not opened:
            raise OSError(errno.EAFNOSUPPORT, f"no address of {host} can be used")
    except BaseException:
        for listening in opened:
            listening.close()
        raise
    return opened
