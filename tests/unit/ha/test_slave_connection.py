"""When a slave's connection acknowledges received data, on a scripted transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from epochfile.history import EpochHistory
from ha.counters import HACounters
from ha.frames import Handshake, HandshakeReply, TransferHeader, encode_ack
from ha.slave.connection import SlaveConnection
from ha.slave.link import PersistEpochs, SlaveLink
from mqruntime.clock import SystemClock
from mqruntime.tasks import Tasks
from tests.unit.ha.memorylog import MemoryLog

LARGE = 20_000


class Wire(asyncio.Transport):
    """A master's end: fills the buffers of the connection with given bytes."""

    def __init__(self, connection: SlaveConnection) -> None:
        super().__init__()
        self._connection = connection
        self.written: list[bytes] = []

    def brings(self, data: bytes) -> None:
        """One readable event: fill buffers until one is not full."""
        while data:
            room = self._connection.get_buffer(-1)
            part = data[: len(room)]
            room[: len(part)] = part
            data = data[len(part) :]
            del room
            self._connection.buffer_updated(len(part))

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written.append(data)

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def frame(offset: int, size: int, epoch: int = 1, start: int = 0) -> bytes:
    return TransferHeader(size, offset, epoch, start, offset).encode() + bytes(size)


Scenario = Callable[[Wire, SlaveConnection, list[int]], Coroutine[None, None, None]]


def played(scenario: Scenario) -> None:
    """Run `scenario` on a receiving connection whose log has 100 bytes of epoch 1; earlier writes are
    cleared. The list gets each confirm offset."""

    async def whole() -> None:
        log, confirmed = MemoryLog(1 << 20, bytes(100)), list[int]()
        link = SlaveLink(
            handshake=Handshake(2), history=EpochHistory([(1, 0)]), epoch=1, log_min=0, log_end=100, confirm_offset=0,
            truncation_allowed=None, flushed_end=None, segment_size_bytes=1 << 20, heartbeat_interval_ms=5_000,
            housekeeping_interval_ms=20_000, handshake_timeout_ms=5_000, now_ms=SystemClock().monotonic_ms(),
        )  # fmt: skip
        connection = SlaveConnection(
            link, log, SystemClock(), Tasks(failed), HACounters(),
            lambda: confirmed.append(log.confirm_offset()), lambda: None,
        )  # fmt: skip
        wire = Wire(connection)
        connection.connection_made(wire)
        wire.brings(HandshakeReply(100, EpochHistory([(1, 0)])).encode())
        wire.written.clear()
        await scenario(wire, connection, confirmed)
        connection.connection_lost(None)

    asyncio.run(whole())


def failed(error: BaseException) -> None:
    raise AssertionError(error)


def test_a_single_frame_is_acknowledged_at_once() -> None:
    async def scenario(wire: Wire, connection: SlaveConnection, confirmed: list[int]) -> None:
        wire.brings(frame(100, 50))
        assert wire.written == [encode_ack(150)] and confirmed == [100]
        wire.brings(frame(150, 50) + frame(200, 50) + frame(250, 50)[:40])
        assert wire.written == [encode_ack(150), encode_ack(254)] and confirmed == [100, 250]
        wire.brings(frame(250, 50)[40:])
        await asyncio.sleep(0)
        assert wire.written == [encode_ack(150), encode_ack(254), encode_ack(300)]

    played(scenario)


def test_one_ack_covers_all_data_when_more_may_have_arrived() -> None:
    """After a read that fills its buffer, more data may follow."""

    async def scenario(wire: Wire, connection: SlaveConnection, confirmed: list[int]) -> None:
        large = frame(100, LARGE)
        wire.brings(large[:40])  # 4 bytes of the body came with its header
        assert wire.written == [encode_ack(104)]
        wire.brings(large[40:])
        assert wire.written == [encode_ack(104)]
        await asyncio.sleep(0)
        assert wire.written == [encode_ack(104), encode_ack(100 + LARGE)]
        wire.brings(frame(100 + LARGE, LARGE))
        wire.brings(frame(100 + 2 * LARGE, 10))
        await asyncio.sleep(0)
        assert wire.written[2:] == [encode_ack(110 + 2 * LARGE)]

    played(scenario)


def test_frames_that_waited_for_a_durable_epoch_are_then_acknowledged() -> None:
    async def scenario(wire: Wire, connection: SlaveConnection, confirmed: list[int]) -> None:
        wire.brings(frame(100, 50) + frame(150, 50, epoch=2, start=150) + frame(200, 50, epoch=2, start=150))
        assert wire.written == []
        assert isinstance(await connection.next_durable_step(), PersistEpochs)
        link = connection.link
        assert isinstance(link, SlaveLink)
        connection.step_done(link.persisted(SystemClock().monotonic_ms()))
        assert wire.written == [encode_ack(150)]
        await asyncio.sleep(0)
        assert wire.written == [encode_ack(150), encode_ack(250)]

    played(scenario)
