"""The slave's end of a link. R numbers: the races of the reference that each test closes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochfile.history import EpochHistory
from ha.frames import Handshake, TransferHeader, encode_ack
from ha.slave.link import CaughtUp, Close, Confirm, LeftBehind, LogRange, PersistEpochs, Place, Send, StayOut
from tests.unit.ha.memorylog import MemoryLog
from tests.unit.ha.slavedriver import SlaveDriver, acks, data, frame, greeting, log_to


def slave(log: MemoryLog, *epochs: tuple[int, int]) -> SlaveDriver:
    return SlaveDriver(log, EpochHistory(epochs))


def test_the_first_ack_follows_the_handshake_at_once_r40() -> None:
    s = slave(log_to(900), (1, 0)).feed(greeting(1000, (1, 0)))
    assert s.sent == [Handshake(2).encode(), encode_ack(900)]
    assert s.now_ms == 0


def test_an_empty_slave_starts_at_the_log_start_with_the_masters_epochs() -> None:
    s = slave(log_to(0)).feed(greeting(1000, (1, 0), (2, 500)))
    s.feed(frame(0, data(0, 500), 1, 0, confirm=700) + frame(500, data(500, 1000), 2, 500, confirm=700))
    assert acks(s)[0] == 0 and acks(s)[-1] == 1000
    assert s.stored.entries == ((1, 0), (2, 500))
    assert s.stores == [(EpochHistory([(1, 0)]), 0), (EpochHistory([(1, 0), (2, 500)]), 500)]
    assert s.confirmed == [500, 700]
    assert s.log.content() == data(0, 1000)


@pytest.mark.parametrize("far", [3, 2**31 - 1])
def test_an_epoch_unknown_to_controllers_is_rejected(far: int) -> None:
    history = EpochHistory([(1, 0), (2, 500)])
    s = SlaveDriver(log_to(900), history, epoch=2, epoch_max=2)
    s.feed(greeting(1000, (1, 0), (2, 500), (far, 700)))
    assert s.closed == f"the master leads epoch {far}, and controllers have named 2 here"
    assert (s.cuts, s.stores, s.link.epoch_ahead) == ([], [], far)
    s = SlaveDriver(log_to(900), history, epoch=2, epoch_max=2)
    s.feed(greeting(900, (1, 0), (2, 500)) + frame(900, data(900, 1000), far, 900))
    assert s.closed == f"the master leads epoch {far}, and controllers have named 2 here"
    assert s.log.content() == data(0, 900) and s.stored == history


def test_a_link_continues_in_an_epoch_that_controllers_announced_since() -> None:
    s = SlaveDriver(log_to(900), EpochHistory([(1, 0)]), epoch=1, epoch_max=1)
    s.feed(greeting(900, (1, 0)))
    s.link.epoch_named(2)
    s.feed(frame(900, data(900, 1000), 2, 900))
    assert s.closed is None and s.stored.last_epoch() == 2 and s.log.content() == data(0, 1000)


def test_many_frames_of_one_receive_are_acked_once() -> None:
    s = slave(log_to(100), (1, 0)).feed(greeting(100, (1, 0)))
    s.feed(b"".join(frame(at, data(at, at + 100), 1, 0) for at in range(100, 600, 100)))
    assert acks(s) == [100, 600]


@pytest.mark.parametrize(
    ("own_end", "own", "master_end", "master", "cut_to", "epochs"),
    [
        pytest.param(1500, [(1, 0)], 1200, [(1, 0), (2, 1000)], 1000, [(1, 0), (2, 1000)], id="example 2"),
        pytest.param(
            1500, [(1, 0), (2, 1000)], 1800, [(1, 0), (3, 1000)], 1000, [(1, 0), (3, 1000)], id="example 3"
        ),
        pytest.param(700, [(1, 0)], 600, [(1, 0)], 600, [(1, 0)], id="example 4"),
        pytest.param(
            700,
            [(1, 0), (2, 300), (3, 500)],
            900,
            [(1, 0), (2, 300), (3, 400)],
            400,
            [(1, 0), (2, 300), (3, 400)],
            id="example 6",
        ),
        pytest.param(
            1400, [(1, 0), (2, 1000)], 1000, [(1, 0), (2, 1000)], 1000, [(1, 0), (2, 1000)], id="example 13"
        ),
        pytest.param(500, [(1, 0)], 0, [(1, 0)], 0, [], id="the master lost everything"),
    ],
)
def test_a_diverged_tail_is_truncated_before_the_first_ack(
    own_end: int,
    own: list[tuple[int, int]],
    master_end: int,
    master: list[tuple[int, int]],
    cut_to: int,
    epochs: list[tuple[int, int]],
) -> None:
    s = slave(log_to(own_end), *own).feed(greeting(master_end, *master))
    assert s.log.truncated == [(own_end, cut_to)]
    assert acks(s) == [cut_to]
    assert s.stored == EpochHistory(epochs)


def confirmed_to(offset: int, end: int) -> MemoryLog:
    log = log_to(end)
    log.set_confirm_offset(offset)
    return log


def test_confirmed_data_is_not_truncated_and_the_slave_reports_both_offsets() -> None:
    log = confirmed_to(1300, 1500)
    s = slave(log, (1, 0)).feed(greeting(1200, (1, 0), (2, 1200)))
    assert s.stays_out == StayOut(1200, 1300, 1500)
    assert s.closed is not None and log.truncated == [] and acks(s) == []
    assert (log.max_offset(), log.confirm_offset(), s.stored) == (1500, 1300, EpochHistory([(1, 0)]))


def test_a_slave_below_the_masters_log_start_is_left_behind_and_keeps_its_log() -> None:
    log = confirmed_to(1300, 1500)
    begins = 2 * log.segment_size_bytes
    s = SlaveDriver(log, EpochHistory([(1, 0)])).feed(greeting(begins + 500, (1, 0)))
    s.feed(TransferHeader(0, begins, 1, 0, begins).encode())
    assert s.stays_out == LeftBehind(begins, 1500)
    assert s.closed is not None and f"begins at {begins}" in s.closed
    assert (log.max_offset(), log.truncated) == (1500, [])


def test_a_slave_whose_confirmed_epochs_the_master_dropped_is_left_behind() -> None:
    """Its data above that offset is of a master that no broker followed."""
    s = SlaveDriver(confirmed_to(1200, 1500), EpochHistory([(1, 0), (2, 1200)]))
    s.feed(greeting(20_000, (3, 1200), (5, 9_000)))
    assert s.stays_out == LeftBehind(1200, 1500)


@pytest.mark.parametrize(("allowed", "cut"), [(1200, True), (1100, True), (1300, False), (1400, False)])
def test_an_operator_may_allow_truncation_down_to_an_offset(allowed: int, cut: bool) -> None:
    log = confirmed_to(1300, 1500)
    s = SlaveDriver(log, EpochHistory([(1, 0)]), truncation_allowed=allowed)
    s.feed(greeting(1200, (1, 0), (2, 1200)))
    assert (log.truncated == [(1500, 1200)]) is cut and (s.stays_out is None) is cut


def test_caught_up_is_reported_once_per_link() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(1000, (1, 0), (2, 800)))
    s.feed(frame(500, data(500, 700), 1, 0, confirm=300))
    assert s.caught_up_at == [], (
        "data from before the master's epoch may have been acknowledged by its predecessor"
    )
    s.feed(frame(700, data(700, 800), 1, 0, confirm=300))
    assert s.caught_up_at == [800]
    s.feed(frame(800, data(800, 1000), 2, 800, confirm=1000))
    assert s.caught_up_at == [800]


def test_caught_up_requires_the_confirm_offset_of_the_masters_epoch() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(1000, (1, 0), (2, 500)))
    s.feed(frame(500, data(500, 700), 2, 500, confirm=900))
    assert s.caught_up_at == []
    s.feed(frame(700, data(700, 900), 2, 500, confirm=900))
    assert s.caught_up_at == [900]


def test_a_frame_without_a_body_is_enough_to_be_caught_up() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0)))
    s.feed(frame(500, b"", 1, 0, confirm=500))
    assert s.caught_up_at == [500]


def test_the_log_is_truncated_before_the_new_epochs_are_stored() -> None:
    """The other order would leave diverged bytes in the master's epoch after a crash."""
    s = slave(log_to(1500), (1, 0), (2, 1000)).feed(greeting(1800, (1, 0), (3, 1000)))
    assert s.stores == [(EpochHistory([(1, 0), (3, 1000)]), 1000)]


def test_the_log_is_truncated_at_a_record_boundary_r3() -> None:
    s = slave(log_to(1500), (1, 0)).feed(greeting(1250, (1, 0)))
    assert s.log.truncated == [(1500, 1200)]
    assert acks(s) == [1200]


def test_an_epoch_file_ahead_of_the_log_never_causes_an_ack_beyond_it_r2() -> None:
    s = slave(log_to(900), (1, 0), (2, 1000)).feed(greeting(1500, (1, 0), (2, 1000)))
    assert s.log.truncated == []
    assert acks(s) == [900]
    assert s.stored.entries == ((1, 0),)


@pytest.mark.parametrize("own_epoch", [3, 9])
def test_a_master_with_an_older_newest_epoch_is_refused_c8_r4(own_epoch: int) -> None:
    s = slave(log_to(900), (1, 0), (own_epoch, 1000)).feed(greeting(1000, (1, 0), (2, 500)))
    assert s.closed is not None and "an old master" in s.closed
    assert s.log.truncated == [] and acks(s) == []


def test_a_master_that_does_not_know_the_accepted_epoch_is_refused() -> None:
    """Such a master does not know members that joined under the master in between, so it could acknowledge
    too early."""
    for own in ([(1, 0)], []):
        s = SlaveDriver(log_to(900 if own else 0), EpochHistory(own), epoch=3).feed(
            greeting(1000, (1, 0), (2, 500))
        )
        assert s.closed is not None and "an old master" in s.closed
        assert s.log.truncated == [] and acks(s) == []
    s = SlaveDriver(log_to(900), EpochHistory([(1, 0)]), epoch=3).feed(greeting(1000, (1, 0), (3, 900)))
    assert s.closed is None and acks(s) == [900]


def test_a_missing_common_epoch_ends_the_connection_with_a_hint() -> None:
    s = SlaveDriver(confirmed_to(400, 500), EpochHistory([(1, 0)])).feed(greeting(5000, (5, 300)))
    assert s.closed is not None and "mqadmin resyncBroker" in s.closed
    assert s.stays_out is None and s.log.truncated == []


def test_an_unconfirmed_first_epoch_is_replaced_by_another_first_epoch() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(900, (2, 0)))
    assert s.log.truncated == [(500, 0)] and acks(s) == [0]
    log = log_to(500)
    log.set_confirm_offset(100)
    s = slave(log, (1, 0)).feed(greeting(900, (2, 0)))
    assert s.closed is not None and "mqadmin resyncBroker" in s.closed and log.truncated == []


def test_logs_that_diverge_before_the_own_log_start_are_refused() -> None:
    log = MemoryLog(1000, data(1000, 2000), begins=1000)
    s = slave(log, (1, 0)).feed(greeting(1500, (1, 0), (2, 500)))
    assert s.closed is not None and "the logs diverge at 500" in s.closed


def test_a_log_truncated_to_its_start_continues_there() -> None:
    log = MemoryLog(1000, data(1000, 1500), begins=1000)
    s = (
        slave(log, (1, 0))
        .feed(greeting(1600, (1, 0), (2, 1000)))
        .feed(frame(1000, data(1000, 1600, "b"), 2, 1000))
    )
    assert acks(s) == [1000, 1600]
    assert s.log.content() == data(1000, 1600, "b") and s.stored.entries == ((1, 0), (2, 1000))


def test_an_empty_log_with_an_epoch_entry_joins_like_a_new_one() -> None:
    s = slave(log_to(0), (2, 0)).feed(greeting(1000, (3, 0)))
    s.feed(frame(0, data(0, 100), 3, 0))
    assert acks(s) == [0, 100]
    assert s.stored.entries == ((3, 0),)


def test_an_epoch_that_wrote_nothing_is_replaced_by_the_next_r1() -> None:
    s = slave(log_to(500), (1, 0), (2, 500)).feed(greeting(500, (1, 0), (3, 500)))
    assert s.closed is None
    assert s.stored.entries == ((1, 0), (3, 500))
    assert acks(s) == [500]


def test_a_new_epoch_without_bytes_is_stored_r19() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0))).feed(frame(500, b"", 2, 500))
    assert s.stored.entries == ((1, 0), (2, 500))


def test_an_epoch_entry_is_durable_before_its_first_byte_is_written_e3() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0)))
    header = frame(500, data(500, 600), 2, 500)[:36]
    place = s.link.next_read()
    assert isinstance(place, memoryview)
    place[:36] = header
    assert s.link.filled(36, 0) == [PersistEpochs(EpochHistory([(1, 0), (2, 500)]))]
    assert s.link.next_read() is None and s.link.turn_over(0) == []
    assert s.link.persisted(0) == []
    assert s.link.next_read() is not None


def test_a_clipped_tail_labelled_with_the_next_epoch_belongs_to_the_former_one_r20() -> None:
    s = slave(log_to(0)).feed(greeting(900, (1, 0), (2, 500)))
    s.feed(frame(0, data(0, 500), 2, 500))
    assert s.stores == [(EpochHistory([(1, 0)]), 0)]
    s.feed(frame(500, data(500, 900), 2, 500))
    assert s.stored.entries == ((1, 0), (2, 500))
    assert s.closed is None


def test_an_epoch_begun_after_the_handshake_is_found_in_a_clipped_tail_r20() -> None:
    s = slave(log_to(300), (1, 0)).feed(greeting(400, (1, 0)))
    s.feed(frame(300, data(300, 500), 2, 500)).feed(frame(500, data(500, 900), 2, 500))
    assert s.closed is None
    assert s.stored.entries == ((1, 0), (2, 500))


def test_a_dropped_epoch_is_stored_again_on_the_next_connection_r18() -> None:
    s = slave(log_to(500), (1, 0), (2, 500)).feed(greeting(500, (1, 0), (2, 500)))
    assert s.stored.entries == ((1, 0), (2, 500))
    again = SlaveDriver(s.log, s.stored).feed(
        greeting(700, (1, 0), (2, 500)) + frame(500, data(500, 700), 2, 500)
    )
    assert again.stored.entries == ((1, 0), (2, 500))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(frame(400, data(400, 500), 1, 0), id="below the own end"),
        pytest.param(frame(600, data(600, 700), 1, 0), id="beyond the own end"),
        pytest.param(frame(600, b"", 1, 0), id="heartbeat elsewhere"),
        pytest.param(frame(-1, b"", 1, 0), id="heartbeat without a log"),
        pytest.param(frame(500, data(500, 600), 0, 0), id="lower epoch"),
        pytest.param(frame(500, data(500, 600), 2, 100), id="new epoch behind the own end"),
        pytest.param(frame(500, data(500, 600), 2, 700), id="new epoch beyond the frame"),
        pytest.param(frame(500, data(500, 600), 1, 100), id="known epoch, other start"),
        pytest.param(frame(500, data(500, 700), 2, 600), id="two epochs in one body"),
        pytest.param(greeting(500, (1, 0)) + bytes(16), id="a second handshake reply"),
        pytest.param(bytes(36), id="state READY"),
        pytest.param(b"\xff" * 36, id="state -1"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: example.org:10912\r\n\r\n", id="HTTP"),
    ],
)
@pytest.mark.parametrize("step", [1000, 1, 7])
def test_an_invalid_frame_ends_the_connection_and_changes_nothing_l4(bad: bytes, step: int) -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(800, (1, 0)), step).feed(bad, step)
    assert s.closed is not None
    assert s.log.content() == data(0, 500)
    assert s.stored.entries == ((1, 0),)
    assert acks(s) == [500]
    assert s.link.tick(10**6) == [] and s.link.persisted(0) == []


def test_the_first_bytes_of_an_empty_log_begin_a_segment() -> None:
    s = slave(log_to(0)).feed(greeting(800, (1, 0))).feed(frame(100, data(100, 200), 1, 0))
    assert s.closed is not None and "within a segment" in s.closed
    s = slave(log_to(0)).feed(greeting(20_800, (1, 0), (2, 20_500)))
    s.feed(frame(20_000, b"", 1, 0)).feed(frame(20_000, data(20_000, 20_100), 1, 0))
    assert (s.log.min_offset(), s.log.max_offset()) == (20_000, 20_100)
    assert s.stored.entries == ((1, 0),)


def test_a_heartbeat_of_a_master_without_a_file_is_no_error() -> None:
    s = slave(log_to(0)).feed(greeting(0, (1, 0))).feed(frame(-1, b"", 1, 0))
    assert s.closed is None
    assert acks(s) == [0]


def test_a_body_larger_than_a_segment_is_split_r37() -> None:
    s = slave(MemoryLog(1000)).feed(greeting(2500, (1, 0)))
    s.feed(frame(0, data(0, 2500), 1, 0))
    assert s.log.content() == data(0, 2500)
    assert acks(s) == [0, 2500]


def test_the_confirm_offset_never_decreases_or_passes_the_log_end_r9() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(800, (1, 0)))
    s.feed(frame(500, b"", 1, 0, confirm=9999))
    s.feed(frame(500, b"", 1, 0, confirm=300))
    s.feed(frame(500, data(500, 600), 1, 0, confirm=9999))
    assert s.confirmed == [500, 600]


def test_an_idle_slave_acks_regularly_and_disconnects_from_a_silent_master() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0)))
    assert s.link.tick(4_999) == []
    assert s.link.next_tick_ms == 5_000
    assert s.link.tick(5_000) == [Send(encode_ack(500))]
    assert s.link.next_tick_ms == 10_000
    [close] = s.link.tick(20_000)
    assert isinstance(close, Close) and "nothing heard" in close.reason


def test_a_handshake_without_a_reply_times_out_r39() -> None:
    s = slave(log_to(500), (1, 0))
    assert s.link.next_tick_ms == 5_000
    assert s.link.tick(4_999) == []
    [close] = s.link.tick(5_000)
    assert isinstance(close, Close)
    assert len(s.sent) == 1


def test_a_partial_handshake_reply_is_waited_for_r39() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0))[:20])
    assert s.closed is None and len(s.sent) == 1


def test_a_durable_step_after_the_connection_was_lost_is_ignored() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(500, (1, 0)))
    place = s.link.next_read()
    assert isinstance(place, memoryview)
    place[:36] = frame(500, data(500, 600), 2, 500)[:36]
    s.link.filled(36, 0)
    s.link.connection_lost()
    assert s.link.persisted(0) == [] and s.link.next_read() is None and s.link.turn_over(0) == []


@given(st.binary(max_size=400), st.booleans(), st.integers(1, 50))
def test_only_bytes_of_a_valid_frame_reach_the_log(garbage: bytes, greeted: bool, step: int) -> None:
    s = slave(log_to(500), (1, 0))
    if greeted:
        s.feed(greeting(800, (1, 0)))
    s.feed(garbage, step)
    valid = greeted and garbage[:4] == (2).to_bytes(4, "big")
    assert valid or (s.log.content() == data(0, 500) and s.stored.entries == ((1, 0),))


def test_bytes_are_visible_as_they_arrive() -> None:
    s = slave(log_to(500), (1, 0)).feed(greeting(800, (1, 0)))
    s.feed(frame(500, data(500, 600), 1, 0)[:96])
    assert s.log.max_offset() == 560 and s.caught_up_at == [560] and acks(s)[-1] == 560


def test_small_frames_of_one_receive_are_written_and_confirmed_together() -> None:
    s = slave(log_to(100), (1, 0)).feed(greeting(100, (1, 0)))
    frames = b"".join(frame(at, data(at, at + 100), 1, 0, confirm=at) for at in range(100, 600, 100))
    place = s.link.next_read()
    assert isinstance(place, memoryview)
    place[: len(frames)] = frames
    assert s.link.filled(len(frames), 0) == [Place(100, data(100, 600)), Confirm(500), CaughtUp()]


def test_frames_of_a_new_epoch_wait_until_its_entry_is_durable() -> None:
    s = slave(log_to(100), (1, 0)).feed(greeting(100, (1, 0)))
    frames = frame(100, data(100, 200), 1, 0) + frame(200, data(200, 300), 2, 200, confirm=200)
    frames += frame(300, data(300, 400), 2, 200, confirm=300)[:-7]
    place = s.link.next_read()
    assert isinstance(place, memoryview)
    place[: len(frames)] = frames
    persist = PersistEpochs(EpochHistory([(1, 0), (2, 200)]))
    assert s.link.filled(len(frames), 0) == [Place(100, data(100, 200)), Confirm(200), persist]
    assert s.link.next_read() is None and s.link.log_end == 200
    acked, *rest = s.link.persisted(0)
    assert acked == Send(encode_ack(200))
    assert rest == [Place(200, data(200, 400)[:-7]), Confirm(300), CaughtUp()]


@pytest.mark.parametrize("step", [1 << 30, 30_000, 16_400, 999])
def test_a_large_body_and_the_frames_after_it_are_written_in_order(step: int) -> None:
    s = SlaveDriver(MemoryLog(1 << 20, data(0, 100)), EpochHistory([(1, 0)])).feed(greeting(100, (1, 0)))
    ends = [100, 60_100, 100_100, 100_200, 100_300, 140_300]
    s.feed(b"".join(frame(at, data(at, end), 1, 0) for at, end in pairwise(ends)), step)
    assert s.log.content() == data(0, 140_300) and acks(s)[-1] == 140_300 and s.closed is None


def test_only_the_first_bytes_of_a_large_body_are_copied() -> None:
    s = SlaveDriver(MemoryLog(1 << 20, data(0, 100)), EpochHistory([(1, 0)])).feed(greeting(100, (1, 0)))
    s.feed(frame(100, data(100, 60_100), 1, 0)[: 36 + 1000])
    assert s.link.next_read() == LogRange(1_100, 59_000)
    s.feed(data(100, 60_100)[1000:])
    behind = s.link.next_read()
    assert isinstance(behind, memoryview) and len(behind) == 36  # another frame is likely
