"""Bits flip in old segments while a broker is down. The operator then transfers mastership to another broker.

Invariant: one record is damaged at a time, in a segment that a start does not read, while two intact copies of the record
exist. No other store is lost until the record is repaired, so one intact copy is always left."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.role.membership import ReplicaRole
from messagestore.checkpoint import FILE, CheckpointDamaged, decode_checkpoint
from messagestore.record import store_timestamp
from messagestore.recordcrc import HEAD, RECORD_CRC_BYTES
from messagestore.walker import SegmentWalk
from simulation.checkers.damagedstores import LOG, BitFlip, body_of
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import ClientApp
from simulation.faults.fault import Fault
from simulation.kernel.node import Node

HEAD_BYTES = 12
"""Size, magic and CRC of a record."""
READ_AGAIN_MS = 500
OPERATOR_MS = 6_000
HELD_DOWN_MS = 20_000


@dataclass
class Fenced:
    """A master with a damaged record: since when it has been master, and until when it is kept down afterwards."""

    node: Node
    since_ms: int
    down_until_ms: int = 0


class CorruptSegment(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "rotten segment"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/rot")
        self.active = on
        self.looked_at: dict[str, int] = {}
        """Node name -> the last process whose end was a chance for this fault."""
        self.fenced: Fenced | None = None
        self.read_again_ms = 0

    def next_step(self) -> None:
        flipped = self.machines.damaged.flipped
        for node in self.machines.brokers:
            if node.name in flipped and flipped[node.name].is_over(node):
                del flipped[node.name]
                if node.running:
                    self.machines.done["rotten record repaired"] += 1
            elif self.active and not flipped and not node.running:
                self.take_the_chance(node)
        self.operate()

    def take_the_chance(self, node: Node) -> None:
        if self.looked_at.get(node.name) == node.incarnation or node.name in self.machines.losing:
            return
        self.looked_at[node.name] = node.incarnation
        damaged = self.machines.damaged
        if self.machines.losing or damaged.where or self.random.random() < 0.3:
            return
        places = [place for place in old_bytes(node, self.random) if self.has_copies(node, place)]
        if places:
            bit_flip = self.random.choice(places)
            damaged.flipped[node.name] = bit_flip.flip(node)
            self.count()

    def has_copies(self, node: Node, bit_flip: BitFlip) -> bool:
        contents = [other.disk.content(bit_flip.path) or b"" for other in self.machines.brokers]
        return len({content[bit_flip.record_at : bit_flip.record_end] for content in contents}) == 1

    def operate(self) -> None:
        """Let readers read the damaged record again. Then the broker must give up mastership."""
        now_ms, master = self.world.now_ms, self.machines.master()
        look = broker_on(master) if master is not None else None
        if self.fenced is not None and self.fenced.down_until_ms:
            if (look is not None and look.role is ReplicaRole.MASTER) or now_ms > self.fenced.down_until_ms:
                self.fenced = None
            return
        if look is None or master is None or not look.store.integrity.damages:
            self.fenced = None
        elif self.fenced is None or self.fenced.node is not master:
            self.fenced = Fenced(master, now_ms)
        elif now_ms - self.fenced.since_ms > OPERATOR_MS and len(self.machines.check.members) > 1:
            self.fenced.down_until_ms = now_ms + HELD_DOWN_MS
            self.machines.kill(master)
        elif now_ms > self.read_again_ms:
            self.read_again_ms = now_ms + READ_AGAIN_MS
            client = self.machines.client.app
            if isinstance(client, ClientApp):
                client.read_again()

    def holds_back(self, node: Node) -> bool:
        return self.fenced is not None and self.fenced.node is node and bool(self.fenced.down_until_ms)

    def heal(self) -> None:
        self.active = False


def old_bytes(node: Node, chance: random.Random) -> list[BitFlip]:
    """One byte of each record below the segment from which a start reads."""
    segments = {
        int(path.removeprefix(LOG)): content
        for path in node.disk.entries
        if path.startswith(LOG) and (content := node.disk.content(path))
    }
    try:
        checkpoint = decode_checkpoint(node.disk.content(FILE))
    except CheckpointDamaged:
        return []
    read_from = [
        start
        for start, content in segments.items()
        if start <= checkpoint.confirm_phy_offset
        and 0 < store_timestamp(content, 0) <= checkpoint.min_timestamp
    ]
    found = []
    for start, content in sorted(segments.items()):
        if start >= max(read_from, default=0):
            break
        for offset, size in SegmentWalk(content, start, start, start + len(content)):
            record = content[offset - start : offset - start + size]
            within = chance.choice((chance.choice(body_of(record)), chance.randrange(HEAD_BYTES)))
            if record[-RECORD_CRC_BYTES:].startswith(HEAD):  # the CRC covers every bit
                within = chance.randrange(size - RECORD_CRC_BYTES)
            at = offset - start
            found.append(
                BitFlip(
                    f"{LOG}{start:020d}", at, at + size, at + within, chance.randrange(8), offset + within
                )
            )
    return found
