"""The network between simulated hosts.

Invariant: a byte passes from one host to another only while the way between them is not cut. A cut does not end a connection.
Its bytes wait, and are delivered in order when the cut heals, as with TCP's retransmission."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from simulation.kernel.loop import SimulatedLoop
from simulation.kernel.process import PROCESS, Process
from simulation.kernel.trace import Trace
from simulation.kernel.transport import END, LOSS, Pipe, SimulatedSocket, SimulatedTransport
from simulation.kernel.ways import Way, Ways

ANY_HOST = ("", "0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FIRST_FREE_PORT = 32768
SYN_RETRIES_US = (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 32_000_000, 64_000_000)
RETRANSMIT_US_MAX = 1_000_000  # a healed cut is noticed by the next retransmission

Factory = Callable[[], asyncio.BaseProtocol]


class Open(NamedTuple):
    """A connection with `host`, at local port `port`. From the moment `lost_us` on, the other end no longer has it."""

    host: str
    port: int
    lost_us: int | None


class SimulatedServer(asyncio.AbstractServer):
    """A listening port of one process."""

    def __init__(
        self, network: SimulatedNetwork, process: Process, factory: Factory, bound: tuple[str, int]
    ) -> None:
        self.process = process
        self.factory = factory
        self._network = network
        self._bound = bound
        self._serving = True

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        return (SimulatedSocket(self._bound),) if self._serving else ()

    def takes(self, host: str, *, from_own_host: bool) -> bool:
        """Whether a connection to `host` reaches the address to which this server is bound."""
        if self._bound[0] in LOOPBACK:
            return from_own_host and host in (*LOOPBACK, *ANY_HOST)
        return self._bound[0] in ANY_HOST or host == self._bound[0]

    def is_serving(self) -> bool:
        return self._serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def close(self) -> None:
        """Stop accepting; connections that are open stay."""
        if self._serving:
            self._serving = False
            self._network.stop_listening(self.process.host, self._bound[1])

    async def start_serving(self) -> None:
        assert self._serving, "the server is closed"

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Return after one turn of the event loop, as asyncio's server does when no connection is open."""
        await asyncio.sleep(0)


class SimulatedNetwork(Ways):
    """The listening sockets and connections of all hosts. The event loop creates them here."""

    def __init__(self, loop: SimulatedLoop, seed: int, trace: Trace) -> None:
        super().__init__(loop, seed, trace)
        loop.network = self
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._pipes: dict[Pipe, None] = {}  # insertion order, never a set
        self._free_ports: dict[str, int] = {}
        self._misdirected: dict[Way, str] = {}
        self._astray: dict[SimulatedTransport, None] = {}
        """The near ends of connections that were misdirected."""

    # -- faults

    def heal(self, host: str | None = None, other: str | None = None) -> None:
        """Heal both ways between two hosts, all ways of one host or, without an argument, everything. Only then misdirected
        connections are reset, too."""
        if host is None:
            self._misdirected.clear()
            for near in self._astray:
                for transport in (near, near.peer):
                    transport.lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
                    transport.out.silence()
            self._astray.clear()
            self._go_on()
        healed: dict[Way, int] = {}
        for way, since_us in list(self._cut_since_us.items()):
            if (host is None or host in way) and (other is None or other in way):
                del self._cut_since_us[way]
                healed[way] = self.loop.now_us - since_us
        for pipe in list(self._pipes):
            lasted_us = max(healed.get(pipe.hosts, -1), healed.get((pipe.hosts[1], pipe.hosts[0]), -1))
            if lasted_us >= 0:
                wait_us = int(self._random.random() * min(lasted_us, RETRANSMIT_US_MAX))
                self.loop.call_at_us(self.loop.now_us + wait_us, pipe.wake, context=self.context)

    def _go_on(self) -> None:
        """Continue connections that were stalled."""
        stalled = [pipe for pipe in self._pipes if self.is_stalled(pipe.source.name, pipe.sink.name)]
        self._stalled.clear()
        for pipe in stalled:
            wait_us = int(self._random.random() * RETRANSMIT_US_MAX)
            self.loop.call_at_us(self.loop.now_us + wait_us, pipe.wake, context=self.context)

    def misdirect(self, host: str, other: str, to: str) -> None:
        """From now on, new connections of `host` to `other` reach `to`, as after a change of addresses that `host` missed."""
        self._misdirected[host, other] = to

    def reset(self, host: str, other: str) -> None:
        """Both ends of every connection between two hosts see a reset now."""
        for transport in self._between(host, other):
            transport.lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            transport.out.silence()

    def hold_up(self, host: str, port: int, late_ms: int) -> None:
        """Data that `host` sends from now on over its present connections at its `port` arrives that much later. Other
        connections are not affected."""
        for pipe in self._pipes:
            if pipe.source.name == (host, port):
                pipe.late_us = 1000 * late_ms

    def half_open(self, forgetful: str, other: str) -> None:
        """`forgetful` loses its connections with `other`, which gets a reset when it next sends."""
        for transport in self._between(forgetful, other):
            if transport.host == forgetful:
                transport.out.silence()
                transport.lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def connections(self, host: str, other: str) -> int:
        """How many connections with `other` a process on `host` believes to have."""
        return sum(1 for transport in self._between(host, other) if transport.host == host)

    def is_whole(self) -> bool:
        """Whether nothing is cut, stalled, delayed, silent or misdirected; for checkers."""
        ways = self._cut_since_us, self._stalled, self._delays_us, self._silent_hosts, self._misdirected
        return not any(ways)

    def open_of(self, process: Process) -> Iterator[Open]:
        """The connections that a process believes to have."""
        for pipe in self._pipes:
            near = pipe.source
            if near.process is process and not near.is_gone():
                gone_us = near.peer.gone_us if near.peer.is_gone() else None
                yield Open(pipe.hosts[1], near.name[1], gone_us)

    # -- processes

    def process_died(self, process: Process, *, silent: bool) -> None:
        """The kernel closes the sockets of a killed process. A host that lost power (`silent`) sends nothing, and its peers
        get resets when they send after it is back."""
        for key, server in list(self._servers.items()):
            if server.process is process:
                del self._servers[key]
        for pipe in list(self._pipes):
            if pipe.source.process is process:
                if silent:
                    pipe.silence()
                elif not pipe.source.is_gone():
                    pipe.send(LOSS if self._random.random() < 0.5 else END)
                pipe.source.lost(None)
            if pipe.sink.process is process:
                pipe.sink_died()
        if silent:
            self._silent_hosts[process.host] = None

    def host_is_back(self, host: str) -> None:
        """Called when a host that lost power runs again."""
        if host in self._silent_hosts:
            del self._silent_hosts[host]
            for pipe in list(self._pipes):
                pipe.wake()

    # -- the event loop's side

    def listen(
        self, factory: Factory, host: Any, port: int | None, options: dict[str, Any]
    ) -> SimulatedServer:
        """Serve create_server. `port` 0 takes a free port. Raises OSError (EADDRINUSE, EADDRNOTAVAIL) as a kernel does."""
        _no_tls(options)
        process = PROCESS.get() or self.loop.outside
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        bound = hosts[0] or "0.0.0.0"
        if bound not in (*ANY_HOST, *LOOPBACK, process.host):
            raise OSError(
                errno.EADDRNOTAVAIL, f"{bound} is not an address of {process.name} ({process.host})"
            )
        chosen = port or self._free_port(process.host)
        if (process.host, chosen) in self._servers:
            text = f"error while attempting to bind on address ('{bound}', {chosen}): address already in use"
            raise OSError(errno.EADDRINUSE, text)
        server = SimulatedServer(self, process, factory, (bound, chosen))
        self._servers[process.host, chosen] = server
        return server

    def stop_listening(self, host: str, port: int) -> None:
        self._servers.pop((host, port), None)

    async def connect(
        self, factory: Factory, host: str, port: int, options: dict[str, Any]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Serve create_connection. Raises ConnectionRefusedError if no server listens, and TimeoutError if no answer comes in
        the kernel's two minutes."""
        _no_tls(options)
        process = PROCESS.get() or self.loop.outside
        target = process.host if host in LOOPBACK or host in ANY_HOST else host
        astray = (process.host, target) in self._misdirected
        if astray:
            host = target = self._misdirected[process.host, target]
        for retry_us in (*SYN_RETRIES_US, 0):
            if not self.is_cut(process.host, target) and not self.is_cut(target, process.host):
                break
            await self._sleep_us(retry_us)
        else:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed ('{host}', {port})")
        await self._sleep_us(self.arrival_us(process.host, target) - self.loop.now_us)
        server = self._servers.get((target, port))
        if server is None or not server.takes(host, from_own_host=target == process.host):
            await self._sleep_us(self.arrival_us(target, process.host) - self.loop.now_us)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{host}', {port})")
        near, far = self._pair(process, server, host, port)
        if astray:
            self._astray[near] = None
        self.trace("open", near.out.label)
        self.loop.call_soon(self._accepted, far, server.factory, context=server.process.context)
        try:
            await self._sleep_us(self.arrival_us(target, process.host) - self.loop.now_us)
        except asyncio.CancelledError:
            near.abort()
            raise
        if near.is_gone():
            raise ConnectionResetError(errno.ECONNRESET, f"Connect call failed ('{host}', {port})")
        protocol = factory()
        near.made(protocol)
        return near, protocol

    def _pair(
        self, process: Process, server: SimulatedServer, host: str, port: int
    ) -> tuple[SimulatedTransport, SimulatedTransport]:
        local = (LOOPBACK[0] if host in LOOPBACK else process.host, self._free_port(process.host))
        near = SimulatedTransport(self, process, local, (host, port), self._forget)
        far = SimulatedTransport(self, server.process, (host, port), local, self._forget)
        near.peer, far.peer = far, near
        near.out, far.out = Pipe(self, near, far), Pipe(self, far, near)
        self._pipes[near.out] = self._pipes[far.out] = None
        return near, far

    def _accepted(self, transport: SimulatedTransport, factory: Factory) -> None:
        if not transport.is_gone():
            transport.made(factory())

    async def _sleep_us(self, delay_us: int) -> None:
        await asyncio.sleep(delay_us / 1_000_000)

    def _free_port(self, host: str) -> int:
        port = self._free_ports.get(host, FIRST_FREE_PORT)
        while (host, port) in self._servers:
            port += 1
        self._free_ports[host] = port + 1
        return port

    def _forget(self, transport: SimulatedTransport) -> None:
        """Called when one side of a connection is gone. The connection is dropped once both sides are gone. A peer that does
        not notice the loss keeps its side."""
        if transport.peer.is_gone():
            self._pipes.pop(transport.out, None)
            self._pipes.pop(transport.peer.out, None)

    def _between(self, host: str, other: str) -> list[SimulatedTransport]:
        ways = ((host, other), (other, host))
        return [pipe.source for pipe in self._pipes if pipe.hosts in ways and not pipe.source.is_gone()]


def _no_tls(options: dict[str, Any]) -> None:
    if options.get("ssl"):
        raise NotImplementedError("simulated connections carry no TLS")
