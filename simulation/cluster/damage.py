"""Stores that lose something while their brokers are down: all of it, or one bit.

Invariant: a store is lost only once the SyncStateSet goes on without it: a broker that dies is elected as long as its last
heartbeat counts, and would then be the last replica. A broker whose log is damaged where it was confirmed must refuse to
start, and then gets an empty disk, as an operator would give it; one with a damaged checkpoint, or one bad copy of its epoch
file, must start and be right, in the set or not."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from epochfile.file import BACKUP_SUFFIX, DEFAULT_NAME
from messagestore.checkpoint import CHECKPOINT, FILE, CheckpointDamaged, decode_checkpoint
from messagestore.errors import LogMissing, StoreCorrupted
from messagestore.log.commitlog import FOLDER
from messagestore.record import decode
from messagestore.walker import SegmentWalk
from simulation.cluster.looks import broker_on
from simulation.cluster.violation import Violation
from simulation.kernel.node import Node

HARMLESS = (FILE, DEFAULT_NAME, DEFAULT_NAME + BACKUP_SUFFIX)
LOG = f"{FOLDER}/"


@dataclass(frozen=True)
class Damage:
    """What is wrong with a store: a bit that was flipped in `path`, or all of that folder gone."""

    path: str

    @property
    def must_refuse(self) -> bool:
        return self.path.startswith(LOG)


class StoreDamage:
    """Takes and damages the stores of brokers that do not run."""

    def __init__(self, chance: random.Random, brokers: list[Node], done: Counter[str]) -> None:
        self.random = chance
        self.brokers = brokers
        self.done = done
        self.planned: dict[str, str] = {}
        """Node name -> the fault that its store suffers when its broker has left the set."""
        self.damaged: dict[str, Damage] = {}

    def plan(self, kind: str, node: Node) -> bool:
        """Whether the store of this broker, which was killed, is to be lost when the set goes on without it. What must do no
        harm is done at once."""
        if kind == "flipped bit" and self.random.random() < 0.5:
            self.flip(node, self.random.choice(HARMLESS))
            return False
        self.planned[node.name] = kind
        return True

    def perform(self, node: Node) -> None:
        """The set goes on without this broker."""
        if self.planned.pop(node.name) == "wiped slave":
            node.disk.wipe()
            self.done["wiped slave"] += 1
        elif bodies := self.vouched_bodies(node):
            self.flip(node, *self.random.choice(bodies))

    def flip(self, node: Node, path: str, offset: int | None = None) -> None:
        """One bit at `offset`; anywhere in what is written there without one."""
        content = node.disk.content(path)
        if content:
            written = CHECKPOINT.size if path == FILE else len(content)
            at = self.random.randrange(written) if offset is None else offset
            node.disk.flip_bit(path, at, self.random.randrange(8))
            self.damaged[node.name] = Damage(path)
            self.done["flipped bit"] += 1

    def must_be_refused(self, node: Node, folder: str) -> None:
        """This folder of the store is gone."""
        self.damaged[node.name] = Damage(f"{folder}/")

    def vouched_bodies(self, node: Node) -> list[tuple[str, int]]:
        """(path, offset in it) of a byte in the body of each record that a restart must find whole: those of the confirm
        offset's own segment."""
        try:
            confirm = decode_checkpoint(node.disk.content(FILE)).confirm_phy_offset
        except CheckpointDamaged:  # it died again before it wrote another
            return []
        for path in sorted(node.disk.entries):
            content = node.disk.content(path) or b""
            start = int(path.removeprefix(LOG)) if path.startswith(LOG) and content else -1
            if start <= confirm < start + len(content) and start >= 0:
                found = []
                for offset, size in SegmentWalk(content, start, start, confirm):
                    record = content[offset - start : offset - start + size]
                    body = bytes(decode(record, verify_body=False).body)
                    at = record.index(body) + self.random.randrange(len(body))
                    found.append((path, offset - start + at))
                return found
        return []

    def next_steps(self) -> None:
        """Raises Violation for a broker that serves what it must refuse."""
        for node in self.brokers:
            damage = self.damaged.get(node.name)
            if damage is not None and broker_on(node) is not None:
                if damage.must_refuse:
                    raise Violation("L5", f"{node.name} serves a log that is damaged or gone: {damage.path}")
                del self.damaged[node.name]

    def cured(self, node: Node) -> bool:
        """Whether this broker refused its store for the damage that was done, and has got an empty disk for it."""
        damage = self.damaged.get(node.name)
        refused = isinstance(node.failure, StoreCorrupted | LogMissing)
        if damage is None or not damage.must_refuse or not refused:
            return False
        del self.damaged[node.name]
        node.disk.wipe()
        self.done["refused a damaged log"] += 1
        return True
