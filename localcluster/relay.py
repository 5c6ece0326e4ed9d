"""A relay listens in front of every port of a local cluster. It forwards bytes between the processes, except on links that are
cut.

Invariant: a cut is silent and closes no connection. Bytes that cannot pass stay in their sender's sockets, and are forwarded
in order once the link is open. So memory is bounded by a few writes, however long a cut lasts. A new connection across a cut
is accepted, but not connected any further.

`python -m localcluster.relay DIRECTORY` runs a relay for the cluster in that directory. It obeys each `Order` from its
standard input, and ends when standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from localcluster.layout import HOST, Layout
from localcluster.partitions import CLIENT, Cuts
from localcluster.peers import Address, inode_of, owner_of

UNHEARD_MS = 200
"""After this time without acknowledgements a kernel only repeats the first unacknowledged bytes. So a link that is cut in one
direction is soon dead in both."""
RESET = struct.pack("ii", 1, 0)
TCP_ESTABLISHED = 1
CONNECT_TIMEOUT_S = 5.0
OBEYED = "obeyed"


class Order(NamedTuple):
    """A command to a relay, as a line of JSON: [[[from, to], ...], reset]. The relay answers OBEYED when it is done.

    `cuts` are all links that are cut from now on. With `reset`, connections are reset if their link was cut and is open now."""

    cuts: Cuts
    reset: bool

    def encode(self) -> str:
        return json.dumps([sorted(self.cuts), self.reset])

    @staticmethod
    def decode(line: str | bytes) -> Order:
        cuts, reset = json.loads(line)
        return Order(frozenset((source, target) for source, target in cuts), reset)


class Served(Protocol):
    """The processes behind a relay. They listen at `bind_host`, and are known by the same ports at HOST."""

    @property
    def names(self) -> Iterable[str]: ...

    @property
    def bind_host(self) -> str: ...

    def ports_of(self, name: str) -> Iterable[int]: ...


class RelayEnd(asyncio.Protocol):
    """One of the two sockets of a relayed connection. `owner` is the process behind this socket. Bytes from it are sent
    through `other`."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay, owner: str) -> None:
        self.relay = relay
        self.owner = owner
        self.other: RelayEnd | None = None
        self.full = False
        self.ended = False  # whether the process has closed its side
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()  # until the other end exists
        self.arrived()

    def arrived(self) -> None:
        """The socket is open."""

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        assert self.other is not None
        self.ended = True
        if self.other.ended:
            self.other.transport.close()  # this sends the remaining bytes
            self.transport.close()
        else:
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        self.full = True
        if self.other is not None:
            self.other.adjust()

    def resume_writing(self) -> None:
        self.full = False
        if self.other is not None:
            self.other.adjust()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.other is None:
            return
        self.adjust()
        self.other.adjust()
        if self.other.lost:
            self.relay.forget(self, self.other)

    def adjust(self) -> None:
        """Apply the current cuts: read from the socket, or leave its bytes unread. If this end was lost, end the other end too,
        unless a cut holds that back."""
        other = self.other
        assert other is not None
        held = (self.owner, other.owner) in self.relay.cuts
        if self.lost:
            if not held and not (self.ended and other.ended):
                other.reset()
        elif held or other.full or other.lost:
            self.transport.pause_reading()
        elif not self.ended:
            self.transport.resume_reading()

    def reset(self) -> None:
        """End the connection at once. Unsent bytes are lost, and the process behind this end sees a reset."""
        if not self.lost and not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()


class NearEnd(RelayEnd):
    """The socket towards the connecting process, which connected to the port `port` of the process `server`."""

    def __init__(self, relay: Relay, server: str, port: int) -> None:
        super().__init__(relay, "")
        self.server = server
        self.port = port

    def arrived(self) -> None:
        theirs = self.transport.get_extra_info("peername")
        owner = self.relay.who(theirs, self.transport.get_extra_info("sockname"))
        if owner is None:
            self.reset()
            return
        self.owner = owner
        self.relay.join(self)

    @property
    def is_there(self) -> bool:
        """Whether the connecting process still has the connection. The socket itself does not show that while it is not
        read."""
        info = self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return bool(info[0] == TCP_ESTABLISHED)


class Relay:
    """A relay between the processes of `layout`. `who(its address, ours)` names the process that connected, or returns None if
    it is gone."""

    def __init__(self, layout: Served, who: Callable[[Address, Address], str | None]) -> None:
        self.who = who
        self.cuts: Cuts = frozenset()
        self._layout = layout
        self._waiting: set[NearEnd] = set()
        self._ends: set[RelayEnd] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._unheard: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open every port. Raises OSError."""
        loop = asyncio.get_running_loop()
        for name in self._layout.names:
            for port in self._layout.ports_of(name):
                self._servers.append(await loop.create_server(partial(NearEnd, self, name, port), HOST, port))

    def obey(self, order: Order) -> None:
        """Cut and open links. For links that are open now, held bytes are forwarded, or the connections are reset."""
        if self._unheard is not None:
            self._unheard.cancel()
        self._change(order)
        reverse = frozenset((target, source) for source, target in order.cuts)
        self._unheard = asyncio.get_running_loop().call_later(
            UNHEARD_MS / 1000, self._change, Order(order.cuts | reverse, reset=False)
        )

    def join(self, near: NearEnd) -> None:
        """Connect a new connection to its server process once no link between the two processes is cut."""
        for end in [end for end in self._waiting if not end.is_there]:
            self._waiting.discard(end)  # abandoned
            end.transport.abort()
        self._waiting.add(near)
        self._try(near)

    def forget(self, *ends: RelayEnd) -> None:
        self._ends.difference_update(ends)

    async def close(self) -> None:
        """Reset every connection and release the ports."""
        if self._unheard is not None:
            self._unheard.cancel()
        for server in self._servers:
            server.close()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for end in [*self._waiting, *self._ends]:
            end.reset()

    def _change(self, order: Order) -> None:
        opened = self.cuts - order.cuts
        self.cuts = order.cuts
        for end in list(self._ends):
            assert end.other is not None
            ways = {(end.owner, end.other.owner), (end.other.owner, end.owner)}
            if order.reset and ways & opened and not ways & self.cuts:
                end.reset()
            else:
                end.adjust()
        for near in list(self._waiting):
            self._try(near)

    def _try(self, near: NearEnd) -> None:
        if {(near.owner, near.server), (near.server, near.owner)} & self.cuts:
            return
        self._waiting.discard(near)
        if not near.is_there:
            near.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._connect(near), name=f"to {near.server}")
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, near: NearEnd) -> None:
        far = RelayEnd(self, near.server)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: far, self._layout.bind_host, near.port
                )
        except OSError:  # the server does not run
            near.reset()
            return
        except asyncio.CancelledError:
            near.reset()
            raise
        near.other, far.other = far, near
        self._ends |= {near, far}
        near.adjust()
        far.adjust()


def owner_in(directory: Path, theirs: Address, ours: Address) -> str | None:
    """The name of the process of the cluster in `directory` that has the socket from `theirs` to `ours`. CLIENT for a process
    outside the cluster; None if no process has the socket any more."""
    inode = inode_of(theirs, ours)
    if inode is None:
        return None
    return owner_of(inode, json.loads((directory / "pids.json").read_text())) or CLIENT


async def run(directory: Path) -> None:
    """Run the relay of the cluster in `directory` until standard input ends."""
    layout = Layout.from_environment(directory, (directory / "env.json").read_text())
    relay = Relay(layout, partial(owner_in, directory))
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    try:
        await relay.start()
        print(OBEYED, flush=True)
        while line := await orders.readline():
            relay.obey(Order.decode(line))
            print(OBEYED, flush=True)
    finally:
        await relay.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
