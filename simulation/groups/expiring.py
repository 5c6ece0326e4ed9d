"""Bits flip in files of a Raft-mode set that are about to be deleted, or with which the log is about to begin.

G8   as in simulation.groups.rot: a corrupt record is repaired, or was deleted with its file
G11  while the set is whole, old files are deleted nevertheless: no member keeps a file for KEPT_LIMIT_MS longer than its
     settings say, and no disk fills
G12  the entries at a log's beginning are a chain: the first entry continues from the check value that its member keeps
P5   (in retention.py) no young file is deleted, whatever the flipped bit changes

Invariant: bits flip on one disk at a time, below the entries that the disk's checkpoint has sealed."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from simulation.groups.committed import HEADER, RECORD_HEAD, CommittedEntry, record_in
from simulation.groups.members import Look
from simulation.groups.rot import OWN_AT, OWN_END, PLACE_AT, PLACE_END, BitFlips, Flip
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

ROUNDS = 4
EXPIRED_LIMIT_MS = 40_000
KEPT_LIMIT_MS = 20_000
STORED_AT = HEADER.size + RECORD_HEAD.size + 8
"""The position in an entry of its message's store time."""
TELLING_BYTES = 3
"""Bytes of a store time in which a flipped bit changes the time by weeks or more."""


class Expiring(BitFlips):
    """Flips bits while messages come in, so that files expire."""

    def play(self) -> None:
        for node in self._random.sample(self.nodes, len(self.nodes)):
            for _ in range(ROUNDS):
                self.until(self.caught_up, EXPIRED_LIMIT_MS, "the set has not caught up")
                flip = self._flip(node)
                if flip is not None:
                    self._play_one(flip)

    def _play_one(self, flip: Flip) -> None:
        node = flip.node
        self.flipped.add(node.name)
        dies = self._random.choice([None, node, *self.nodes])
        if dies is not None:
            self.world.run_for_ms(self._random.choice((0, 1_500, 3_000)))
            self.end(dies, self._random.random() < 0.5)
        self._wait(lambda: self.is_intact(flip), EXPIRED_LIMIT_MS, "repaired or gone", flip)
        self._wait(lambda: not self._damages(node), EXPIRED_LIMIT_MS, "reported as repaired", flip)
        self.until(self.caught_up, EXPIRED_LIMIT_MS, "the set has not caught up")
        self.flipped.discard(node.name)
        self.mended += 1
        self._until_old_goes()

    def old_entries(self, node: Node) -> list[CommittedEntry]:
        """Entries in which bits may flip, the first and last entries of a file more often than others."""
        found = super().old_entries(node)
        outermost = [
            entry
            for before, entry, behind in zip(found, found[1:], found[2:], strict=False)
            if before.end != entry.position or entry.end != behind.position
        ]
        return outermost if outermost and self._random.random() < 0.8 else found

    def _bytes_of(self, entry: CommittedEntry) -> Iterator[int]:
        yield self._random.randrange(entry.end - entry.position)
        yield self._random.randrange(OWN_AT, OWN_END)
        yield self._random.randrange(PLACE_AT, PLACE_END)
        if record_in(entry) is not None:
            yield STORED_AT + self._random.randrange(TELLING_BYTES)

    def _until_old_goes(self) -> None:
        """Raises Violation G11, G12."""
        self.until(
            lambda: not any(map(self._keeps_old, self.looks())),
            KEPT_LIMIT_MS,
            "an old file is not deleted",
            "G11",
        )
        for look in self.looks():
            self._look_at_beginning(look)

    def _keeps_old(self, look: Look) -> bool:
        """Whether the member's first file should have been deleted KEPT_LIMIT_MS ago, according to the check's own copy."""
        size, store = look.app.store.segment_size_bytes, look.app.store
        behind = look.raft.log_begin() + size
        kept_ms = look.app.settings.file_reserved_seconds * 1000 + KEPT_LIMIT_MS
        stored = (record_in(entry) for entry in self.entries() if entry.position >= behind)
        newest = next((record.stored_ms for record in stored if record is not None), None)
        now_ms = store._clock.now_ms()
        return behind + size < store.confirm_offset() and newest is not None and newest + kept_ms < now_ms

    def _look_at_beginning(self, look: Look) -> None:
        log = look.raft.store.log
        begin = look.raft.log_begin()
        entry = next((entry for entry in self.entries() if entry.position == begin), None)
        if log is None or entry is None or not begin:
            return
        at, number = 0, look.number
        name = f"dledger-n{number}/data/{begin:020d}"
        stood = self.nodes[number].disk.durable_part(name, at, entry.end - begin)
        made = crc32(stood[40:], crc32(stood[:36], log.begin.check)) or 0xFFFFFFFF
        if len(stood) == entry.end - begin and int.from_bytes(stood[36:40], "big") not in (0, made):
            raise Violation(
                "G12",
                f"{look.name} begins at {begin} with an entry whose check value does not continue from the kept one",
            )
