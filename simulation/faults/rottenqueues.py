"""Damage to consume queue files on a dead broker's disk: files are emptied, cut short, deleted, zeroed or overwritten, or
whole folders are lost.

Invariant Q3: after that broker has started, its queues list the records of its log at the same queue offsets. The expected
entries are computed from the bytes of the log on that disk."""

from __future__ import annotations

import random
from collections.abc import Iterable

from messagestore.record import END_OF_SEGMENT, check, decode
from messagestore.store.brokerstore import BrokerStore
from simulation.checkers.damagedstores import LOG
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

QUEUES = "consumequeue/"
ENTRY_BYTES = 20
FILLER_SIZE = 0x7FFFFFFF
NOT_IN_QUEUES = (4, 12)
"""Transaction states of a sysFlag: prepared, rolled back."""
STATE_MASK = 12
GAP_MAX = 300_000

Listed = dict[tuple[str, int], dict[int, int]]
"""(topic, queue id) -> queue offset -> where the record starts."""


class CorruptQueueFiles(Fault):
    """An independent fault with its own random generator."""

    name = "rotten queue files"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/rotten queues")
        self.active = True
        self.looked_at: dict[str, int] = {}
        """Node name -> the last process whose end was a chance for this fault."""
        self.struck = machines.damaged.queues

    def next_step(self) -> None:
        for node in self.machines.brokers:
            if node.name in self.struck:
                self.judge(node)
            elif self.active and not node.running and self.looked_at.get(node.name) != node.incarnation:
                self.looked_at[node.name] = node.incarnation
                self.strike_at(node)

    def strike_at(self, node: Node) -> None:
        damaged = self.machines.damaged
        alone = node.name not in (*damaged.where, *damaged.flipped, *self.machines.losing)
        paths = sorted(path for path in node.disk.entries if path.startswith(QUEUES))
        if not alone or not paths or self.random.random() < 0.3:
            return
        how = self.random.choice(
            (self.empty, self.cut, self.delete, self.delete_folder, self.zero_tail, self.overwrite)
        )
        path = self.random.choice(paths)
        how(node, path)
        self.struck[node.name] = f"{how.__name__} {path}"
        self.count()

    def empty(self, node: Node, path: str) -> None:
        node.disk.put(path, b"")

    def cut(self, node: Node, path: str) -> None:
        content = node.disk.content(path) or b""
        node.disk.put(path, content[: self.random.randrange(len(content) or 1)])

    def delete(self, node: Node, path: str) -> None:
        node.disk.drop(path)

    def delete_folder(self, node: Node, path: str) -> None:
        """Delete the folder of the queue or of the topic."""
        folder = path.rsplit("/", self.random.choice((1, 2)))[0]
        node.disk.drop(f"{folder}/")

    def zero_tail(self, node: Node, path: str) -> None:
        content = node.disk.content(path) or b""
        written = len(content.rstrip(b"\0"))
        node.disk.put(path, content[: self.random.randrange(written + 1)].ljust(len(content), b"\0"))

    def overwrite(self, node: Node, path: str) -> None:
        content = bytearray(node.disk.content(path) or b"")
        written = len(content.rstrip(b"\0"))
        if written > ENTRY_BYTES:
            start = self.random.randrange(written - ENTRY_BYTES)
            content[start : start + ENTRY_BYTES] = self.random.randbytes(ENTRY_BYTES)
            node.disk.put(path, bytes(content))

    def judge(self, node: Node) -> None:
        look = broker_on(node)
        if look is None:
            return
        what = self.struck.pop(node.name)
        store = look.store
        if not store.has_segments() or not store.takes_messages():
            return  # with a full disk, dispatch may stop between a record's queue entry and its index entry
        expected = listed_by_the_log(
            node, store.min_offset(), store.dispatched_offset(), store.segment_size_bytes
        )
        if expected is None:
            return
        found = {
            (topic, queue_id): entries
            for topic, queue_id in store.queues()
            if (entries := dict(shown(store, topic, queue_id)))
        }
        if found != expected:
            keys = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
            key = min(keys)
            listed, held = ends(found.get(key, {})), ends(expected.get(key, {}))
            raise Violation(
                "Q3", f"{node.name} ({what}): queue {key} lists {listed}, expected {held} as in the log"
            )
        self.machines.done["queues listed what the log held"] += 1

    def heal(self) -> None:
        self.active = False


def shown(store: BrokerStore, topic: str, queue_id: int) -> Iterable[tuple[int, int]]:
    """The entries of the queue, including those of a deleted topic, which readers do not get."""
    queue = store._queues.find(topic, queue_id)
    assert queue is not None
    begin, end = queue.min_queue_offset, queue.max_queue_offset
    for queue_offset, (phy, size, _) in enumerate(queue.entries(begin, end - begin), begin):
        if size != FILLER_SIZE:
            yield queue_offset, phy


def ends(entries: dict[int, int]) -> str:
    return f"{len(entries)} in [{min(entries)}, {max(entries)}]" if entries else "none"


def listed_by_the_log(node: Node, start: int, end: int, segment_bytes: int) -> Listed | None:
    """The expected entries of the records between two record boundaries; None if a record is damaged."""
    expected: Listed = {}
    following: dict[tuple[str, int], int] = {}
    position = start
    while position < end:
        segment = position // segment_bytes * segment_bytes
        content = node.disk.content(f"{LOG}{segment:020d}")
        if content is None:
            return None
        size = check(content, position - segment, segment_bytes - (position - segment), position)
        if size == END_OF_SEGMENT:
            position = segment + segment_bytes
            continue
        if size <= 0:
            return None
        record = decode(content[position - segment : position - segment + size])
        key, offset = (record.topic, record.queue_id), record.queue_offset
        if record.sys_flag & STATE_MASK not in NOT_IN_QUEUES and offset >= following.get(key, 0):
            known = following.get(key)
            place = known if known is not None and offset - known > GAP_MAX else offset
            expected.setdefault(key, {})[place] = position
            following[key] = place + 1
        position += size
    return expected
