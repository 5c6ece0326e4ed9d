"""Any masters, any divergence, any cut of the stream: two logs that agree on an epoch's start agree on its
bytes.

The invariant is L1 of log matching: same entry (epoch, start) means identical bytes from there to the lower
of the two ends of that epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from epochfile.history import EpochHistory
from ha.frames import Handshake, encode_ack
from ha.master.link import Batch, HandshakeDone
from tests.unit.ha.masterlinks import link_of
from tests.unit.ha.memorylog import MemoryLog, record
from tests.unit.ha.slavedriver import SlaveDriver

STEP = st.one_of(
    st.tuples(st.just("elect"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 6)),
    st.tuples(
        st.just("follow"),
        st.sampled_from([(a, b) for a in range(3) for b in range(3) if a != b]),
        st.integers(1, 900),
    ),
)


@dataclass
class Node:
    """A broker; also the MasterView of the slaves that follow it."""

    broker_id: int
    log: MemoryLog = field(default_factory=lambda: MemoryLog(segment_size_bytes=256))
    history: EpochHistory = field(default_factory=EpochHistory)
    leads: int = -1

    @property
    def segment_size_bytes(self) -> int:
        return self.log.segment_size_bytes

    @property
    def log_min(self) -> int:
        return self.log.min_offset()

    @property
    def log_end(self) -> int:
        return self.log.max_offset()

    @property
    def confirm_offset(self) -> int:
        return 0

    def elect(self, epoch: int) -> None:
        whole = self.log.boundary_at_or_below(self.log_end)
        if whole < self.log_end:
            self.log._end = whole
        kept = EpochHistory(entry for entry in self.history if entry.start_offset <= whole)
        self.history = kept.append((epoch, whole))
        self.leads = epoch


def follow(slave: Node, master: Node, stream_limit: int) -> bool:
    """One connection that breaks after `stream_limit` bytes from the master; True if all were received."""
    whole = slave.log.boundary_at_or_below(slave.log_end)
    if whole < slave.log_end:
        slave.log._end = whole
    driver = SlaveDriver(slave.log, slave.history, Handshake(slave.broker_id))
    link = link_of(master, 100)
    [greeted] = link.receive(driver.sent[0], 0)
    assert isinstance(greeted, HandshakeDone)
    driver.feed(greeted.reply)
    if driver.closed is None:
        link.receive(encode_ack(driver.link.log_end), 0)
        while stream_limit > 0 and isinstance(batch := next(iter(link.writable(0)), None), Batch):
            data = batch.header + bytes(master.log.read(batch.offset, batch.size))
            driver.feed(data[:stream_limit])
            stream_limit -= len(data)
    slave.history = driver.stored
    slave.leads = -1
    return driver.closed is None and stream_limit > 0


def check(nodes: list[Node]) -> None:
    for a, b in combinations(nodes, 2):
        for epoch, start in set(a.history) & set(b.history):
            end = min(a.history.epoch_end(epoch, a.log_end), b.history.epoch_end(epoch, b.log_end))
            assert a.log.content()[start:end] == b.log.content()[start:end], (epoch, start, end)
    for node in nodes:
        last = node.history.last()
        assert last is None or last.start_offset <= node.log_end or node.leads == -1


@settings(max_examples=300)
@given(st.lists(STEP, max_size=40))
def test_logs_that_share_an_epoch_entry_share_its_bytes_l1(
    steps: list[tuple[str, int | tuple[int, int], int]],
) -> None:
    nodes = [Node(1), Node(2), Node(3)]
    nodes[0].elect(1)
    epoch, written = 1, 0
    for kind, target, value in steps:
        if kind == "elect" and isinstance(target, int):
            epoch += 1
            nodes[target].elect(epoch)
        elif kind == "append" and isinstance(target, int):
            if nodes[target].leads != -1:
                written += 1
                nodes[target].log.append(*(record(f"{written}.{n}", 20 + written % 50) for n in range(value)))
        elif isinstance(target, tuple) and nodes[target[1]].leads != -1:
            slave, master = nodes[target[0]], nodes[target[1]]
            if follow(slave, master, value):
                assert slave.log.content() == master.log.content()
                assert slave.history == master.history
        check(nodes)
    epoch += 1
    nodes[2].elect(epoch)  # and in the end all of them agree
    for slave in nodes[:2]:
        assert follow(slave, nodes[2], 1 << 30)
        assert slave.log.content() == nodes[2].log.content()
        assert slave.history == nodes[2].history
    check(nodes)
