"""Calls to other processes over one connection per address.

Invariant: at most one connection, or one attempt to connect, exists per address. A call timeout does not close the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from mqruntime.clock import Clock
from mqruntime.network import PLAIN, Connector, Link
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.connections import Connections
from remoting.errors import ConnectFailed, ConnectionLost, NotSent
from remoting.frame import FRAME_BYTES_MAX
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.signing import Signer

CLIENT_LIMITS = Limits(
    header_bytes_max=FRAME_BYTES_MAX - 8,  # a batch's reply names each message in its header
    reads_on=True,
)


def _reason(error: OSError) -> str:
    """The system's reason for a failed connection; the loop's own text repeats the address."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


class RemotingClient:
    """Opens connections on demand; `router` answers the servers' requests on them.

    `on_disconnect(address)` runs whenever a connection that was open is gone.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        network: Connector = PLAIN,
        router: Router | None = None,
        connect_timeout_ms: int = 3000,
        limits: Limits = CLIENT_LIMITS,
        on_disconnect: Callable[[str], None] | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.on_disconnect = on_disconnect
        self._network = network
        self._signer = signer
        self._connect_timeout_ms = connect_timeout_ms
        self._connections = Connections(router or Router(), clock, limits)
        self._peers: dict[str, Peer] = {}
        self._connecting: dict[str, asyncio.Task[Peer]] = {}
        self._closed = False

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int = 3000) -> RemotingCommand:
        """Return the reply of the process at `address` ("host:port") to `command`, at most `timeout_ms` after a connection
        is open. Time in which the request waits for room behind other requests counts.

        Raises NotSent (with its subclasses ConnectFailed and FrameTooLong), or CallTimeout or ConnectionLost, after which
        the request may have been executed. A server that answers GO_AWAY is stopping: the request was not executed, and is
        sent once more on a new connection.
        """
        peer = await self._peer(address, timeout_ms)
        reply = await self._call(peer, address, command, timeout_ms)
        if reply.code == ResponseCode.GO_AWAY:
            self._forget(address, peer)
            peer = await self._peer(address, timeout_ms)
            reply = await self._call(peer, address, command, timeout_ms)
        return reply

    async def one_way(self, address: str, command: RemotingCommand) -> None:
        """Send `command` without asking for a reply, after earlier requests that wait for room. Raises NotSent."""
        peer = await self._peer(address, self._connect_timeout_ms)
        if self._signer is not None:
            self._signer.sign(command)
        try:
            await peer.one_way_in_turn(command, self._connect_timeout_ms)
        except NotSent as error:
            raise NotSent(address, error.why) from None

    def connected(self, address: str) -> bool:
        """Whether a connection to `address` is open."""
        peer = self._peers.get(address)
        return peer is not None and not peer.closed

    def disconnect(self, address: str) -> None:
        """Close the connection to `address`, if there is one; the next call opens another."""
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close()

    async def close(self) -> None:
        """Close every connection; waiting calls get ConnectionLost."""
        self._closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        await self._connections.stop()

    async def _call(
        self, peer: Peer, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if self._signer is not None:
            self._signer.sign(command)
        try:
            return await peer.call(command, timeout_ms)
        except (ConnectionLost, NotSent) as error:
            raise type(error)(address, error.why) from None

    async def _peer(self, address: str, timeout_ms: int) -> Peer:
        """The open connection to `address`; concurrent callers share one attempt to open it."""
        peer = self._peers.get(address)
        if peer is not None and not peer.closed:
            return peer
        if self._closed:
            raise ConnectFailed(address, "the client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address), name=f"connect {address}")
            self._connecting[address] = task
            task.add_done_callback(lambda ended: self._connect_ended(address, ended))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError:
            raise ConnectFailed(address, f"not connected within {timeout_ms} ms") from None
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise ConnectFailed(address, "the client was closed") from None
            raise

    def _connect_ended(self, address: str, task: asyncio.Task[Peer]) -> None:
        del self._connecting[address]
        if not task.cancelled():
            task.exception()  # mark as retrieved: every caller may have been cancelled

    async def _connect(self, address: str) -> Peer:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
            raise ConnectFailed(address, "not an address of the form host:port")
        host = host.removeprefix("[").removesuffix("]")
        try:
            peer = await self._network.connect(
                self._connections.protocol, host, int(port), self._connect_timeout_ms, Link.REMOTING
            )
        except TimeoutError:
            raise ConnectFailed(address, f"not connected within {self._connect_timeout_ms} ms") from None
        except OSError as error:
            raise ConnectFailed(address, f"cannot connect: {_reason(error)}") from error
        self._peers[address] = peer
        peer.on_close(lambda gone: self._lost(address, gone))
        return peer

    def _lost(self, address: str, peer: Peer) -> None:
        if self._peers.get(address) is peer:
            del self._peers[address]
        if self.on_disconnect is not None:
            self.on_disconnect(address)

    def _forget(self, address: str, peer: Peer) -> None:
        """Use `peer` for no further call. It stays open for its pending calls."""
        if self._peers.get(address) is peer:
            del self._peers[address]
        if not peer.calls_pending:
            peer.close()
