"""Role changes: fenced by epochs, durable before they are announced."""

from __future__ import annotations

import asyncio

import pytest

from ha.errors import EpochFenced, EpochHistoryMissing
from ha.syncstateset import Alter, AlterRefused, Applied
from tests.unit.ha.hascene import Node, fill, in_step, played_by, turns, until
from tests.unit.ha.memorylog import record


@played_by(1, 2)
async def test_a_re_elected_master_sends_its_epoch_to_live_links_r19_m5(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    [link] = a.ha.status()["haConnectionInfo"]
    await a.ha.become_master(5, 1, frozenset({1, 2}), 20)
    await b.follow(a, 5)
    await until(lambda: b.ha.history.last_epoch() == 5)
    fill(a, "two", 10)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    assert a.ha.status()["haConnectionInfo"][0]["addr"] == link["addr"]
    assert a.ha.history == b.ha.history and len(a.ha.history) == 2


@played_by(1, 2)
async def test_an_impossible_response_to_an_alter_is_ignored_and_logged(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    mastership = a.ha.mastership
    assert mastership is not None
    known, asked = mastership.sync_state_set.set_epoch, list[Alter]()
    monkeypatch.setattr(a, "_decide", asked.append)
    await b.ha.stop()
    fill(a, "two", 10)
    await until(lambda: bool(asked))
    for outcome in (AlterRefused(frozenset({1}), known + 2), AlterRefused(frozenset({1, 77}), known + 1)):
        mastership.alter_ended(asked[-1], outcome)
        assert a.ha.applied_members() == {1, 2} and mastership.sync_state_set.set_epoch == known
        count = len(asked)
        await until(lambda count=count: len(asked) > count)  # type: ignore[misc]
    assert a.ha.acked_end() < a.log.max_offset(), "it is not acknowledged with one copy"
    [logged, *_] = [record for record in caplog.records if record.getMessage() == "set disbelieved"]
    assert "controllerAddr" in logged.fields["hint"]  # type: ignore[attr-defined]
    mastership.alter_ended(asked[-1], Applied(frozenset({1}), known + 1))
    assert a.ha.applied_members() == {1}


@played_by(1, 2)
async def test_a_slave_with_a_newer_epoch_counts_once_its_master_has_that_epoch(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    acked = a.ha.acked_end()
    await b.ha.become_slave(5, 2, 3)  # a third broker leads
    await b.follow(a, 7)
    fill(a, "two", 10)
    await turns(200)
    assert b.ha.status()["haClientRuntimeInfo"]["masterAddr"] == a.address
    assert a.ha.acked_end() == acked == b.log.max_offset()
    await a.ha.become_master(7, 1, frozenset({1, 2}), 20)
    await until(lambda: a.ha.acked_end() == a.log.max_offset() == b.log.max_offset())


@played_by(1, 2)
async def test_a_role_of_an_older_epoch_is_refused_m3(a: Node, b: Node) -> None:
    await a.lead(4)
    with pytest.raises(EpochFenced, match="epoch 3 is older than epoch 4"):
        await a.lead(3)
    with pytest.raises(EpochFenced):
        await a.follow(b, 3)
    await a.follow(b, 6)
    with pytest.raises(EpochFenced):
        await a.lead(5)
    assert a.ha.epoch == 6 and a.ha.history.last_epoch() == 4


@played_by(1)
async def test_the_same_epoch_again_keeps_its_entry_r13(a: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    await a.lead(1)
    await a.ha.stop()
    await a.start_again()
    await a.lead(1)
    assert a.ha.history.entries == ((1, 0),)


@played_by(1)
async def test_a_torn_tail_is_cut_before_a_broker_leads(a: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    await a.ha.stop()
    a.log.write_view(5000, 40)[:4] = (500).to_bytes(4, "big")
    a.log.advance(5040)
    await a.start_again()
    await a.lead(2)
    assert a.log.truncated == [(5040, 5000)]
    assert a.ha.history.entries == ((1, 0), (2, 5000))


@played_by(1, 2)
async def test_a_former_master_follows_a_successor_with_half_of_a_confirmed_record(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "x", 10)
    await until(lambda: b.log.max_offset() == a.log.max_offset() == a.log.confirm_offset())
    await b.ha.stop()
    whole = a.log.append(record("only here", 500)) - 500
    b.log.write_view(whole, 500)[:200] = a.log.read(whole, 200)
    b.log.advance(whole + 200)
    a.log.set_confirm_offset(whole + 200)
    await b.start_again()
    await b.lead(2)
    b.log.append(record("the successor's", 900))
    await a.follow(b, 2)
    await until(lambda: a.log.max_offset() == b.log.max_offset() and a.ha.history == b.ha.history)
    assert a.log.content() == b.log.content()


@played_by(1, 2)
async def test_a_log_without_an_epoch_history_cannot_lead_or_follow_r15_e5(a: Node, b: Node) -> None:
    fill(a, "x", 10)
    with pytest.raises(EpochHistoryMissing, match="remove the whole store"):
        await a.lead(1)
    with pytest.raises(EpochHistoryMissing):
        await a.follow(b, 1)
    assert a.ha.status()["master"] is False
    await a.ha.stop()
    with pytest.raises(EpochHistoryMissing):  # fails at the start, so that it is not elected
        await a.start_again()


@played_by(1, 2)
async def test_a_role_change_waits_for_a_pending_durable_step(a: Node, b: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    b.files.gate = asyncio.Event()
    await b.follow(a, 1)
    await until(lambda: b.files.waiting > 0)
    change = asyncio.create_task(b.lead(2))
    await turns(50)
    assert not change.done()
    b.files.gate.set()
    await change
    assert b.log.max_offset() == 0
    assert b.ha.history.entries == ((2, 0),)


@played_by(1, 2)
async def test_an_epoch_file_that_cannot_be_written_is_fatal_l6(a: Node, b: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    b.files.error = OSError(5, "Input/output error")
    await b.follow(a, 1)
    await until(lambda: len(b.fatal) == 1)
    assert b.log.max_offset() == 0
    with pytest.raises(OSError, match="Input/output error"):
        await b.lead(2)


@played_by(1, 2, 3)
async def test_the_address_of_a_master_that_is_not_the_accepted_one_is_ignored_r4(
    a: Node, b: Node, c: Node
) -> None:
    await a.lead(1)
    await b.lead(2)
    fill(b, "new", 3)
    await c.ha.become_slave(2, 3, 2)
    c.ha.set_master_ha_address(a.address, 1)
    assert "masterAddr" not in c.ha.status()["haClientRuntimeInfo"]
    c.ha.set_master_ha_address(b.address, 2)
    await until(lambda: c.log.content() == b.log.content())
    c.ha.set_master_ha_address(a.address, 2)  # named by mistake: its newest epoch is too old
    await until(lambda: c.ha.status()["haClientRuntimeInfo"]["masterAddr"] == a.address)
    await turns(200)
    assert c.log.content() == b.log.content() and c.log.truncated == []
