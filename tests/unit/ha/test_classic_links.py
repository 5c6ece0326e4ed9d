"""Both ends of a classic link: literals, and links between Java brokers as captured.

Golden bytes: RocketMQ 5.3.3, tests/vectors/ha."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from ha.classic.frames import BODY_SIZE_MAX, PairTransferHeader, decode_report, encode_report
from ha.classic.master import ClassicMasterLink, ClassicMasterState
from ha.classic.slave import ClassicSlaveLink
from ha.frames import HAFrameError
from ha.master.link import Acked, Action, Batch, Close, Hold
from ha.slave.link import Action as SlaveAction
from ha.slave.link import Advance, Confirm, LogRange, Send
from ha.slave.link import Close as SlaveClose
from tests.unit.ha.memorylog import MemoryLog

VECTORS = Path(__file__).parents[2] / "vectors/ha"
SEGMENT_SIZE = 16384
ROWS = {row["stream"][:10]: row for row in json.loads((VECTORS / "index-classic.json").read_text())}
LOG_FOLDER = VECTORS / "state-classic/4-fresh-slave-last-file-only-broker0"


def truth() -> bytes:
    files = [gzip.decompress(file.read_bytes()) for file in sorted(LOG_FOLDER.glob("commitlog-*.gz"))]
    return b"".join(file.ljust(SEGMENT_SIZE, b"\0") for file in files[:-1]) + files[-1]


TRUTH = truth()


def stream(name: str, side: str) -> bytes:
    part = json.loads((VECTORS / ROWS[name]["index"]).read_text())[side]
    return (VECTORS / ROWS[name]["stream"]).read_bytes()[part["offset"] : part["offset"] + part["length"]]


def test_the_frames_have_upstreams_bytes() -> None:
    assert encode_report(3280).hex() == "0000000000000cd0"
    assert decode_report(bytes.fromhex("0000000000000cd0")) == 3280
    assert PairTransferHeader(3280, 0).encode().hex() == "0000000000000cd000000000"
    assert PairTransferHeader.decode(bytes.fromhex("0000000000000cd0000001f4")) == (3280, 500)


@pytest.mark.parametrize("header", [(-1, 0), (0, -1), (0, BODY_SIZE_MAX + 1)])
def test_an_invalid_transfer_header_is_rejected(header: tuple[int, int]) -> None:
    with pytest.raises(HAFrameError):
        PairTransferHeader.decode(PairTransferHeader(*header).encode())


# -- the master's end


@dataclass
class Master:
    log_end: int = 1000
    log_min: int = 0
    segment_size_bytes: int = 10_000


def master_link(master: Master, transfer_batch_size: int = 400) -> ClassicMasterLink:
    return ClassicMasterLink(
        master,
        transfer_batch_size=transfer_batch_size,
        heartbeat_interval_ms=5000,
        housekeeping_interval_ms=20_000,
        now_ms=0,
    )


def frames(link: ClassicMasterLink, now_ms: int = 0) -> list[tuple[int, int]]:
    """(offset, size) of all frames that are due now."""
    sent = []
    while batches := link.writable(now_ms):
        [batch] = batches
        assert isinstance(batch, Batch)
        assert PairTransferHeader.decode(batch.header) == (batch.offset, batch.size)
        sent.append((batch.offset, batch.size))
    return sent


def reason(actions: list[Action]) -> str:
    [close] = actions
    assert isinstance(close, Close)
    return close.reason


def test_a_slave_still_needs_the_log_from_its_reported_offset() -> None:
    link = master_link(Master(log_end=15_000), transfer_batch_size=100)
    assert link.read_from is None
    link.receive(encode_report(700), 0)
    link.writable(0)
    assert link.read_from == 700
    link.receive(encode_report(800), 0)
    assert link.read_from == 800
    link.connection_lost()
    assert link.read_from is None
    empty = master_link(Master(log_end=15_000))
    empty.receive(encode_report(0), 0)
    assert empty.read_from == 10_000


def test_a_master_sends_from_the_first_reported_offset_on() -> None:
    link = master_link(Master())
    assert frames(link, now_ms=6000) == [] and link.tick(6000) == []
    assert link.receive(encode_report(300), 0) == [Acked(300)]
    assert frames(link) == [(300, 400), (700, 300)]


def test_an_empty_slave_gets_the_last_file_only() -> None:
    link = master_link(Master(log_end=25_000), 6000)
    link.receive(encode_report(0), 0)
    assert frames(link) == [(20_000, 5000)]


def test_an_empty_slave_gets_nothing_of_an_empty_log_with_a_later_start() -> None:
    link = master_link(Master(log_end=30_000, log_min=30_000))
    link.receive(encode_report(0), 0)
    assert frames(link) == [] and link.next_offset == 30_000


def test_a_frame_ends_with_the_segment() -> None:
    link = master_link(Master(log_end=10_300), 4000)
    link.receive(encode_report(7000), 0)
    assert frames(link) == [(7000, 3000), (10_000, 300)]


@pytest.mark.parametrize(
    ("requested", "why"), [(1001, "ends at 1000"), (499, "begins at 500"), (-1, "report of -1")]
)
def test_a_slave_whose_end_is_not_in_the_log_is_refused(requested: int, why: str) -> None:
    """Upstream waits until its log has grown past that offset and then sends from the middle of other
    records."""
    link = master_link(Master(log_min=500))
    assert why in reason(link.receive(encode_report(requested), 0))
    assert link.receive(encode_report(600), 0) == [] and frames(link) == []


@pytest.mark.parametrize("second", [299, 701])
def test_a_report_that_decreases_or_exceeds_the_sent_end_ends_the_link(second: int) -> None:
    link = master_link(Master())
    link.receive(encode_report(300), 0)
    link.writable(0)
    assert link.next_offset == 700
    assert f"a report of {second} after 300, sent up to 700" in reason(link.receive(encode_report(second), 0))


@pytest.mark.parametrize("step", [100, 1, 7])
def test_reports_are_read_in_chunks_of_any_size(step: int) -> None:
    link, actions = master_link(Master()), []
    data = encode_report(300) * 2 + encode_report(300)[:3]
    for at in range(0, len(data), step):
        actions += link.receive(data[at : at + step], 0)
    assert actions == [Acked(300)]


def test_a_quiet_link_gets_a_heartbeat_and_a_silent_slave_is_dropped() -> None:
    link = master_link(Master())
    link.receive(encode_report(1000), 0)
    assert link.next_tick_ms == 5000 and link.tick(4999) == []
    [heartbeat] = link.tick(5000)
    assert isinstance(heartbeat, Batch) and PairTransferHeader.decode(heartbeat.header) == (1000, 0)
    assert link.next_tick_ms == 10_000
    assert "nothing heard for 20000 ms" in reason(link.tick(20_000))
    assert link.state is ClassicMasterState.CLOSED


def test_no_frame_is_built_while_the_link_is_on_hold() -> None:
    link = master_link(Master())
    link.receive(encode_report(900), 0)
    link.hold(Hold.WRITER)
    assert link.writable(0) == [] and link.tick(9000) == [] and link.next_tick_ms == 20_000
    assert [action.offset for action in link.release(Hold.WRITER, 9000) if isinstance(action, Batch)] == [900]


def test_a_link_ends_when_retention_deleted_the_next_offset() -> None:
    master = Master()
    link = master_link(master)
    link.receive(encode_report(100), 0)
    master.log_min = 200
    assert "100 is due, the log begins at 200" in reason(link.writable(0))


@pytest.mark.parametrize("step", [8, 1, 7])
@pytest.mark.parametrize("name", ROWS)
def test_a_master_serves_a_java_slave(name: str, step: int) -> None:
    begin, end = ROWS[name]["dataRange"]
    link = master_link(Master(end, 0, SEGMENT_SIZE), 32768)
    log, acks, data = b"", [], stream(name, "s2m")
    for at in range(0, len(data), step):
        actions = link.receive(data[at : at + step], 0)
        assert not [action for action in actions if isinstance(action, Close)]
        acks += [action.offset for action in actions if isinstance(action, Acked)]
        log += b"".join(TRUTH[offset : offset + size] for offset, size in frames(link))
    assert log == TRUTH[begin:end]
    assert (acks[0], acks[-1]) == (ROWS[name]["firstAck"], end)


# -- the slave's end


class SlaveDriver:
    """Drives a link with a master's bytes over a log."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.sent: list[int] = []
        self.closed = ""
        self.link = ClassicSlaveLink(
            log_end=log.max_offset(),
            segment_size_bytes=log.segment_size_bytes,
            heartbeat_interval_ms=5000,
            housekeeping_interval_ms=20_000,
            now_ms=0,
        )
        self.perform(self.link.start())

    def perform(self, actions: list[SlaveAction]) -> None:
        for action in actions:
            match action:
                case Send(data):
                    self.sent.append(decode_report(data))
                case Advance(end):
                    self.log.advance(end)
                case Confirm(offset):
                    self.log.set_confirm_offset(offset)
                case SlaveClose(why):
                    self.closed = why

    def feed(self, data: bytes, step: int = 1 << 30) -> SlaveDriver:
        position = 0
        while position < len(data) and not self.closed:
            chunk_end = min(position + step, len(data))
            while position < chunk_end and not self.closed:
                place = self.link.next_read()
                assert place is not None
                if isinstance(place, LogRange):
                    place = self.log.write_view(place.offset, place.size)
                size = min(len(place), chunk_end - position)
                place[:size] = data[position : position + size]
                position += size
                self.perform(self.link.filled(size, 0))
            self.perform(self.link.turn_over(0))
        return self


def frame(offset: int, body: bytes = b"") -> bytes:
    return PairTransferHeader(offset, len(body)).encode() + body


@pytest.mark.parametrize("step", [1 << 30, 1, 7])
@pytest.mark.parametrize("name", ROWS)
def test_a_slave_copies_a_java_master_byte_for_byte(name: str, step: int) -> None:
    row = ROWS[name]
    begin, end = row["dataRange"]
    slave = SlaveDriver(MemoryLog(SEGMENT_SIZE, TRUTH[: row["firstAck"]]))
    slave.feed(stream(name, "m2s"), step)
    assert slave.closed == ""
    assert slave.log.content() == TRUTH[slave.log.min_offset() : end]
    assert slave.log.confirm_offset() == end
    assert (slave.sent[0], slave.sent[-1]) == (row["firstAck"], end)


def test_a_slave_reports_its_offset_at_once_and_then_once_per_loop_turn() -> None:
    slave = SlaveDriver(MemoryLog(data=bytes(100)))
    assert slave.sent == [100]
    slave.feed(frame(100, bytes(50)) + frame(150, bytes(50)) + frame(200))
    assert slave.sent == [100, 200] and slave.link.frames == 3


def test_a_frame_at_another_offset_ends_the_connection() -> None:
    for wrong in (frame(99), frame(101, b"x")):
        slave = SlaveDriver(MemoryLog(data=bytes(100))).feed(wrong)
        assert "the own log ends at 100" in slave.closed and slave.log.max_offset() == 100


def test_an_empty_log_begins_at_a_segment_and_accepts_heartbeats_at_any_offset() -> None:
    log = MemoryLog(SEGMENT_SIZE)
    slave = SlaveDriver(log).feed(frame(2 * SEGMENT_SIZE) + frame(2 * SEGMENT_SIZE, bytes(10)))
    assert slave.closed == "" and (log.min_offset(), log.max_offset()) == (
        2 * SEGMENT_SIZE,
        2 * SEGMENT_SIZE + 10,
    )
    assert "within a segment" in SlaveDriver(MemoryLog(SEGMENT_SIZE)).feed(frame(5, b"x")).closed


def test_a_slave_confirms_exactly_the_bytes_that_arrived() -> None:
    slave = SlaveDriver(MemoryLog(data=bytes(100)))
    slave.feed(PairTransferHeader(100, 50).encode() + bytes(20))
    assert slave.log.confirm_offset() == slave.log.max_offset() == 120
    assert slave.sent[-1] == 120


def test_a_quiet_slave_reports_and_disconnects_from_a_silent_master() -> None:
    slave = SlaveDriver(MemoryLog(data=bytes(100)))
    assert slave.link.next_tick_ms == 5000 and slave.link.tick(4999) == []
    assert slave.link.tick(5000) == [Send(encode_report(100))]
    [close] = slave.link.tick(20_000)
    assert isinstance(close, SlaveClose) and "nothing heard" in close.reason
    assert slave.link.next_read() is None and slave.link.turn_over(20_000) == []
