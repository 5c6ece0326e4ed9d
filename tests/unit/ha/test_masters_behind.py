"""Java's epoch files that are behind. A master did not record its epoch, for its log had not grown since the last one: what it
says makes up for it. A slave of 5.4.0 to 5.5.1 keeps the epoch that was cut, and cuts itself there again at each connection.

Upstream: `EpochFileCache.appendEntry` takes no entry that starts where the last one does."""

from __future__ import annotations

import asyncio

import pytest

from epochfile.history import EpochHistory
from ha.errors import MasterUnread
from ha.frames import Handshake, HandshakeReply, TransferHeader, decode_ack, encode_ack
from ha.master.connection import MasterConnection
from ha.slave.link import MasterProof
from tests.unit.ha.hascene import Node, fill, greeted, in_step, played_by, turns, until
from tests.unit.ha.memorylog import MemoryLog, record
from tests.unit.ha.slavedriver import SlaveDriver

SIZE = 100


def data(begin: int, end: int, letter: str = "a") -> bytes:
    return b"".join(record(f"{letter}{at}", SIZE) for at in range(begin, end, SIZE))


def slave(end: int, *epochs: tuple[int, int], confirm: int = 0, proof: MasterProof | None) -> SlaveDriver:
    """Has accepted epoch 3."""
    log = MemoryLog(10_000, data(0, end))
    log.set_confirm_offset(confirm)
    return SlaveDriver(log, EpochHistory(epochs), epoch=3, proof=proof)


def greeting(max_offset: int, *epochs: tuple[int, int]) -> bytes:
    return HandshakeReply(max_offset, EpochHistory(epochs)).encode()


def frame(offset: int, body: bytes, epoch: int, start: int) -> bytes:
    return TransferHeader(len(body), offset, epoch, start, 0).encode() + body


def acks(driver: SlaveDriver) -> list[int]:
    return [decode_ack(sent) for sent in driver.sent[1:]]


def test_a_master_that_leads_the_accepted_epoch_is_followed_and_its_list_taken() -> None:
    s = slave(500, (1, 0), (2, 500), confirm=500, proof=MasterProof(3, 500))
    s.feed(greeting(700, (1, 0), (2, 500)) + frame(500, data(500, 700), 2, 500))
    assert s.closed is None and s.log.truncated == []
    assert acks(s) == [500, 700] and s.stored.entries == ((1, 0), (2, 500))


def test_an_empty_log_follows_it_too() -> None:
    s = SlaveDriver(MemoryLog(10_000), EpochHistory(), epoch=3, proof=MasterProof(3, 0))
    s.feed(greeting(200, (1, 0)) + frame(0, data(0, 200), 1, 0))
    assert s.closed is None and acks(s) == [0, 200] and s.stored.entries == ((1, 0),)


def test_any_older_master_is_refused_c8() -> None:
    for proof in (None, MasterProof(2, 500)):
        s = slave(500, (1, 0), proof=proof).feed(greeting(700, (1, 0), (2, 500)))
        assert s.closed is not None and "an old master: it knows epoch 2, this broker 3" in s.closed
        assert s.is_old_master and s.log.truncated == [] and acks(s) == []


def test_what_may_be_of_the_epoch_before_is_cut_unless_the_record_is_the_master_s() -> None:
    """Two masters may have written behind the last entry: that of epoch 2, and this one of epoch 3."""
    s = slave(800, (1, 0), (2, 500), proof=MasterProof(3, 0)).feed(greeting(900, (1, 0), (2, 500)))
    assert s.log.truncated == [(800, 500)] and acks(s) == [500]
    s = slave(800, (1, 0), (2, 500), confirm=800, proof=MasterProof(3, 800))
    s.feed(greeting(900, (1, 0), (2, 500)))
    assert s.log.truncated == [] and acks(s) == [800]


def test_what_is_confirmed_and_not_the_master_s_is_never_cut() -> None:
    s = slave(800, (1, 0), (2, 500), confirm=600, proof=MasterProof(3, 0))
    s.feed(greeting(900, (1, 0), (2, 500)))
    assert s.stays_out is not None and s.log.truncated == [] and s.closed is not None


def test_epochs_that_disagree_over_one_log_cost_nothing_of_it() -> None:
    """Java's 5.4.0 to 5.5.1 keep the entry of an epoch that was cut, and record no next one there."""
    s = slave(900, (1, 0), (2, 500), confirm=900, proof=MasterProof(3, 900))
    s.feed(greeting(900, (1, 0), (3, 900)))
    assert s.closed is None and s.log.truncated == [] and acks(s) == [900]
    assert s.stored.entries == ((1, 0), (3, 900))
    s = slave(900, (1, 0), (2, 500), confirm=900, proof=None).feed(greeting(900, (1, 0), (3, 900)))
    assert s.stays_out is not None


class JavaMaster:
    """What the node `of`, a master, says when it is asked."""

    def __init__(self, of: Node, leads: int | None) -> None:
        self.of = of
        self.says: int | None = leads
        self.answers = True
        self.asked = 0
        self.names_asked = 0
        self.named: list[bool] = []
        """What `names` says before and after the first questions; the last is said from then on."""

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
    """In epoch 2; the master's file ends with epoch 1, and the slave connects again."""
    slave.ha.asks_in_doubt(witness)
    await in_step(master, slave)
    fill(master, "one", 10)
    await until(lambda: slave.log.max_offset() == master.log.max_offset())
    await slave.ha.become_slave(2, slave.broker_id, 9)
    await slave.follow(master, 2)


@played_by(1, 2)
async def test_a_slave_asks_a_master_that_seems_old_and_follows_it(a: Node, b: Node) -> None:
    await elected_again_without_a_message(a, b, JavaMaster(a, leads=2))
    fill(a, "two", 10)
    await until(lambda: b.log.content() == a.log.content())
    assert b.log.truncated == [] and b.ha.history == a.ha.history


@played_by(1, 2)
async def test_it_asks_until_the_master_has_heard_of_its_epoch(a: Node, b: Node) -> None:
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
async def test_what_another_master_said_counts_for_nothing(a: Node, b: Node, named: list[bool]) -> None:
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
async def test_of_a_master_that_records_each_epoch_nothing_else_counts(a: Node, b: Node) -> None:
    witness = JavaMaster(a, leads=None)
    await elected_again_without_a_message(a, b, witness)
    held = b.log.content()
    fill(a, "two", 10)
    await until(lambda: witness.asked >= 3)
    assert b.log.content() == held and not b.ha.copies


async def java_link(master: Node, begins: int) -> asyncio.StreamWriter:
    """A slave, broker 2, connects with a log that ends at `begins`; the master has heard it."""
    _, writer = await greeted(master.port, Handshake(2), begins)
    await until(lambda: [each.link.ack_offset for each in link_of(master)] == [begins])
    return writer


async def acknowledged(master: Node, writer: asyncio.StreamWriter) -> None:
    """All of the log, once it was sent."""
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
    """A slave that was cut to where epoch 2 began, and acknowledged all, comes back `back_at` bytes behind it."""
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
async def test_a_java_slave_that_cuts_itself_again_is_out_until_the_next_epoch(a: Node) -> None:
    a.ha.knows_java_by(lambda broker_id, host: (broker_id, host) == (2, "127.0.0.1"))
    writer = await cut_twice(a, back_at=0)
    await until(lambda: members(a) == {1})
    await acknowledged(a, writer)
    await turns(200)
    assert members(a) == {1}, "it has all of the log, and would lose it again"
    await gone(a, writer)
    writer = await java_link(a, a.log.max_offset())
    await turns(200)
    assert members(a) == {1}, "a whole log at the next connection makes no difference"
    await a.lead(3)
    fill(a, "three", 1)
    await acknowledged(a, writer)
    await until(lambda: members(a) == {1, 2})
    writer.close()


RECORD = 500


@pytest.mark.parametrize(("java", "back_at"), [(False, 0), (True, RECORD)])
@played_by(1)
async def test_only_a_java_slave_that_is_back_where_an_epoch_began_is_kept_out(
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
