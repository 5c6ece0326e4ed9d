"""Stores that lose everything or one bit while their brokers are down.

Invariant: a store is lost only after its broker has left the SyncStateSet, because a broker that dies is electable as long as
its last heartbeat counts, and could be the last replica. A broker whose log is damaged below the confirm offset must refuse to
start. It then gets an empty disk, as from an operator. A broker with a damaged checkpoint, one bad copy of its epoch file, or
a bad binding must start and be correct, in the set or not."""

from __future__ import annotations

from epochfile.bindingfile import SUFFIX
from epochfile.file import BACKUP_SUFFIX, DEFAULT_NAME
from messagestore.checkpoint import FILE, FORMER_CHECK_AT
from messagestore.walker import SegmentWalk
from simulation.checkers.damagedstores import LOG, body_of, vouched_end
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node

HARMLESS = (FILE, DEFAULT_NAME, DEFAULT_NAME + BACKUP_SUFFIX, DEFAULT_NAME + SUFFIX)


class StoreDamage(Fault):
    """The base of all faults that kill a slave and damage its store while it is down."""

    def strike(self, now: Moment) -> bool:
        node = now.broker
        broker_id = self.machines.can_lose(node) if node is not now.acting_master else None
        if broker_id is not None:
            self.machines.kill(node)
            self.plan(node, broker_id)
        return False

    def plan(self, node: Node, broker_id: int) -> None:
        self.machines.losing[node.name] = broker_id, lambda: self.damage(node)

    def damage(self, node: Node) -> None:
        """Damage the store. Called when the broker is no longer in the SyncStateSet."""
        raise NotImplementedError


class WipedSlave(StoreDamage):
    name = "wiped slave"
    chance = 0.3

    def damage(self, node: Node) -> None:
        node.disk.wipe()
        self.count()


class FlippedBit(StoreDamage):
    """Flips one bit. A flip that every start must survive is made at once, without waiting until the broker has left the
    set."""

    name = "flipped bit"
    chance = 0.4

    def plan(self, node: Node, broker_id: int) -> None:
        if self.random.random() < 0.5:
            self.flip(node, self.random.choice(HARMLESS))
        else:
            super().plan(node, broker_id)

    def damage(self, node: Node) -> None:
        if bodies := self.vouched_bodies(node):
            self.flip(node, *self.random.choice(bodies))

    def flip(self, node: Node, path: str, offset: int | None = None) -> None:
        """Flip one bit at `offset` or, without an offset, anywhere in the written part."""
        content = node.disk.content(path)
        if content:
            written = FORMER_CHECK_AT if path == FILE else len(content)
            at = self.random.randrange(written) if offset is None else offset
            node.disk.flip_bit(path, at, self.random.randrange(8))
            self.machines.damaged.where[node.name] = path
            self.count()

    def vouched_bodies(self, node: Node) -> list[tuple[str, int]]:
        """(path, offset in the file) of one body byte of each record that a start of the broker must check. These are the
        records of the segment that holds the confirm offset."""
        confirm = vouched_end(node)
        for path in sorted(node.disk.entries):
            content = node.disk.content(path) or b""
            start = int(path.removeprefix(LOG)) if path.startswith(LOG) and content else -1
            if start <= confirm < start + len(content) and start >= 0:
                found = []
                for offset, size in SegmentWalk(content, start, start, confirm):
                    record = content[offset - start : offset - start + size]
                    found.append((path, offset - start + self.random.choice(body_of(record))))
                return found
        return []
