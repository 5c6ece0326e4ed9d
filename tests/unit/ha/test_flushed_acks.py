"""Contract D between replicas: an offset counts and is acknowledged only when it is on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochfile.history import EpochHistory
from ha.frames import HANDSHAKE, HAConnectionState, Handshake
from tests.unit.ha.hascene import SETTINGS, Node, fill, greeted, in_step, played_by, turns, until
from tests.unit.ha.slavedriver import SlaveDriver, acks, data, frame, greeting, log_to

D = replace(SETTINGS, acks_flushed=True)


def slave_of_d(end: int) -> SlaveDriver:
    return SlaveDriver(
        log_to(end), EpochHistory([(1, 0)]), Handshake(2, acks_flushed=True), acks_flushed=True
    )


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_the_flush_flag_keeps_a_handshake_readable_for_upstream(learner: bool, flushed: bool) -> None:
    shaken = Handshake(7, is_async_learner=learner, acks_flushed=flushed)
    state, last_file, said, broker_id = HANDSHAKE.unpack(shaken.encode())
    assert (state, last_file, broker_id) == (HAConnectionState.HANDSHAKE, 0, 7)
    assert (said == 1) is learner, "upstream's master compares with 1"
    assert Handshake.decode(shaken.encode()) == replace_learner(shaken)


def replace_learner(shaken: Handshake) -> Handshake:
    return shaken._replace(acks_flushed=False) if shaken.is_async_learner else shaken


def test_the_first_ack_is_the_log_end_and_later_acks_the_flushed_end() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0)))
    s.feed(frame(300, data(300, 900), 1, 0))
    assert acks(s) == [300]
    s.perform(s.link.flushed(700, s.now_ms))
    s.perform(s.link.flushed(700, s.now_ms))
    assert acks(s) == [300, 700]
    s.perform(s.link.flushed(900, s.now_ms))
    assert acks(s) == [300, 700, 900]


def test_a_heartbeat_acknowledges_only_the_flushed_end() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0)))
    s.feed(frame(300, data(300, 900), 1, 0))
    s.perform(s.link.tick(5_000))
    assert acks(s) == [300, 300]


def test_a_slave_is_caught_up_when_its_disk_is() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0), (2, 900)))
    s.feed(frame(300, data(300, 900), 1, 0, confirm=500) + frame(900, b"", 2, 900, confirm=500))
    assert s.caught_up_at == []
    s.perform(s.link.flushed(800, s.now_ms))
    assert s.caught_up_at == [], "its master's epoch begins at 900"
    s.perform(s.link.flushed(900, s.now_ms))
    assert s.caught_up_at == [900]


def test_the_log_end_after_a_cut_counts_as_flushed() -> None:
    s = SlaveDriver(
        log_to(1500), EpochHistory([(1, 0)]), Handshake(2, acks_flushed=True), acks_flushed=True
    ).feed(greeting(1200, (1, 0), (2, 1000)))
    assert [cut.offset for cut in s.cuts] == [1000] and acks(s) == [1000]


@played_by(1, 2, settings=D)
async def test_an_offset_is_confirmed_only_when_both_disks_have_it(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    end = a.log.max_offset()
    await until(lambda: b.log.max_offset() == end)
    await turns(20)
    assert a.ha.acked_end() == a.log.confirm_offset() == 0
    await a.log.flush()
    await turns(20)
    assert a.ha.acked_end() == 0, "the slave has it only in memory"
    await b.log.flush()
    await until(lambda: a.ha.acked_end() == end)


@played_by(1, 2, settings=D)
async def test_an_offset_is_not_confirmed_by_the_slaves_disk_alone(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    end = a.log.max_offset()
    await until(lambda: b.log.max_offset() == end)
    await b.log.flush()
    await until(lambda: a.ha.slaves()[2][0] == end)
    assert a.ha.acked_end() == 0
    await a.log.flush()
    await until(lambda: a.ha.acked_end() == end)


@played_by(1, settings=D)
async def test_a_slave_that_acks_before_flushing_is_not_proposed_and_is_logged(
    a: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await a.lead(1)
    fill(a, "one", 10)
    await a.log.flush()
    _reader, writer = await greeted(a.port, Handshake(2), a.log.max_offset())
    await until(lambda: 2 in a.ha.slaves())
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    await turns(200)
    assert a.ha.counted_members() == {1}
    assert [r.__dict__["fields"]["why"] for r in caplog.records if r.message == "slave not counted"] == [
        "it acknowledges what is not on its disk yet: set allFlushInSyncStateSet=true there, as on this master"
    ]
    writer.close()


@played_by(1, settings=D)
async def test_a_member_that_returns_without_flushed_acks_leaves_the_set(a: Node) -> None:
    await a.lead(1)
    _reader, writer = await greeted(a.port, Handshake(2, acks_flushed=True), 0)
    await until(lambda: a.ha.applied_members() == {1, 2})
    a.controller_up = False
    _reader2, again = await greeted(a.port, Handshake(2), 0)
    await until(lambda: a.wanted[-1][0] == {1})
    fill(a, "one", 10)
    await a.log.flush()
    await turns(50)
    assert a.ha.acked_end() == 0, "the controllers may still elect it"
    a.controller_up = True
    await until(lambda: a.ha.applied_members() == {1})
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    writer.close()
    again.close()
