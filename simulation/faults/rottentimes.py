"""A bit flips in the store time of a segment's first record. Retention takes the age of the preceding segment from that time.

Invariant: one record is damaged at a time, on a running slave, in a segment that the slave no longer writes. The bit is flipped
back after a few rounds of retention, or when that slave dies or becomes master. Otherwise readers and other replicas could get
the damaged record unnoticed, because records without a CRC of their own do not show the damage."""

from __future__ import annotations

import random

from broker.role.membership import ReplicaRole
from messagestore.record import BORN_HOST_IPV6, SYS_FLAG, SYS_FLAG_AT, store_timestamp
from messagestore.walker import segment_name
from simulation.checkers.damagedstores import LOG, BitFlip
from simulation.cluster.looks import broker_on, started_broker
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node

INTERVAL_MS = 2_000
LASTS_MS = 900
"""The time of three rounds of retention."""
OLDER_BITS = range(21, 41)
"""Bits of a store time (ms). If one of them flips, the time is at least half an hour older."""
STORE_TIME_AT = (56, 68)
"""The position in a record, by whether the producer's host has an IPv6 address."""


class CorruptStoreTime(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "rotten store time"

    def __init__(self, machines: Machines, *, kept_ms: int) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/rotten store time")
        self.active = True
        self.kept_ms = kept_ms
        self.victim: Node | None = None
        self.due_ms = INTERVAL_MS
        machines.world.after_each_step(self.ends_with_the_role)

    def ends_with_the_role(self) -> None:
        """Flip the bit back as soon as the broker is no slave any more. This is called after each step of the world, because a
        slave that is elected may send its log to others before the next call of `next_step`."""
        if self.victim is not None and not self.follows(self.victim):
            self.mend(self.victim)

    def next_step(self) -> None:
        now_ms, node = self.world.now_ms, self.victim
        if node is not None and now_ms >= self.due_ms:
            self.mend(node)
        elif node is None and self.active and now_ms >= self.due_ms:
            self.due_ms = now_ms + INTERVAL_MS
            self.begin(self.random.choice(self.machines.brokers))

    def mend(self, node: Node) -> None:
        bit_flip = self.machines.damaged.flipped.get(node.name)
        if bit_flip is not None and not bit_flip.is_over(node):
            bit_flip.flip(node)
        self.machines.damaged.flipped.pop(node.name, None)
        self.victim, self.due_ms = None, self.world.now_ms + INTERVAL_MS

    def begin(self, node: Node) -> None:
        damaged = self.machines.damaged
        intact = not (damaged.flipped or damaged.where or self.machines.losing)
        bit_flip = self.place(node) if intact and self.follows(node) else None
        if bit_flip is not None:
            damaged.flipped[node.name] = bit_flip.flip(node)
            self.victim, self.due_ms = node, self.world.now_ms + LASTS_MS
            self.count()

    def follows(self, node: Node) -> bool:
        app = started_broker(node)
        return app is not None and app.membership.role is ReplicaRole.SLAVE

    def place(self, node: Node) -> BitFlip | None:
        """A bit in the store time of the newest segment that follows a whole confirmed segment. None if that segment does not
        exist, or if its first record is so old that retention may delete the preceding segment anyway."""
        look = broker_on(node)
        assert look is not None
        store = look.store
        size = store.segment_size_bytes
        start = (
            min(store.confirm_offset(), self.machines.check.whole(store.confirm_offset())) // size * size
            - size
        )
        path = LOG + segment_name(start)
        if start <= store.min_offset() or (content := node.disk.content(path)) is None:
            return None
        time_ms = store_timestamp(content, 0)
        if time_ms + self.kept_ms < self.world.now_ms:
            return None
        (sys_flag,) = SYS_FLAG.unpack_from(content, SYS_FLAG_AT)
        at = STORE_TIME_AT[bool(sys_flag & BORN_HOST_IPV6)]
        bit = self.random.choice([bit for bit in OLDER_BITS if time_ms >> bit & 1])
        within = at + 7 - bit // 8
        end = int.from_bytes(content[:4])
        assert content[at : at + 8] == time_ms.to_bytes(8)
        return BitFlip(path, 0, end, within, bit % 8, start + within)

    def heal(self) -> None:
        self.active = False
