"""One open connection, as handlers and callers see it. It is also the protocol that the event loop feeds.

Invariant: every call ends with its reply, CallTimeout, NotSent or, when the connection ends, ConnectionLost. While the other
end leaves more than `unsent_bytes_high` unread, requests to it wait for room, in order. Meanwhile nothing more is read from the
other end or handled, unless the limits say `reads_on`. A connection that has used its share of a round (remoting.turns) is not
read until its next turn. Data that was read before is handled in that turn, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import NOT_ASKED, certificate_of
from mqruntime.proxyheader import ClientAddress
from mqruntime.repeatedfailures import RepeatedFailures
from remoting.bigbuffers import BigBuffers
from remoting.command import ONEWAY_BIT, Body, RemotingCommand
from remoting.deadlines import Deadlines
from remoting.errors import CallTimeout, ConnectionLost, FrameTooLong, NotSent
from remoting.frame import BUFFER_BYTES_KEPT, FRAME_BYTES_MAX, FrameReader, encode
from remoting.limits import Limits
from remoting.turns import Turns
from remoting.unsent import Unsent

if TYPE_CHECKING:
    from nativepath.native import Sends
    from remoting.frame import ReadSends

logger = logging.getLogger(__name__)

IDLE, REPLACED = "idle", "replaced by a newer one"

OPAQUE_MAX = 2**31 - 1
FRAMES_AT_ONCE, BYTES_AT_ONCE = 64, 256 << 10
"""Frames, and their bytes, that are handled together: the sends among them are stored in one call."""


class Owner(Protocol):
    """The server or client to which a connection belongs."""

    def opened(self, peer: Peer) -> None:
        """`peer` is connected."""

    def received(self, peer: Peer, commands: list[RemotingCommand]) -> int:
        """Handle `commands` that `peer` received, and return how many were handled. If `peer.had_its_turn`, the remaining
        commands are passed again later. Bodies are valid until this returns."""

    def gone(self, peer: Peer) -> None:
        """`peer` is no longer connected."""


class Peer(asyncio.BufferedProtocol):
    """The other end of a connection, accepted or opened by this process.

    `remote_address` is the other end's "ip:port", behind a proxy that of the client, and `own_host` is the ip of this end.
    `closed` is true as soon as nothing more can be sent. Handlers may keep their own facts about the connection in
    `attributes`. Connections that take turns with each other share one `turns`; by default a connection has its own. `sends`
    are the reader and the handler of received data that consists only of plain sends. `reports` limits the log lines about
    one host, `big` what buffers of long frames take together, and `unsent` what all connections leave unread."""

    def __init__(
        self,
        owner: Owner,
        limits: Limits,
        clock: Clock,
        deadlines: Deadlines,
        turns: Turns | None = None,
        sends: tuple[ReadSends, Callable[[Peer, Sends], None]] | None = None,
        reports: RepeatedFailures | None = None,
        big: BigBuffers | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        self.remote_address = self.own_host = ""
        self.certificate = NOT_ASKED
        self.closed = False
        self.attributes: dict[str, object] = {}
        self.active_at_ms = 0
        self.number = 0
        """Counts the connections of the owner: a newer connection has a greater number."""
        self.behind_since_ms: int | None = None
        """Since when received data may wait unread; None while each receive returned all available data."""
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._deadlines = deadlines
        self._reader = FrameReader(limits.frame_bytes_max, limits.header_bytes_max)
        self._sends = sends
        self._reports = reports or RepeatedFailures()
        self._big = big
        self._unsent = unsent
        self._buffer_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._source: ClientAddress | None = None
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._waiting: OrderedDict[int, tuple[RemotingCommand, list[Body]]] = OrderedDict()
        """Requests that wait for room, with their frames. Each is in `_pending` too."""
        self._last_opaque = 0
        self._close_callbacks: list[Callable[[Peer], None]] = []
        self._frame_begun_ms: int | None = None
        self._writing_paused_ms: int | None = None
        self._cut_why: str | None = None
        self._turns = turns or Turns(clock)
        self._share = self._turns.share()
        self._left: list[RemotingCommand] = []
        """Commands that are read but not handled. They come first in this connection's next turn."""
        self._waits = False  # whether this connection waits for its turn
        self._parked = False  # whether requests wait for room, or for running handlers to end
        self._room = 0
        self._for_room: list[asyncio.Future[None]] = []
        self._caught_up = True
        """Whether the last receive returned all available data."""
        self._running = 0
        """Number of handlers that have not ended."""

    # for handlers and callers

    def send(self, commands: Sequence[RemotingCommand]) -> None:
        """Send the commands unchanged in one write; does nothing when the connection is closed."""
        buffers: list[Body] = []
        for command in commands:
            buffers += encode(command)
        self.write(buffers)

    def write(self, buffers: Sequence[Body]) -> None:
        """Send whole, already encoded frames. The buffers must not change until the transport has sent them."""
        if self.closed or self._transport is None or self._transport.is_closing() or not buffers:
            return
        self._transport.writelines(buffers)
        self.active_at_ms = self._clock.monotonic_ms()
        if self.unsent_bytes > self._limits.unsent_bytes_max:
            self.cut("it does not read what it asked for")
        elif self._writing_paused_ms is not None and self._unsent is not None:
            self._unsent.has(self, self.unsent_bytes)

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Set the command's opaque, send the command and return the other end's reply. Raises CallTimeout, ConnectionLost,
        or NotSent, also if there was no room for `timeout_ms`, or if the frame is too long (FrameTooLong).
        """
        if self.closed:
            why = self._cut_why or "the connection is closed"
            raise NotSent(self.remote_address, f"request {command.code} was not sent: {why}")
        opaque = command.opaque = self._next_opaque()
        frame = self._frame_of(command)
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._pending[opaque] = future
        code = command.code  # the deadline must not keep the body in memory
        self._deadlines.add(future, timeout_ms, lambda: self._no_reply(code, timeout_ms))
        if self._writing_paused_ms is None:
            self._send_request(command, frame)
        else:
            self._waiting[opaque] = command, frame
        try:
            return await future
        except CallTimeout:
            if opaque not in self._waiting:
                raise
            why = f"request {command.code} was not sent: for {timeout_ms} ms it did not read what was sent before"
            raise NotSent(self.remote_address, why) from None
        finally:
            self._pending.pop(opaque, None)
            self._waiting.pop(opaque, None)

    async def one_way_in_turn(self, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a request without a reply, after the requests that wait for room. Raises NotSent."""
        command.flag |= ONEWAY_BIT
        await self.call(command, timeout_ms)

    def one_way(self, command: RemotingCommand) -> None:
        """Send a request without a reply, at once; its opaque and one-way bit are set here."""
        command.opaque = self._next_opaque()
        command.flag |= ONEWAY_BIT
        self.send([command])

    @property
    def unsent_bytes(self) -> int:
        """Bytes sent that wait in this process, because the other end has not read enough."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def room(self) -> None:
        """Wait until the other end has read enough of what was sent to it, or the connection has ended."""
        if self._writing_paused_ms is not None and not self.closed:
            waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._for_room.append(waits)
            await waits

    def _has_room(self) -> None:
        waiting, self._for_room = self._for_room, []
        for waits in waiting:
            if not waits.done():
                waits.set_result(None)

    @property
    def had_its_turn(self) -> bool:
        """Whether the connection's remaining commands are handled later."""
        return self._share.is_used or self._is_held

    def began(self) -> None:
        """A handler that answers later has begun."""
        self._running += 1
        self._share.started()

    def ended(self) -> None:
        """A handler that answers later has ended."""
        self._running -= 1
        if self._parked and not self._is_held:
            self._wait_for_turn()

    @property
    def calls_pending(self) -> int:
        """The number of calls that wait for their replies."""
        return len(self._pending)

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        """Call `callback(peer)` once when the connection ends, at once if it has ended."""
        if self._transport is None and self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """End the connection once everything sent has left."""
        self._cut_why = self._cut_why or "closed by this end"
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def cut(self, why: str) -> None:
        """End the connection at once."""
        if not self.closed:
            level = logging.INFO if why in (IDLE, REPLACED) else logging.WARNING  # these are no errors
            host = self.remote_address.rpartition(":")[0]
            if level == logging.INFO or self._reports.failed((host, why), self._clock.monotonic_ms()):
                logger.log(level, "connection cut", extra=fields(peer=self.remote_address, why=why))
            self._cut_why = f"cut by this end: {why}"
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def resolve(self, response: RemotingCommand) -> None:
        """Handle a response; one without a waiting call (late, or never requested) is dropped."""
        future = self._pending.pop(response.opaque, None)
        if future is not None and not future.done():
            future.set_result(response)

    def stalled(self, now_ms: int) -> str | None:
        """The reason to cut the connection now, because it is idle or stalled; None if there is none."""
        limits = self._limits
        if now_ms - self.active_at_ms >= limits.idle_ms_max:
            return IDLE
        if self._frame_begun_ms is not None and now_ms - self._frame_begun_ms >= limits.stall_ms_max:
            return "it began a frame and does not end it"
        if self._writing_paused_ms is not None and now_ms - self._writing_paused_ms >= limits.stall_ms_max:
            return "it does not read what is sent to it"
        return None

    @property
    def frame_begun_ms(self) -> int | None:
        """When the present frame began; None between frames."""
        return self._frame_begun_ms

    # for the event loop

    def forwarded_from(self, source: ClientAddress) -> None:
        self._source = source

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes_high)
        name = self._source or transport.get_extra_info("peername")
        self.remote_address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")
        self.certificate = certificate_of(transport)
        own = transport.get_extra_info("sockname")
        self.own_host = str(own[0]) if isinstance(own, tuple) else ""
        self.active_at_ms = self._clock.monotonic_ms()
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._reader.buffer()
        self._room = len(buffer)
        if self._reader.size != self._buffer_bytes:
            self._note_size()
        return buffer

    def _let_go(self) -> None:
        """Release a big buffer after its commands were handled."""
        if self._reader.size > BUFFER_BYTES_KEPT:
            self._reader.let_go()
        if self._reader.size != self._buffer_bytes:
            self._note_size()

    def _note_size(self) -> None:
        self._buffer_bytes = self._reader.size
        if self._big is not None and not self.closed:
            self._big.has(self, self._buffer_bytes)

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        self.active_at_ms = self._clock.monotonic_ms()
        if self._caught_up:
            self.behind_since_ms = None
        self._caught_up = nbytes < self._room
        if self._waits or self._parked or not self._share.begins():
            self._reader.taken(nbytes)
            self._wait_for_turn()
            return
        if self._sends is not None:
            read_sends, handle = self._sends
            sends = self._reader.filled_with_sends(nbytes, read_sends)
            if sends is not None:
                self._frame_begun_ms = self.active_at_ms if self._reader.has_partial_frame else None
                handle(self, sends)
                self._let_go()
                if not self._share.ends():
                    self._wait_for_turn()
                return
        self._reader.taken(nbytes)
        self._handle()

    def go_on(self) -> None:
        """The connection's turn has come: handle the remaining commands, then read more."""
        self._waits = False
        if self.closed:
            return
        if self._left or self._reader.has_more:
            if self._is_held or not self._share.begins():
                self._wait_for_turn()
                return
            self._handle()
        if not self._waits and not self._parked:
            self._read_on()

    def _handle(self) -> None:
        """Handle remaining commands and data until there is no more or this connection has used its turn."""
        reader, has_left = self._reader, True
        while has_left and not self.closed:
            commands = self._left or reader.read(FRAMES_AT_ONCE, BYTES_AT_ONCE)
            self._left = []
            if commands or not reader.has_partial_frame:
                self._frame_begun_ms = None
            if commands:
                taken = self._owner.received(self, commands)
                self._left = [_with_own_body(command) for command in commands[taken:]]
            has_left = bool(self._left) or reader.has_more
            if self.had_its_turn:
                break
        if reader.has_partial_frame and not reader.has_more and self._frame_begun_ms is None:
            self._frame_begun_ms = self.active_at_ms
        has_more_time = self._share.ends()
        self._let_go()
        if reader.failure is not None and not self._left:
            self.cut(str(reader.failure))
        elif has_left or not has_more_time or self._is_held:
            self._wait_for_turn()

    @property
    def _is_held(self) -> bool:
        """Whether the peer's requests wait until the peer has read replies, or until its running handlers have ended."""
        is_behind = self._writing_paused_ms is not None and not self._limits.reads_on
        return is_behind or self._running >= self._limits.running_of_one_max

    def _wait_for_turn(self) -> None:
        """Read and handle nothing more until its next turn."""
        if self.closed or self._transport is None or self._waits:
            return
        if self.behind_since_ms is None:
            self.behind_since_ms = self.active_at_ms
        self._transport.pause_reading()
        self._parked = self._is_held
        if not self._parked:
            self._waits = True
            self._turns.wait(self)

    def _read_on(self) -> None:
        if self._transport is not None and not self.closed and not self._is_held:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        return False  # half-open connections are of no use: close

    def pause_writing(self) -> None:
        self._writing_paused_ms = self._clock.monotonic_ms()
        if self._transport is not None and not self.closed and not self._limits.reads_on:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writing_paused_ms = None
        if self._unsent is not None:
            self._unsent.has(self, 0)
        if self._parked:
            self._wait_for_turn()
        elif not self._waits:
            self._read_on()
        while self._waiting and self._writing_paused_ms is None and not self.closed:
            _, (command, frame) = self._waiting.popitem(last=False)
            self._send_request(command, frame)
        if self._writing_paused_ms is None:
            self._has_room()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._transport is None:
            return  # the connection was never made, or is already lost
        self.closed = True
        self._transport = None
        if self._big is not None:
            self._big.has(self, 0)
        if self._unsent is not None:
            self._unsent.has(self, 0)
        self._has_room()
        pending, self._pending = self._pending, {}
        why = str(exc or self._cut_why or "closed by the other end")
        for opaque, future in pending.items():
            if not future.done():
                kind = NotSent if opaque in self._waiting else ConnectionLost
                future.set_exception(kind(self.remote_address, why))
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)
        self._owner.gone(self)

    def _frame_of(self, command: RemotingCommand) -> list[Body]:
        """The command's frame. Raises FrameTooLong if the other end would not read the frame."""
        frame = encode(command)
        frame_bytes = sum(map(len, frame))
        if frame_bytes <= FRAME_BYTES_MAX:
            return frame
        why = f"request {command.code} was not sent: a frame of {frame_bytes} bytes; {FRAME_BYTES_MAX} are allowed"
        raise FrameTooLong(self.remote_address, why)

    def _send_request(self, command: RemotingCommand, frame: list[Body]) -> None:
        self.write(frame)
        if command.is_oneway:
            self.resolve(command)  # a one-way request ends once it is sent

    def _no_reply(self, code: int, timeout_ms: int) -> CallTimeout:
        return CallTimeout(self.remote_address, f"no reply to request {code} in {timeout_ms} ms")

    def _next_opaque(self) -> int:
        self._last_opaque = self._last_opaque % OPAQUE_MAX + 1
        return self._last_opaque


def _with_own_body(command: RemotingCommand) -> RemotingCommand:
    if command.body is not None:
        command.body = bytes(command.body)
    return command
