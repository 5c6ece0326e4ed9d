"""Java's epoch files that are behind. A master did not record its epoch because its log had not grown since
the last one; its response replaces the record. A slave of 5.4.0 to 5.5.1 keeps a truncated epoch and
truncates there again at each connection.

Upstream: `EpochFileCache.appendEntry` takes no entry that starts where the last one does."""

from __future__ import annotations

import asyncio

import pytest

from epochfile.history import EpochHistory
from ha.errors import MasterUnread
from ha.frames import Handshake, encode_ack
from ha.master.connection import MasterConnection
from ha.slave.link import MasterProof
from tests.unit.ha.hascene import Node, fill, greeted, in_step, played_by, turns, until
from tests.unit.ha.memorylog import MemoryLog
from tests.unit.ha.slavedriver import SlaveDriver, acks, data, frame, greeting


def slave(end: int, *epochs: tuple[int, int], confirm: int = 0, proof: MasterProof | None) -> SlaveDriver:
    """A slave that has accepted epoch 3."""
    log = MemoryLog(10_000, data(0, end))
    log.set_confirm_offset(confirm)
    return SlaveDriver(log, EpochHistory(epochs), epoch=3, proof=proof)


def test_a_slave_follows_a_master_proven_to_lead_the_accepted_epoch() -> None:
    s = slave(500, (1, 0), (2, 500), confirm=500, proof=MasterProof(3, 500))
    s.feed(greeting(700, (1, 0), (2, 500)) + frame(500, data(500, 700), 2, 500))
    assert s.closed is None and s.log.truncated == []
    assert acks(s) == [500, 700] and s.stored.entries == ((1, 0), (2, 500))


def test_an_empty_slave_follows_a_proven_master() -> None:
    s = SlaveDriver(MemoryLog(10_000), EpochHistory(), epoch=3, proof=MasterProof(3, 0))
    s.feed(greeting(200, (1, 0)) + frame(0, data(0, 200), 1, 0))
    assert s.closed is None and acks(s) == [0, 200] and s.stored.entries == ((1, 0),)


def test_a_master_without_proof_of_the_accepted_epoch_is_refused_c8() -> None:
    for proof in (None, MasterProof(2, 500)):
        s = slave(500, (1, 0), proof=proof).feed(greeting(700, (1, 0), (2, 500)))
        assert s.closed is not None and "an old master: it knows epoch 2, this broker 3" in s.closed
        assert s.is_old_master and s.log.truncated == [] and acks(s) == []


def test_a_tail_of_an_earlier_epoch_is_truncated_unless_the_master_has_it() -> None:
    """Two masters may have written after the last entry: that of epoch 2 and this one of epoch 3."""
    s = slave(800, (1, 0), (2, 500), proof=MasterProof(3, 0)).feed(greeting(900, (1, 0), (2, 500)))
    assert s.log.truncated == [(800, 500)] and acks(s) == [500]
    s = slave(800, (1, 0), (2, 500), confirm=800, proof=MasterProof(3, 800))
    s.feed(greeting(900, (1, 0), (2, 500)))
    assert s.log.truncated == [] and acks(s) == [800]


def test_confirmed_records_that_the_master_does_not_have_are_never_truncated() -> None:
    s = slave(800, (1, 0), (2, 500), confirm=600, proof=MasterProof(3, 0))
    s.feed(greeting(900, (1, 0), (2, 500)))
    assert s.stays_out is not None and s.log.truncated == [] and s.closed is not None


def test_a_proven_master_with_other_epochs_causes_no_truncation() -> None:
    """Java 5.4.0 to 5.5.1 keep the entry of a truncated epoch and record no next one at that offset."""
    s = slave(900, (1, 0), (2, 500), confirm=900, proof=MasterProof(3, 900))
    s.feed(greeting(900, (1, 0), (3, 900)))
    assert s.closed is None and s.log.truncated == [] and acks(s) == [900]
    assert s.stored.entries == ((1, 0), (3, 900))
    s = slave(900, (1, 0), (2, 500), confirm=900, proof=None).feed(greeting(900, (1, 0), (3, 900)))
    assert s.stays_out is not None


class JavaMaster:
    """The responses of the master `of`."""

    def __init__(self, of: Node, leads: int | None) -> None:
        self.of = of
        self.says: int | None = leads
        self.answers = True
        self.asked = 0
        self.names_asked = 0
        self.named: list[bool] = []
        """The results of `names`, in order; the last one repeats."""

    def names(self, epoch: int) -> bool:
        self.names_asked += 1
        return True if not self.named else self.named.pop(0) if len(self.named) > 1 else self.named[0]

    async def leads(self) -> int | None:
        self.asked += 1
        if not self.answers:
            raise MasterUnread("no answer")
        return self.says

    async def record_at(self, offset: int) -> bytes | None:
        content = self.of.log.content()
        if offset >= len(content):
            return None
        return content[offset : offset + int.from_bytes(content[offset : offset + 4], "big")]


async def elected_again_without_a_message(master: Node, slave: Node, witness: JavaMaster) -> None:
    """Elect the master again in epoch 2; its file ends with epoch 1, and the slave reconnects."""
    slave.ha.asks_in_doubt(witness)
    await in_step(master, slave)
    fill(master, "one", 10)
    await until(lambda: slave.log.max_offset() == master.log.max_offset())
    await slave.ha.become_slave(2, slave.broker_id, 9)
    await slave.follow(master, 2)


@played_by(1, 2)
async def test_a_slave_asks_a_seemingly_old_master_for_its_epoch_and_follows_it(a: Node, b: Node) -> None:
    await elected_again_without_a_message(a, b, JavaMaster(a, leads=2))
    fill(a, "two", 10)
    await until(lambda: b.log.content() == a.log.content())
    assert b.log.truncated == [] and b.ha.history == a.ha.history


@played_by(1, 2)
async def test_a_slave_asks_until_the_master_knows_its_epoch(a: Node, b: Node) -> None:
    witness = JavaMaster(a, leads=1)
    await elected_again_without_a_message(a, b, witness)
    held = b.log.content()
    fill(a, "two", 10)
    await until(lambda: witness.asked >= 3)
    witness.answers = False
    await until(lambda: witness.asked >= 6)
    assert b.log.content() == held
    witness.answers, witness.says = True, 2
    await until(lambda: b.log.content() == a.log.content())


@pytest.mark.parametrize("named", [[False], [True, False, False]], ids=["before", "meanwhile"])
@played_by(1, 2)
async def test_a_response_of_another_master_is_ignored(a: Node, b: Node, named: list[bool]) -> None:
    witness = JavaMaster(a, leads=2)
    witness.named = list(named)
    await elected_again_without_a_message(a, b, witness)
    held = b.log.content()
    fill(a, "two", 10)
    await until(lambda: witness.names_asked >= 5)
    assert b.log.content() == held and witness.asked == named.count(True)
    witness.named = [True]
    await until(lambda: b.log.content() == a.log.content())


@played_by(1, 2)
async def test_a_master_that_records_every_epoch_is_judged_by_its_file(a: Node, b: Node) -> None:
    witness = JavaMaster(a, leads=None)
    await elected_again_without_a_message(a, b, witness)
    held = b.log.content()
    fill(a, "two", 10)
    await until(lambda: witness.asked >= 3)
    assert b.log.content() == held and not b.ha.copies


async def java_link(master: Node, begins: int) -> asyncio.StreamWriter:
    """Connect as slave 2 with a log that ends at `begins`, and wait for its ack."""
    _, writer = await greeted(master.port, Handshake(2), begins)
    await until(lambda: [each.link.ack_offset for each in link_of(master)] == [begins])
    return writer


async def acknowledged(master: Node, writer: asyncio.StreamWriter) -> None:
    """Acknowledge the whole log once it was sent."""
    end = master.log.max_offset()
    await until(lambda: [each.link.next_offset for each in link_of(master)] == [end])
    writer.write(encode_ack(end))
    await until(lambda: [each.link.ack_offset for each in link_of(master)] == [end])


def link_of(master: Node) -> list[MasterConnection]:
    assert master.ha.mastership is not None
    return [each for each in master.ha.mastership.connections if each.slave_broker_id == 2]


async def gone(master: Node, writer: asyncio.StreamWriter) -> None:
    writer.close()
    await until(lambda: not link_of(master))


def members(master: Node) -> frozenset[int]:
    assert master.ha.mastership is not None
    return master.ha.mastership.sync_state_set.applied_members


async def cut_twice(master: Node, back_at: int) -> asyncio.StreamWriter:
    """A slave truncated to the start of epoch 2 acknowledged all; it reconnects `back_at` bytes after that
    start."""
    await master.lead(1)
    fill(master, "one", 10)
    await master.lead(2)
    start = master.log.max_offset()
    fill(master, "two", 10)
    writer = await java_link(master, start)
    await acknowledged(master, writer)
    await until(lambda: members(master) == {1, 2})
    await gone(master, writer)
    return await java_link(master, start + back_at)


@played_by(1)
async def test_a_java_slave_that_truncates_again_is_excluded_until_the_next_epoch(a: Node) -> None:
    a.ha.knows_java_by(lambda broker_id, host: (broker_id, host) == (2, "127.0.0.1"))
    writer = await cut_twice(a, back_at=0)
    await until(lambda: members(a) == {1})
    await acknowledged(a, writer)
    await turns(200)
    assert members(a) == {1}, "it has the whole log and would truncate it again"
    await gone(a, writer)
    writer = await java_link(a, a.log.max_offset())
    await turns(200)
    assert members(a) == {1}, "a complete log at the next connection does not change that"
    await a.lead(3)
    fill(a, "three", 1)
    await acknowledged(a, writer)
    await until(lambda: members(a) == {1, 2})
    writer.close()


RECORD = 500


@pytest.mark.parametrize(("java", "back_at"), [(False, 0), (True, RECORD)])
@played_by(1)
async def test_only_a_java_slave_back_at_an_epoch_start_is_excluded(
    a: Node, java: bool, back_at: int
) -> None:
    a.ha.knows_java_by(lambda broker_id, host: java)
    writer = await cut_twice(a, back_at=back_at)
    await acknowledged(a, writer)
    fill(a, "more", 1)
    await acknowledged(a, writer)
    await until(lambda: a.ha.acked_end() == a.log.max_offset())
    assert members(a) == {1, 2}
    writer.close()
