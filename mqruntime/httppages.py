"""A few read-only pages over HTTP: metrics for a scraper, probes for a load balancer.

Invariant: a connection carries one request of at most `HEAD_BYTES_MAX`, is answered once and closed; slow or surplus clients
are cut, so this port costs its server no more than the time of one page. A page is shown again for a multiple of its
time, so requests without end take a tenth of the server's time. A new connection takes the place of the oldest one, so clients
that send no request do not keep out a probe, which sends it at once."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from mqruntime.clock import Clock, SystemClock
from mqruntime.listening import why_not_listening
from mqruntime.network import PLAIN, Link, Network, OpenPort

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
PATIENCE_MS = 5_000
SHOWN_AGAIN = 9
"""A page is shown again for so many times as long as it took to make."""
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpPage:
    """One answer; `status` is 200, or 503 from a failed probe."""

    body: bytes
    content_type: str = TEXT
    status: int = 200


class PagesCannotListen(Exception):
    """The address of the pages cannot be used; the text says what to change."""


class HttpPages:
    """Serves `pages` by path on `host:port`; port 0 takes a free one, `port` then says which."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], HttpPage]],
        *,
        host: str,
        port: int,
        network: Network = PLAIN,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._made: dict[str, tuple[HttpPage, int]] = {}
        """By path: the last page, and until when it is shown again (work_us)."""
        self.host = host
        self.port = port
        self._pages = pages
        self._connections: dict[_Connection, None] = {}
        self._network = network
        self._open_port: OpenPort | None = None

    async def start(self) -> None:
        """Listens. Raises PagesCannotListen."""
        try:
            self._open_port = await self._network.listen(self._accept, self.host, self.port, Link.PAGES)
        except OSError as error:
            why = why_not_listening(error)
            key = "metricsPromExporterPort" if error.errno == errno.EADDRINUSE else "metricsPromExporterHost"
            raise PagesCannotListen(f"{key} {self.host}:{self.port}: {why}") from error
        self.port = self._open_port.port

    async def stop(self) -> None:
        """Stop accepting; requests in progress are dropped."""
        if self._open_port is not None:
            await self._open_port.close()
        for connection in list(self._connections):
            connection.cut()

    def answer(self, head: bytes) -> bytes:
        """The whole response to a request whose head is `head`."""
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return _response(HttpPage(b"this port speaks HTTP/1.1\n", status=400))
        if method not in ("GET", "HEAD"):
            return _response(HttpPage(b"only GET and HEAD\n", status=405))
        path = target.partition("?")[0]
        if path not in self._pages:
            known = " ".join(sorted(self._pages))
            return _response(HttpPage(f"pages: {known}\n".encode(), status=404), with_body=method == "GET")
        return _response(self._page(path), with_body=method == "GET")

    def _page(self, path: str) -> HttpPage:
        begin_us = self._clock.work_us()
        made, until_us = self._made.get(path, (None, 0))
        if made is not None and begin_us < until_us:
            return made
        try:
            made = self._pages[path]()
        except Exception:
            logger.exception("page not made: %s", path)
            made = HttpPage(b"the page could not be made; the log says why\n", status=500)
        end_us = self._clock.work_us()
        self._made[path] = made, end_us + SHOWN_AGAIN * (end_us - begin_us)
        return made

    def opened(self, connection: _Connection) -> None:
        """The oldest connection makes room for a new one."""
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            self.closed(oldest)  # the loop reports its end later
            oldest.cut()
        self._connections[connection] = None

    def closed(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)

    def _accept(self) -> asyncio.BaseProtocol:
        return _Connection(self)


class _Connection(asyncio.Protocol):
    def __init__(self, owner: HttpPages) -> None:
        self._owner = owner
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no asyncio type
        self._owner.opened(self)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_MS / 1000, self.cut)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._head += data
        if END_OF_HEAD in self._head:
            self._transport.write(self._owner.answer(self._head))
            self._transport.close()
        elif len(self._head) > HEAD_BYTES_MAX:
            self._transport.write(_response(HttpPage(b"the request is too long\n", status=400)))
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.closed(self)

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _response(page: HttpPage, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {REASONS.get(page.status, 'Service Unavailable')}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if with_body else b"")
