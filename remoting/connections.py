"""The open connections of one server or client, and the timer that regularly cuts idle and stalled connections.

Invariant: a connection is in `peers` from connection_made to connection_lost, and at no other time. Time in which this process
did not run does not count as idle or stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqruntime.clock import Clock
from mqruntime.repeatedfailures import RepeatedFailures
from nativepath import presence
from remoting.bigbuffers import BigBuffers
from remoting.command import RemotingCommand
from remoting.deadlines import Deadlines
from remoting.dispatch import RequestDispatcher
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.turns import Turns
from remoting.unsent import Unsent

SWEEP_MS = 5_000
ASLEEP_MS = 5_000
"""A sweep that is this late follows a pause of the whole process. It cuts no connection, because data sent in the pause has
not been read."""
STOP_MS = 1_000  # closing waits this long for peers to read what was sent


class Connections:
    """The shared parts of one server's or client's connections: router, clock, limits, deadlines, turns."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        limits: Limits,
        on_connect: Callable[[Peer], None] | None = None,
        on_disconnect: Callable[[Peer], None] | None = None,
    ) -> None:
        self.peers: dict[Peer, None] = {}
        self._clock = clock
        self._limits = limits
        self._deadlines = Deadlines(clock)
        self._turns = Turns(clock)
        self._reports = RepeatedFailures()
        self._big = BigBuffers(limits.begun_bytes_max)
        self._unsent = Unsent(limits.unsent_of_all_max)
        self._dispatcher = RequestDispatcher(router, limits.running_max)
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_due_ms = 0
        self._stopped: asyncio.Future[None] | None = None
        self._opened = 0

    def protocol(self) -> Peer:
        """A new connection's protocol, for create_server and `connect`."""
        sends = None
        if presence.native is not None and self._dispatcher.takes_sends:
            sends = presence.native.read_sends, self._dispatcher.deliver_sends
        shared = self._turns, sends, self._reports, self._big, self._unsent
        return Peer(self, self._limits, self._clock, self._deadlines, *shared)

    def opened(self, peer: Peer) -> None:
        self.peers[peer] = None
        self._opened += 1
        peer.number = self._opened
        if self._stopped is not None or len(self.peers) > self._limits.connections_max:
            peer.cut("too many connections" if self._stopped is None else "stopping")
            return
        if self._sweep_timer is None:
            self._arm_sweep()
        if self._on_connect is not None:
            self._on_connect(peer)

    def received(self, peer: Peer, commands: list[RemotingCommand]) -> int:
        return self._dispatcher.deliver(peer, commands)

    def gone(self, peer: Peer) -> None:
        self.peers.pop(peer, None)
        if self._on_disconnect is not None:
            self._on_disconnect(peer)
        if self._stopped is not None and not self.peers and not self._stopped.done():
            self._stopped.set_result(None)

    async def stop(self) -> None:
        """Stop the handlers and close every connection."""
        await self._dispatcher.stop()
        self._stopped = asyncio.get_running_loop().create_future()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for peer in list(self.peers):
            peer.close()
        if self.peers:
            cut_timer = asyncio.get_running_loop().call_later(STOP_MS / 1000, self._abort_rest)
            await self._stopped
            cut_timer.cancel()
        self._deadlines.stop()

    def _abort_rest(self) -> None:
        for peer in list(self.peers):
            peer.cut("it does not read what was sent to it before the end")

    def _arm_sweep(self) -> None:
        period_ms = min(SWEEP_MS, self._limits.idle_ms_max, self._limits.stall_ms_max)
        self._sweep_due_ms = self._clock.monotonic_ms() + period_ms
        self._sweep_timer = asyncio.get_running_loop().call_later(period_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._sweep_due_ms < ASLEEP_MS:
            for peer in list(self.peers):
                why = peer.stalled(now_ms)
                if why is not None:
                    peer.cut(why)
        if self.peers:
            self._arm_sweep()
