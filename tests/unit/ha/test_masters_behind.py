"""A Java master that did not record its epoch, for its log had not grown since the last one: what it says makes up for it.

Upstream: `EpochFileCache.appendEntry` takes no entry that starts where the last one does."""

from __future__ import annotations

from epochfile.history import EpochHistory
from ha.errors import MasterUnread
from ha.frames import HandshakeReply, TransferHeader, decode_ack
from ha.slave.link import MasterProof
from tests.unit.ha.hascene import Node, fill, in_step, played_by, turns, until
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


@played_by(1, 2)
async def test_of_a_master_that_records_each_epoch_nothing_else_counts(a: Node, b: Node) -> None:
    await elected_again_without_a_message(a, b, JavaMaster(a, leads=None))
    held = b.log.content()
    fill(a, "two", 10)
    await turns(500)
    assert b.log.content() == held and not b.ha.copies
