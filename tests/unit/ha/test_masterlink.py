"""The master's end of a link. R numbers: the races of the reference that each test closes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochfile.history import EpochHistory
from ha.frames import Handshake, HandshakeReply, TransferHeader, encode_ack
from ha.master.link import Acked, Action, Batch, Close, HandshakeDone, Hold, MasterLink, MasterState
from tests.unit.ha.masterlinks import link_of

HANDSHAKE = Handshake(2).encode()


@dataclass
class Master:
    log_end: int = 1000
    history: EpochHistory = field(default_factory=lambda: EpochHistory([(1, 0)]))
    confirm_offset: int = 700
    log_min: int = 0
    broker_id: int = 1
    segment_size_bytes: int = 10_000


def sending(
    master: Master, first_ack: int = 0, batch_size: int = 400, handshake: bytes = HANDSHAKE
) -> MasterLink:
    link = link_of(master, batch_size)
    link.receive(handshake + encode_ack(first_ack), 0)
    return link


def frames(link: MasterLink, now_ms: int = 0) -> list[tuple[int, int, int]]:
    """(offset, size, epoch) of all frames that are due now."""
    sent = []
    while batches := link.writable(now_ms):
        [batch] = batches
        if not isinstance(batch, Batch):
            break
        header = TransferHeader.decode(batch.header)
        assert (header.offset, header.body_size) == (batch.offset, batch.size)
        sent.append((batch.offset, batch.size, header.epoch))
    return sent


def notices(actions: list[Action]) -> list[TransferHeader]:
    """`actions` as headers of frames without a body."""
    assert all(isinstance(action, Batch) and action.size == 0 for action in actions)
    return [TransferHeader.decode(action.header) for action in actions if isinstance(action, Batch)]


@pytest.mark.parametrize("step", [100, 1, 7])
def test_handshake_and_first_ack_are_read_in_chunks_of_any_size_r17(step: int) -> None:
    link, actions = link_of(Master()), []
    data = HANDSHAKE + encode_ack(600)
    for at in range(0, len(data), step):
        actions += link.receive(data[at : at + step], 0)
    reply = HandshakeReply(1000, EpochHistory([(1, 0)])).encode()
    assert actions == [HandshakeDone(Handshake(2), reply), Acked(600)]
    assert frames(link) == [(600, 400, 1)]


def test_a_repeated_handshake_is_not_answered_again_r39() -> None:
    link = link_of(Master())
    assert len(link.receive(HANDSHAKE * 2, 0)) == 1
    assert link.receive(encode_ack(0), 0) == [Acked(0)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode_ack(0), id="ack before the handshake"),
        pytest.param(HANDSHAKE + Handshake(3).encode(), id="another id"),
        pytest.param(HANDSHAKE + encode_ack(0) + HANDSHAKE, id="handshake while sending"),
        pytest.param(Handshake(1).encode(), id="the master's own id"),
        pytest.param(Handshake(0).encode(), id="id 0"),
        pytest.param(Handshake(-5).encode(), id="negative id"),
        pytest.param(HANDSHAKE + encode_ack(-1), id="negative ack"),
        pytest.param(HANDSHAKE + encode_ack(1001), id="ack beyond the log"),
        pytest.param(HANDSHAKE + encode_ack(2**63 - 1), id="greatest ack"),
        pytest.param(HANDSHAKE + encode_ack(500) + encode_ack(499), id="ack going back"),
        pytest.param(HANDSHAKE + encode_ack(500) + encode_ack(600), id="ack of what was not sent"),
        pytest.param(bytes(16), id="state READY"),
        pytest.param(b"\x00\x00\x00\x04" + bytes(12), id="state SHUTDOWN"),
        pytest.param(b"\xff" * 16, id="state -1"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS hello"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
    ],
)
def test_invalid_bytes_of_a_slave_end_the_connection_c5(data: bytes) -> None:
    link = link_of(Master())
    actions = link.receive(data, 0)
    assert isinstance(actions[-1], Close)
    assert link.receive(HANDSHAKE, 0) == link.writable(0) == link.tick(10**6) == []


def test_a_slave_that_needs_deleted_data_gets_the_log_start_r14() -> None:
    link = link_of(Master(log_end=30_000, log_min=20_000))
    link.receive(HANDSHAKE + encode_ack(19_999), 0)
    assert frames(link) == [(20_000, 0, 1)]
    assert link.state is MasterState.REJECTED
    [close] = link.receive(encode_ack(19_999), 0)
    assert isinstance(close, Close) and "begins at 20000" in close.reason


def test_a_slave_is_rejected_when_the_log_start_passes_its_offset_r14() -> None:
    master = Master(log_end=30_000)
    link = sending(master, first_ack=5000)
    master.log_min = 20_000
    assert frames(link) == [(20_000, 0, 1)]
    assert link.tick(link.next_tick_ms - 1) == []
    [close] = link.tick(link.next_tick_ms)
    assert isinstance(close, Close) and link.state is MasterState.CLOSED


def test_an_emptied_log_rejects_a_slave_that_needs_deleted_data_r14() -> None:
    """The log ends at the start of its segment, where the segment before also ends."""
    link = link_of(Master(log_end=20_000, log_min=20_000, history=EpochHistory([(1, 20_000)])))
    link.receive(HANDSHAKE + encode_ack(19_999), 0)
    assert frames(link) == [(20_000, 0, 1)]
    assert link.state is MasterState.REJECTED


def test_an_ack_makes_no_frame_due() -> None:
    """So the shell need not poll the link after each ack: other events announce frames, or a timer does."""
    link = sending(Master(), first_ack=600)
    assert frames(link, now_ms=1) == [(600, 400, 1)]
    assert link.receive(encode_ack(1000), 2) == [Acked(1000)]
    assert link.writable(2) == [] and link.next_tick_ms == 5_001
    assert link.receive(encode_ack(1000)[:5], 3) == []
    assert link.receive(encode_ack(1000)[5:] + encode_ack(1000), 4) == [Acked(1000), Acked(1000)]
    assert link.writable(4) == []
    [close] = link.receive(encode_ack(1001), 5)
    assert isinstance(close, Close) and "an ack of 1001 after 1000" in close.reason


def test_bytes_without_an_epoch_are_never_sent_r34() -> None:
    link = sending(Master(history=EpochHistory([(1, 500)])), first_ack=0)
    [close] = link.writable(0)
    assert isinstance(close, Close)
    assert link.writable(0) == []


def test_an_empty_slave_starts_at_the_log_start_or_the_last_file() -> None:
    master = Master(log_end=30_500, log_min=10_000)
    assert frames(sending(master, batch_size=50_000)) == [
        (10_000, 10_000, 1),
        (20_000, 10_000, 1),
        (30_000, 500, 1),
    ]
    from_last = Handshake(2, is_sync_from_last_file=True).encode()
    assert frames(sending(master, batch_size=50_000, handshake=from_last)) == [(30_000, 500, 1)]


def test_each_epoch_is_sent_with_its_number_and_an_empty_one_is_announced_r20() -> None:
    master = Master(history=EpochHistory([(1, 0), (2, 500), (3, 1000)]))
    assert frames(sending(master)) == [(0, 400, 1), (400, 100, 1), (500, 400, 2), (900, 100, 2), (1000, 0, 3)]


def test_the_first_frame_is_sent_at_once_even_without_data() -> None:
    link = sending(Master(), first_ack=1000)
    assert frames(link) == [(1000, 0, 1)]
    assert frames(link) == []


def test_a_new_epoch_reaches_a_live_link_r19_m5() -> None:
    master = Master()
    link = sending(master, first_ack=1000)
    assert frames(link) == [(1000, 0, 1)]
    master.history = master.history.append((2, 1000))
    assert frames(link) == [(1000, 0, 2)]
    master.history = master.history.append((3, 1000))
    master.log_end = 1100
    assert frames(link) == [(1000, 100, 3)]


def test_a_frame_stays_within_one_segment_r37() -> None:
    master = Master(log_end=25_000)
    assert frames(sending(master, first_ack=9_900, batch_size=20_000)) == [
        (9_900, 100, 1),
        (10_000, 10_000, 1),
        (20_000, 5_000, 1),
    ]


def test_caught_up_means_acknowledged_and_not_only_sent_r21() -> None:
    master = Master()
    link = sending(master, first_ack=0)
    frames(link, now_ms=10)
    assert link.caught_up_ms is None
    link.receive(encode_ack(1000), 50)
    assert link.caught_up_ms == 50
    master.log_end = 2000
    frames(link, now_ms=60)
    assert link.caught_up_ms == 50


def test_a_slave_that_is_always_one_frame_behind_is_caught_up_as_of_that_frame_r23() -> None:
    master = Master(log_end=0)
    link = sending(master, first_ack=0)
    for step in range(1, 30):
        master.log_end = step * 100
        frames(link, now_ms=step * 1000)
        link.receive(encode_ack((step - 1) * 100), step * 1000 + 1)
    assert link.caught_up_ms == 28_000


def test_heartbeats_carry_the_confirm_offset_and_the_epoch() -> None:
    master = Master()
    link = sending(master, first_ack=1000)
    frames(link)
    assert link.tick(4_999) == []
    link.receive(encode_ack(1000), 4_999)
    master.confirm_offset = 1000
    assert notices(link.tick(5_000)) == [TransferHeader(0, 1000, 1, 0, 1000)]
    assert link.next_tick_ms == 10_000


def test_a_notice_that_a_full_socket_refuses_is_sent_later() -> None:
    """A dropped heartbeat once delayed the confirm offset of an idle slave by one more heartbeat."""
    master = Master()
    link = sending(master, first_ack=1000)
    frames(link)
    link.hold(Hold.WRITER)
    master.confirm_offset = 1000
    assert link.confirm_offset_moved(100) == link.tick(5_000) == link.writable(5_000) == []
    assert notices(link.release(Hold.WRITER, 5_001)) == [TransferHeader(0, 1000, 1, 0, 1000)]
    assert link.tick(5_002) == link.writable(5_002) == []


def test_a_confirm_offset_that_moved_during_a_hold_is_sent_after_the_release() -> None:
    master = Master()
    link = sending(master, first_ack=1000)
    frames(link)
    link.hold(Hold.WRITER)
    master.confirm_offset = 900
    assert link.confirm_offset_moved(100) == []
    assert notices(link.release(Hold.WRITER, 200)) == [TransferHeader(0, 1000, 1, 0, 900)]
    assert link.release(Hold.WRITER, 201) == []


def test_a_link_with_two_holds_continues_after_both_are_released() -> None:
    link = sending(Master())
    link.hold(Hold.WRITER)
    link.hold(Hold.COLD_READ)
    assert link.release(Hold.WRITER, 0) == []
    [batch] = link.release(Hold.COLD_READ, 0)
    assert isinstance(batch, Batch) and (batch.offset, batch.size) == (0, 400)


def test_a_link_on_hold_ends_when_its_slave_is_silent() -> None:
    link = sending(Master(), first_ack=1000)
    frames(link)
    link.hold(Hold.WRITER)
    assert link.next_tick_ms == 20_000 and link.tick(19_999) == []
    [close] = link.tick(20_000)
    assert isinstance(close, Close)


def test_a_new_confirm_offset_is_sent_once() -> None:
    master = Master()
    link = sending(master, first_ack=1000)
    frames(link)
    assert link.confirm_offset_moved(1) == []
    master.confirm_offset = 1000
    assert notices(link.confirm_offset_moved(1)) == [TransferHeader(0, 1000, 1, 0, 1000)]
    assert link.confirm_offset_moved(2) == []


def test_a_connection_without_a_handshake_times_out() -> None:
    link = link_of(Master())
    link.receive(HANDSHAKE[:10], 4_000)
    assert link.next_tick_ms == 5_000
    [close] = link.tick(5_000)
    assert isinstance(close, Close)


def test_a_link_to_a_silent_slave_ends() -> None:
    link = sending(Master(), first_ack=1000)
    assert len(notices(link.tick(5_000))) == 1
    [close] = link.tick(20_000)
    assert isinstance(close, Close) and "nothing heard" in close.reason


@given(st.lists(st.binary(max_size=40), max_size=20), st.booleans())
def test_arbitrary_bytes_can_only_end_the_connection(chunks: list[bytes], greeted: bool) -> None:
    link = sending(Master()) if greeted else link_of(Master())
    for chunk in chunks:
        for action in link.receive(chunk, 0):
            assert isinstance(action, Close) or greeted or isinstance(action, HandshakeDone | Acked)
        frames(link)
    assert len(link._received) < 60


def test_a_slave_that_never_acks_uses_limited_memory_v6() -> None:
    master = Master(log_end=0, segment_size_bytes=10**9)
    link = sending(master, first_ack=0)
    for step in range(1, 10_000):
        master.log_end = step
        frames(link, now_ms=step)
    assert len(link._sent_marks) <= 4096


@pytest.mark.parametrize("step", [100, 1, 7])
def test_a_handshake_by_address_is_read_in_chunks_of_any_size(step: int) -> None:
    link, actions = link_of(Master()), []
    address = b"10.0.0.2:10911"
    data = bytes.fromhex("0000000100000000") + len(address).to_bytes(4, "big") + address + encode_ack(600)
    for at in range(0, len(data), step):
        actions += link.receive(data[at : at + step], 0)
    [greeted, acked] = actions
    assert isinstance(greeted, HandshakeDone) and greeted.handshake == Handshake(0, address="10.0.0.2:10911")
    assert acked == Acked(600) and frames(link) == [(600, 400, 1)]
