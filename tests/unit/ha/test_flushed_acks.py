"""Contract D between replicas: an end counts, and is told, when it is on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochfile.history import EpochHistory
from ha.frames import HANDSHAKE, HAConnectionState, Handshake, decode_ack
from tests.unit.ha.hascene import SETTINGS, Node, fill, greeted, in_step, played_by, turns, until
from tests.unit.ha.slavedriver import SlaveDriver
from tests.unit.ha.test_slavelink import data, frame, greeting, log_to

D = replace(SETTINGS, acks_flushed=True)


def slave_of_d(end: int) -> SlaveDriver:
    return SlaveDriver(
        log_to(end), EpochHistory([(1, 0)]), Handshake(2, acks_flushed=True), acks_flushed=True
    )


def acks(driver: SlaveDriver) -> list[int]:
    return [decode_ack(sent) for sent in driver.sent[1:]]


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_upstream_reads_a_handshake_as_before(learner: bool, flushed: bool) -> None:
    shaken = Handshake(7, is_async_learner=learner, acks_flushed=flushed)
    state, last_file, said, broker_id = HANDSHAKE.unpack(shaken.encode())
    assert (state, last_file, broker_id) == (HAConnectionState.HANDSHAKE, 0, 7)
    assert (said == 1) is learner, "upstream's master compares with 1"
    assert Handshake.decode(shaken.encode()) == replace_learner(shaken)


def replace_learner(shaken: Handshake) -> Handshake:
    return shaken._replace(acks_flushed=False) if shaken.is_async_learner else shaken


def test_the_first_ack_names_the_end_and_the_next_what_is_on_disk() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0)))
    s.feed(frame(300, data(300, 900), 1, 0))
    assert acks(s) == [300]
    s.perform(s.link.flushed(700, s.now_ms))
    s.perform(s.link.flushed(700, s.now_ms))
    assert acks(s) == [300, 700]
    s.perform(s.link.flushed(900, s.now_ms))
    assert acks(s) == [300, 700, 900]


def test_a_heartbeat_says_no_more_than_what_is_on_disk() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0)))
    s.feed(frame(300, data(300, 900), 1, 0))
    s.perform(s.link.tick(5_000))
    assert acks(s) == [300, 300]


def test_it_is_level_when_its_disk_is() -> None:
    s = slave_of_d(300).feed(greeting(900, (1, 0), (2, 900)))
    s.feed(frame(300, data(300, 900), 1, 0, confirm=500) + frame(900, b"", 2, 900, confirm=500))
    assert s.level == []
    s.perform(s.link.flushed(800, s.now_ms))
    assert s.level == [], "the epoch of its master begins at 900"
    s.perform(s.link.flushed(900, s.now_ms))
    assert s.level == [900]


def test_what_a_cut_leaves_is_on_disk() -> None:
    s = SlaveDriver(
        log_to(1500), EpochHistory([(1, 0)]), Handshake(2, acks_flushed=True), acks_flushed=True
    ).feed(greeting(1200, (1, 0), (2, 1000)))
    assert [cut.offset for cut in s.cuts] == [1000] and acks(s) == [1000]


@played_by(1, 2, settings=D)
async def test_nothing_is_confirmed_before_both_disks_have_it(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    end = a.log.max_offset()
    await until(lambda: b.log.max_offset() == end)
    await turns(20)
    assert a.ha.acked_end() == a.log.confirm_offset() == 0
    await a.log.flush()
    await turns(20)
    assert a.ha.acked_end() == 0, "the slave has it in memory only"
    await b.log.flush()
    await until(lambda: a.ha.acked_end() == end)


@played_by(1, 2, settings=D)
async def test_a_slaves_disk_alone_is_not_enough_either(a: Node, b: Node) -> None:
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
async def test_who_does_not_wait_for_its_disk_is_not_proposed_and_that_is_said(
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
async def test_a_member_that_comes_back_without_it_leaves_the_set_and_stops_acks_until_then(a: Node) -> None:
    _reader, writer = None, None
    await a.lead(1)
    _reader, writer = await greeted(a.port, Handshake(2, acks_flushed=True), 0)
    await until(lambda: a.ha.applied_members() == {1, 2})
    a.controller_up = False
    _reader2, again = await greeted(a.port, Handshake(2), 0)
    await until(lambda: a.wanted[-1][0] == {1})
    fill(a, "one", 10)
    await a.log.flush()
    await turns(50)
    assert a.ha.acked_end() == 0, "the controllers may elect it yet"
    a.controller_up = True
    await until(lambda: a.ha.applied_members() == {1})
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    writer.close()
    again.close()
