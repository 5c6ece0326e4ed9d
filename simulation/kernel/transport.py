"""One end of a simulated TCP connection, and the two pipes between the ends.

Invariant: a pipe delivers each item once, in the order of the writes: bytes, then the end or the loss. A chunk that cannot
pass (because of a partition, or a paused or slow reader) holds back everything behind it.

As many bytes as fit are copied, as into a kernel's socket buffer. The remaining bytes stay in the caller's own buffers until
there is room, and count towards the high-water mark."""

from __future__ import annotations

import asyncio
import errno
from asyncio.transports import _FlowControlMixin  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.kernel.loop import SimulatedLoop
from simulation.kernel.process import Process
from simulation.kernel.ways import Ways

WINDOW_BYTES = 256 * 1024  # one side's send buffer and the other's receive buffer
READ_BYTES_MAX = 256 * 1024
SPLIT_SHARE = 0.15  # share of deliveries that stop at a random byte
SPLIT_GAP_US_MAX = 300

DATA, END, LOSS = "data", "end", "loss"


class SimulatedSocket:
    """The result of `get_extra_info('socket')`: enough for naming it and for setting options."""

    def __init__(self, name: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int] | None:
        return self._peer

    def setsockopt(self, *option: Any) -> None:
        """Options have no effect: the simulated network decides delays, keep-alive and buffer sizes."""


class Pipe:
    """One direction of a connection. `in_flight` bytes are sent and not yet taken by the reader (or not yet acknowledged)."""

    def __init__(self, ways: Ways, source: SimulatedTransport, sink: SimulatedTransport) -> None:
        self._ways = ways
        self.source = source
        self.sink = sink
        self.hosts = (source.host, sink.host)
        self.label = f"{source.name[0]}:{source.name[1]}>{sink.name[0]}:{sink.name[1]}"
        self._items: deque[tuple[int, str, bytes | memoryview]] = deque()  # (arrives at us, kind, bytes)
        self._in_flight = 0
        self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.late_us = 0

    def room(self) -> int:
        return WINDOW_BYTES - self._in_flight - self._unacknowledged

    def send(self, kind: str, data: bytes = b"") -> None:
        """Send one item. After LOSS nothing more is sent."""
        if self._closed:
            return
        self._closed = kind == LOSS
        arrives_us = self._ways.arrival_us(*self.hosts) + self.late_us
        self._items.append((arrives_us, kind, data))
        self._in_flight += len(data)
        self._arm(arrives_us)

    def silence(self) -> None:
        """Nothing on its way, and nothing sent after this call, is ever delivered."""
        self._closed = True
        self._items.clear()

    def reset(self) -> None:
        """Called when the source is closed but got bytes: its kernel answers with a reset."""
        self._closed = False
        self.send(LOSS)

    def sink_died(self) -> None:
        """The sink's process died. Items on their way reach a closed socket, because the process cannot run `_deliver` any
        more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.wake()

    def wake(self, at_us: int | None = None) -> None:
        """The path is whole again, or the reader reads again: continue with the first item."""
        if self._unacknowledged and not self._ways.is_cut(self.hosts[1], self.hosts[0]):
            self._unacknowledged = 0
            self.source.room_made()
        if self._items:
            self._arm(max(self._items[0][0], at_us or 0))

    def _arm(self, at_us: int) -> None:
        if self._timer is None:
            process = self.sink.process
            context = process.context if process.alive else self._ways.context
            self._timer = self._ways.loop.call_at_us(at_us, self._deliver, context=context)

    def _deliver(self) -> None:
        self._timer = None
        ways = self._ways
        if not self._items or not self.sink.is_made() or ways.is_cut(*self.hosts):
            return  # wake() comes with connection_made or when the cut heals
        if ways.is_stalled(self.source.name, self.sink.name):
            return  # wake() comes when that heals
        arrives_us, kind, _ = self._items[0]
        if arrives_us > ways.loop.now_us:
            self._arm(arrives_us)
            return
        if self.sink.is_gone():
            self._items.clear()
            if kind == DATA:
                self.sink.out.reset()
        elif kind == LOSS:
            self._items.popleft()
            ways.trace(LOSS, self.label)
            self.sink.lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif not self.sink.is_reading():
            return  # wake() comes with resume_reading or when the reader is gone
        elif kind == END:
            self._items.popleft()
            ways.trace(END, self.label)
            self.sink.end_received()
            self._continue()
        else:
            self._deliver_bytes()

    def _deliver_bytes(self) -> None:
        """Deliver the arrived bytes, all of them joined or up to a random byte."""
        ways, items = self._ways, self._items
        now_us = ways.loop.now_us
        data = items.popleft()[2]
        size = len(data)
        if items and items[0][0] <= now_us and items[0][1] == DATA and size < READ_BYTES_MAX:
            parts = [data]
            while items and items[0][0] <= now_us and items[0][1] == DATA and size < READ_BYTES_MAX:
                part = items.popleft()[2]
                parts.append(part)
                size += len(part)
            data = b"".join(parts)
        take = size if size < READ_BYTES_MAX else READ_BYTES_MAX
        gap_us = 0
        if size > 1:
            take, gap_us = ways.split(take, SPLIT_SHARE, SPLIT_GAP_US_MAX)
        if take < size:
            view = memoryview(data)
            items.appendleft((now_us + gap_us, DATA, view[take:]))
            data = view[:take]
        if ways.is_cut(self.hosts[1], self.hosts[0]):
            self._unacknowledged += take  # no acknowledgement comes back
        ways.trace(DATA, self.label, data)
        unread = self.sink.bytes_received(bytes(data))
        self._in_flight -= take
        if unread is not None:
            self._in_flight += len(unread)
            items.appendleft((now_us, DATA, unread))
        self.source.room_made()
        if items:
            self._continue()

    def _continue(self) -> None:
        if self._items:
            self._arm(max(self._items[0][0], self._ways.loop.now_us))


class SimulatedTransport(_FlowControlMixin, asyncio.Transport):  # type: ignore[misc]
    """An asyncio transport that belongs to one process; `out` is the pipe to its peer."""

    _loop: SimulatedLoop
    out: Pipe
    peer: SimulatedTransport

    def __init__(
        self,
        ways: Ways,
        process: Process,
        name: tuple[str, int],
        peer_name: tuple[str, int],
        on_gone: Callable[[SimulatedTransport], None],
    ) -> None:
        socket = SimulatedSocket(name, peer_name)
        super().__init__({"sockname": name, "peername": peer_name, "socket": socket}, ways.loop)
        self.process = process
        self.host = process.host
        self.name = name
        self._on_gone = on_gone
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._paused = False
        self._closing = False  # close() or abort() was called, or the connection is lost
        self._ending = False  # whether the end follows once all bytes are sent
        self._end_sent = False
        self._end_received = False
        self._gone = False  # whether connection_lost was called or is under way
        self._made = False
        self.gone_us = 0
        """Since when it is gone."""

    # -- called by the protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._send([data])

    def writelines(self, list_of_data: Any) -> None:
        self._send(list_of_data)

    def _send(self, buffers: Any) -> None:
        if self._ending and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not self.process.alive:
            return
        if not self._unsent:
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            room = self.out.room()
            if len(data) <= room:
                if len(data):
                    self.out.send(DATA, bytes(data))
                return
            buffers = [data]
        for data in buffers:
            if len(data):
                view = memoryview(data).cast("B")
                self._unsent.append(view)
                self._unsent_size += len(view)
        self._push()
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ending and not self._closing:
            self._ending = True
            self._push()

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self.peer.out.wake()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._ending = True
        self._push()

    def abort(self) -> None:
        """Drop unsent bytes and reset the connection."""
        if not self._gone:
            self._end_sent = True
            self.out.send(LOSS)
            self.lost(None)

    # -- called by the pipes and the network

    def is_made(self) -> bool:
        return self._made or self._gone

    def is_gone(self) -> bool:
        return self._gone

    def made(self, protocol: asyncio.BaseProtocol) -> None:
        """Call connection_made. Bytes have waited for this."""
        self._protocol = protocol
        self._made = True
        protocol.connection_made(self)
        self.peer.out.wake()

    def bytes_received(self, data: bytes) -> memoryview | None:
        """Pass the bytes to the protocol. Returns the bytes that it must not get yet, because it has stopped reading."""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            rest, size = memoryview(data), len(data)
            while size and not self._paused and not self._closing:
                buffer = memoryview(protocol.get_buffer(size))
                room = len(buffer)
                if room == 0:
                    raise RuntimeError("get_buffer() returned an empty buffer")
                if size <= room:
                    buffer[:size] = rest
                    protocol.buffer_updated(size)
                    return None
                buffer[:] = rest[:room]
                protocol.buffer_updated(room)
                rest = rest[room:]
                size -= room
            return rest if size and not self._closing else None
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(data)
        return None

    def end_received(self) -> None:
        if self._end_received or self._closing:
            return
        self._end_received = True
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not protocol.eof_received():
            self.close()

    def lost(self, error: Exception | None) -> None:
        """The connection has ended for this side. connection_lost follows in its own callback."""
        if self._gone:
            return
        self._gone = self._closing = self._ending = True
        self.gone_us = self._loop.now_us
        self._unsent.clear()
        self._unsent_size = 0
        self._on_gone(self)
        self.peer.out.wake()  # unread bytes are answered with a reset
        self._loop.call_soon(self._connection_lost, error, context=self.process.context)

    def room_made(self) -> None:
        """Called when the pipe has room for more bytes."""
        if self._unsent and not self._gone and self.process.alive:
            self._loop.call_soon(self._push, context=self.process.context)

    def _push(self) -> None:
        if self._gone:
            return
        while self._unsent and (room := self.out.room()) > 0:
            head = self._unsent.popleft()
            if len(head) > room:
                self._unsent.appendleft(head[room:])
                head = head[:room]
            self._unsent_size -= len(head)
            self.out.send(DATA, bytes(head))
        self._maybe_resume_protocol()  # type: ignore[attr-defined]
        if self._ending and not self._unsent:
            if not self._end_sent:
                self._end_sent = True
                self.out.send(END)
            if self._closing:
                self.lost(None)

    def _connection_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
