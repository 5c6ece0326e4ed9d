"""HAService copies logs, counts their replicas, and reports its status."""

from __future__ import annotations

import asyncio
import errno

import pytest

from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from ha.epochs import KeptEpochs
from ha.frames import Handshake
from ha.master.link import Action, Batch
from tests.support.doubles import MemoryFiles
from tests.unit.ha.hascene import Node, fill, greeted, in_step, played_by, turns, until


@played_by(1, 2, 3)
async def test_slaves_copy_the_log_join_the_set_and_get_the_confirm_offset(a: Node, b: Node, c: Node) -> None:
    await a.lead(1)
    fill(a, "first", 100)
    await b.follow(a, 1)
    await c.follow(a, 1)
    await until(lambda: a.ha.in_sync_count() == 3)
    fill(a, "second", 100)
    end = a.log.max_offset()
    await until(lambda: a.ha.confirm_offset() == end)
    assert a.ha.acked_end() == end
    assert b.log.content() == c.log.content() == a.log.content()
    await until(lambda: b.log.confirm_offset() == c.log.confirm_offset() == end)
    assert b.ha.history == c.ha.history == a.ha.history == EpochHistory([(1, 0)])
    assert b.confirms > 0


@played_by(1, 2, 3)
async def test_a_deposed_master_truncates_records_that_no_other_broker_has(a: Node, b: Node, c: Node) -> None:
    await in_step(a, b, c)
    fill(a, "shared", 60)
    shared = a.log.max_offset()
    await until(lambda: a.ha.confirm_offset() == shared)
    a.controller_up = False
    await b.lead(2)
    await c.follow(b, 2)
    fill(a, "only-here", 40)
    fill(b, "epoch-2", 50)
    assert a.ha.confirm_offset() == shared and a.ha.acked_end() == shared  # C7: no member, no ack
    await a.follow(b, 2)
    await until(lambda: b.ha.in_sync_count() == 3 and b.ha.confirm_offset() == b.log.max_offset())
    assert a.log.truncated == [(a.log.truncated[0][0], shared)]
    assert a.log.content() == b.log.content() == c.log.content()
    assert a.ha.history == b.ha.history == c.ha.history == EpochHistory([(1, 0), (2, shared)])
    # then back again, with an epoch without records in between
    a.controller_up = True
    await c.lead(3)
    await a.lead(4)
    fill(a, "epoch-4", 5)
    await b.follow(a, 4)
    await c.follow(a, 4)
    await until(lambda: a.ha.in_sync_count() == 3 and a.ha.confirm_offset() == a.log.max_offset())
    assert a.log.content() == b.log.content() == c.log.content()
    assert a.ha.history == b.ha.history == c.ha.history


@played_by(1, 2)
async def test_records_appended_while_an_epoch_becomes_durable_are_sent_in_it(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    begins = a.log.max_offset()
    await until(lambda: b.log.max_offset() == begins)
    a.files.gate = asyncio.Event()
    await b.follow(a, 2)  # as the controllers announce
    change = asyncio.create_task(a.ha.become_master(2, 1, frozenset({1, 2}), 20))
    await until(lambda: a.files.waiting > 0)
    fill(a, "two", 10)
    await turns(50)
    assert b.log.max_offset() == begins
    a.files.gate.set()
    await change
    await until(lambda: b.log.max_offset() == a.log.max_offset())
    assert b.ha.history.entries[-1] == (2, begins)


@played_by(1, 2)
async def test_a_slave_accepts_no_data_of_an_epoch_unknown_to_controllers(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "one", 10)
    begins = a.log.max_offset()
    await until(lambda: b.log.max_offset() == begins)
    await a.ha.become_master(2, 1, frozenset({1, 2}), 20)
    fill(a, "two", 10)
    await turns(50)
    assert b.log.max_offset() == begins and b.ha.history.last_epoch() == 1
    await b.follow(a, 2)
    await until(lambda: b.log.max_offset() == a.log.max_offset())
    assert b.ha.history.entries[-1] == (2, begins)


@played_by(1, 2)
async def test_a_dead_slave_leaves_the_set_and_an_async_learner_never_joins(a: Node, b: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    _reader, learner = await greeted(a.port, Handshake(7, is_async_learner=True), a.log.max_offset())
    await b.follow(a, 1)
    await until(lambda: a.ha.in_sync_count() == 2 and a.ha.confirm_offset() == a.log.max_offset())
    a.members_min, confirmed = 2, a.log.max_offset()
    await b.ha.stop()
    fill(a, "y", 10)
    await until(lambda: a.ha.in_sync_count() == 1)
    assert "shrink 2: disconnected" in a.wanted[-1][1]
    assert a.ha.confirm_offset() == confirmed and a.ha.acked_end() == 0  # F6
    assert all(7 not in members for members, _ in a.wanted)
    learner.close()


@played_by(1, 2)
async def test_a_slave_with_a_full_disk_reconnects_and_continues_later(a: Node, b: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    b.log.full = True
    await b.follow(a, 1)
    await until(lambda: b.ha.history.last_epoch() == 1)
    await turns(50)
    assert b.log.max_offset() == 0 and not b.fatal
    b.log.full = False
    await until(lambda: b.log.content() == a.log.content())


@played_by(1, 2)
async def test_the_status_has_upstreams_fields(a: Node, b: Node) -> None:
    await a.lead(1)
    await b.follow(a, 1)
    fill(a, "x", 10)
    await until(lambda: a.ha.in_sync_count() == 2 and a.ha.confirm_offset() == a.log.max_offset())
    status = a.ha.status()
    assert sorted(status) == [
        "haClientRuntimeInfo",
        "haConnectionInfo",
        "inSyncSlaveNums",
        "master",
        "masterCommitLogMaxOffset",
    ]
    assert (status["master"], status["inSyncSlaveNums"], status["masterCommitLogMaxOffset"]) == (
        True,
        1,
        5000,
    )
    [link] = status["haConnectionInfo"]
    assert (link["diff"], link["inSync"], link["slaveAckOffset"], link["transferFromWhere"]) == (
        0,
        True,
        5000,
        5000,
    )
    client = b.ha.status()["haClientRuntimeInfo"]
    assert (client["masterAddr"], client["maxOffset"]) == (a.address, 5000)
    assert client["lastReadTimestamp"] > 0 and client["lastWriteTimestamp"] > 0


@played_by(1, 2)
async def test_an_epoch_refused_by_a_full_disk_is_retried(a: Node, b: Node) -> None:
    await in_step(a, b)
    before, end = b.ha.history, b.log.max_offset()
    b.files.error = OSError(errno.ENOSPC, "full")
    await a.lead(2)
    fill(a, "epoch-2", 10)
    await b.follow(a, 2)
    await turns(200)
    assert (b.ha.history, b.log.max_offset(), b.fatal) == (before, end, [])
    b.files.error = None
    await until(lambda: b.log.content() == a.log.content())
    assert b.ha.history == a.ha.history


def test_a_half_failed_epoch_write_is_repaired() -> None:
    """Otherwise bytes received under the old history would belong to another epoch for the next process."""

    class SecondFails(MemoryFiles):
        async def replace(self, name: str, data: bytes | bytearray) -> None:
            if self.replaced == 5:  # after a binding, both copies of the file, and the next first copy
                self.replaced += 1
                raise OSError(errno.EIO, "failed")
            await super().replace(name, data)

    async def scenario() -> None:
        files = SecondFails()
        epochs = KeptEpochs(EpochFile(files))
        old = EpochHistory([(1, 0)])
        await epochs.store(old)
        with pytest.raises(OSError, match="failed"):
            await epochs.store(old.append((2, 100)))
        assert epochs.history == old
        assert (await EpochFile(files).load()).last_epoch() == 2
        await epochs.settle()
        assert await EpochFile(files).load() == old

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", range(8))
@played_by(1, 2)
async def test_a_slave_may_change_its_role_at_any_step_of_its_connection(
    master: Node, slave: Node, steps: int
) -> None:
    await master.lead(1)
    await slave.follow(master, 1)
    await turns(steps)
    await slave.lead(2)


@played_by(1, 2)
async def test_records_of_one_loop_turn_are_sent_in_one_frame(a: Node, b: Node) -> None:
    await in_step(a, b)
    assert a.ha.mastership is not None
    (connection,) = a.ha.mastership.connections
    sizes, writable, start = [], connection.link.writable, a.log.max_offset()

    def noted(now_ms: int) -> list[Action]:
        frames = writable(now_ms)
        sizes.extend(frame.size for frame in frames if isinstance(frame, Batch) and frame.size)
        return frames

    connection.link.writable = noted  # type: ignore[method-assign]
    fill(a, "of one client", 3)
    fill(a, "of another", 3)
    await until(lambda: b.log.max_offset() == a.log.max_offset())
    assert sizes == [a.log.max_offset() - start]


@played_by(1)
async def test_an_exception_in_sending_the_log_is_fatal(a: Node) -> None:
    await a.lead(1)
    assert a.ha.mastership is not None

    def fails() -> None:
        raise AssertionError("a bug")

    a.ha.mastership.log_grew = fails  # type: ignore[method-assign]
    fill(a, "first", 1)
    await until(lambda: len(a.fatal) == 1)
