"""Bits flip on the disks of a Raft-mode set, on one member after the other.

G8  a corrupt entry is found and durably repaired on that disk, byte for byte as it was written, whichever member leads, even
    if members die meanwhile
G9  a leader keeps leading when its follower is missing a corrupt entry, and the follower gets it

Invariant: a bit flips on one disk at a time, below the entries that the disk's checkpoint has sealed. So a majority is intact.
No start reads the bit, because a start begins with the last sealed entry and takes a check value from the entry before it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from simulation.groups.committed import HEADER, RECORD_HEAD, TAIL, CommittedEntry, record_in
from simulation.groups.members import Look
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

ROUNDS = 3
LAGS_MS = 8_000
FOUND_LIMIT_MS, MENDED_LIMIT_MS = 20_000, 30_000
BODY_AT = RECORD_HEAD.size + 8 + 8 + 8 + TAIL.size
"""The position of the body in a record, after hosts and times."""
PLACE_AT, PLACE_END = 24, 32
"""The bytes of an entry's header that contain the entry's position."""
OWN_AT, OWN_END = 36, 44
"""The bytes of a header that differ from disk to disk: the check value, and how many entries came before this one in its
sync."""


class Flip(NamedTuple):
    node: Node
    path: str
    at: int
    was: bytes
    """The whole entry as it was."""
    begin: int
    """Where the entry begins in its file."""

    def __str__(self) -> str:
        return f"{self.node.name}: byte {self.at} of the entry at {self.begin} in {self.path}"


class BitFlips:
    """Flips the bits. `entries()` are the committed entries, and `looks()` the running brokers. `end(node, power_cut)` ends a
    broker, which comes back by itself. `caught_up()` says whether all show what was committed. `flipped` has the brokers with
    a flipped bit."""

    def __init__(
        self,
        world: World,
        nodes: list[Node],
        *,
        entries: Callable[[], list[CommittedEntry]],
        looks: Callable[[], list[Look]],
        end: Callable[[Node, bool], object],
        caught_up: Callable[[], bool],
        flipped: set[str],
        leader: Callable[[], Node | None],
        lags: bool,
        segment_bytes: int,
        any_byte: bool,
    ) -> None:
        self.world = world
        self.nodes = nodes
        self.entries = entries
        self.looks = looks
        self.end = end
        self.caught_up = caught_up
        self.flipped = flipped
        self.leader = leader
        self._lags = lags
        self._segment_bytes = segment_bytes
        self._any_byte = any_byte
        self._random = random.Random(f"{world.seed}/rot")
        self.mended = 0

    def play(self) -> None:
        """Flip bits, and wait for the repairs. Nothing else happens but deaths of members. Raises Violation."""
        for _ in range(ROUNDS if self._lags else 0):
            self._flip_what_a_follower_misses()
        for node in self._random.sample(self.nodes, len(self.nodes)):
            for _ in range(1 if self._lags else ROUNDS):
                self.until(self.caught_up, MENDED_LIMIT_MS, "the set has not caught up")
                flip = self._flip(node)
                if flip is not None:
                    self.flipped.add(node.name)
                    self._until_mended(flip)
                    self.flipped.discard(node.name)

    def _flip_what_a_follower_misses(self) -> None:
        """A follower is cut off until the leader no longer has the missing entries in memory. A bit of one of them flips on
        the leader's disk."""
        self.until(self.caught_up, MENDED_LIMIT_MS, "the set has not caught up")
        leader = self.leader()
        assert leader is not None
        follower = self._random.choice([node for node in self.nodes if node is not leader])
        missing_from = self._last_index(follower) + 1
        for node in self.nodes:
            if node is not follower:
                self.world.network.cut(node.host, follower.host)
        self.world.run_for_ms(LAGS_MS)
        raft = self.look_at(leader).raft
        assert raft.core is not None
        known = min(raft.store.synced_index, raft.core.log.recent_from - 1)
        missing = [entry for entry in self.entries() if missing_from <= entry.number <= known]
        flip = self._flip_one(leader, missing) if self.leader() is leader else None
        self.world.network.heal()
        if flip is None:
            return
        self.flipped.add(leader.name)
        self._wait(lambda: self.is_intact(flip), MENDED_LIMIT_MS, "repaired", flip)
        self._wait(lambda: not self._damages(leader), MENDED_LIMIT_MS, "reported as repaired", flip)
        self.flipped.discard(leader.name)
        if leader.failure is not None:
            raise Violation(
                "G9", f"{leader.name} ended for an entry that {follower.name} is missing: {leader.failure}"
            )
        end = missing[-1].number
        self.until(
            lambda: self._last_index(follower) >= end,
            MENDED_LIMIT_MS,
            f"{follower.name} has not received entry {end}",
        )
        self.mended += 1

    def _last_index(self, node: Node) -> int:
        look = next((look for look in self.looks() if look.name == node.name), None)
        return -1 if look is None else look.raft.last_index

    def old_entries(self, node: Node) -> list[CommittedEntry]:
        """The entries on this broker whose bits may flip."""
        look = self.look_at(node)
        store = look.app.store
        sealed = self._sealed(node, f"{look.raft.store.name}/checkpoint")
        return [
            entry
            for entry in self.entries()
            if store.min_offset() <= entry.position and entry.end < store._log.cold_end  # type: ignore[attr-defined]
            and entry.number < sealed - 1
        ]  # fmt: skip

    def _flip(self, node: Node) -> Flip | None:
        found = [
            entry
            for entry in self.old_entries(node)
            if self._any_byte or record_in(entry) is not None and len(entry.body) > BODY_AT
        ]
        return self._flip_one(node, found)

    def _flip_one(self, node: Node, found: list[CommittedEntry]) -> Flip | None:
        """Flip a bit of one of the entries."""
        places = [(entry, at) for entry in found for at in self._bytes_of(entry)]
        if not places:
            return None
        entry, at = self._random.choice(places)
        return self.flip_at(node, entry, at, self._random.randrange(8))

    def flip_at(self, node: Node, entry: CommittedEntry, at: int, bit: int = 0) -> Flip:
        """Flip a bit in byte `at` of the entry."""
        number, size = self.nodes.index(node), self._segment_bytes
        start = entry.position - entry.position % size
        path = f"dledger-n{number}/data/{start:020d}"
        begin = entry.position - start
        content = node.disk.content(path)
        assert content is not None, "it had caught up a moment ago"
        was = content[begin : begin + entry.end - entry.position]
        node.disk.flip_bit(path, begin + at, bit)
        return Flip(node, path, at, was, begin)

    def _sealed(self, node: Node, path: str) -> int:
        """The last sealed entry."""
        size = len(node.disk.content(path) or b"")
        lines = node.disk.durable_part(path, 0, size).decode().splitlines()
        return max(
            (int(line.partition("=")[2]) for line in lines if line.startswith("syncedIndex=")), default=-1
        )

    def _bytes_of(self, entry: CommittedEntry) -> Iterator[int]:
        """Bytes in which a bit may flip: bytes that the check of the record or of the entry's header covers, or any bytes,
        often those that differ from disk to disk."""
        if self._lags:
            yield self._random.randrange(entry.end - entry.position)
            yield self._random.randrange(OWN_AT, OWN_END)
            return
        body_bytes = TAIL.unpack_from(entry.body, BODY_AT - TAIL.size)[2]
        if body_bytes:
            yield HEADER.size + BODY_AT + self._random.randrange(body_bytes)
        yield self._random.randrange(PLACE_AT, PLACE_END)

    def _until_mended(self, flip: Flip) -> None:
        """Wait until the entry is repaired. In every other round a member dies meanwhile, the one with the flipped bit or
        another."""
        dies = self._random.choice([flip.node, *self.nodes]) if self._random.random() < 0.5 else None
        self._wait(lambda: self._damages(flip.node) or self.is_intact(flip), FOUND_LIMIT_MS, "found", flip)
        if dies is not None and not self.is_intact(flip):
            self.end(dies, self._random.random() < 0.5)
        self._wait(lambda: self.is_intact(flip), MENDED_LIMIT_MS, "repaired", flip)
        self._wait(lambda: not self._damages(flip.node), MENDED_LIMIT_MS, "reported as repaired", flip)
        self.mended += 1

    def _damages(self, node: Node) -> int:
        look = next((look for look in self.looks() if look.name == node.name), None)
        return 0 if look is None else len(look.app.store.integrity.damages)

    def is_intact(self, flip: Flip) -> bool:
        """Whether the entry is intact on disk, or retention has deleted it or is about to."""
        look = next((look for look in self.looks() if look.name == flip.node.name), None)
        begin = 0 if look is None else look.app.store.min_offset()
        if flip.path not in flip.node.disk.entries or int(flip.path[-20:]) + flip.begin < begin:
            return True
        end = flip.begin + len(flip.was)
        return flip.node.disk.durable_part(flip.path, flip.begin, end) == flip.was

    def _wait(self, holds: Callable[[], object], limit_ms: int, what: str, flip: Flip) -> None:
        self.until(holds, limit_ms, f"{flip} is not {what}")

    def until(self, holds: Callable[[], object], limit_ms: int, what: str, invariant: str = "G8") -> None:
        deadline_ms = self.world.now_ms + limit_ms
        while not holds():
            if self.world.now_ms > deadline_ms:
                raise Violation(invariant, f"{what} after {limit_ms} ms")
            self.world.run_for_ms(200)

    def look_at(self, node: Node) -> Look:
        return next(look for look in self.looks() if look.name == node.name)
