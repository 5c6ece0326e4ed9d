"""Bits that flip on the disks of a Raft-mode set, a member's after the other's.

G8  what rotted is found, and stands again on that disk, durably, byte for byte as it was written, whoever leads and though
    members die meanwhile
G9  a leader whose follower lacks what rotted goes on, and the follower gets it

Invariant: a byte rots on one disk at a time, below what its checkpoint has sealed, as that stands on the disk; so a majority is
sound, and no start reads it: one begins with the last entry that is sealed, and takes a check value from the one before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from simulation.cluster.violation import Violation
from simulation.groups.decided import HEADER, RECORD_HEAD, TAIL, Entry, record_in
from simulation.groups.members import Look
from simulation.kernel.node import Node
from simulation.kernel.world import World

ROUNDS = 3
LAGS_MS = 8_000
FOUND_LIMIT_MS, MENDED_LIMIT_MS = 20_000, 30_000
BODY_AT = RECORD_HEAD.size + 8 + 8 + 8 + TAIL.size
"""Of a record: behind three hosts and times."""
PLACE_AT, PLACE_END = 24, 32
"""Of an entry's header: where it says that it stands."""
OWN_AT, OWN_END = 36, 44
"""And what one disk alone has: check value, and how many came before it in its sync."""


class Rotten(NamedTuple):
    node: Node
    path: str
    at: int
    was: bytes
    """The whole entry."""
    begin: int
    """Of the entry in its file."""

    def __str__(self) -> str:
        return f"{self.node.name}: byte {self.at} of the entry at {self.begin} in {self.path}"


class Rot:
    """`entries()` are those that were decided, `looks()` the brokers that run; `end(node, power_cut)` ends one,
    which comes back by itself; `level()` whether all show what was decided. `rotten` has who has a bit that flipped."""

    def __init__(
        self,
        world: World,
        nodes: list[Node],
        *,
        entries: Callable[[], list[Entry]],
        looks: Callable[[], list[Look]],
        end: Callable[[Node, bool], object],
        level: Callable[[], bool],
        rotten: set[str],
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
        self.level = level
        self.rotten = rotten
        self.leader = leader
        self._lags = lags
        self._segment_bytes = segment_bytes
        self._any_byte = any_byte
        self._random = random.Random(f"{world.seed}/rot")
        self.mended = 0

    def play(self) -> None:
        """While nothing else breaks but members that die. Raises Violation."""
        for _ in range(ROUNDS if self._lags else 0):
            self._rot_what_is_lacked()
        for node in self._random.sample(self.nodes, len(self.nodes)):
            for _ in range(1 if self._lags else ROUNDS):
                self.until(self.level, MENDED_LIMIT_MS, "the set is not level")
                rotten = self._flip(node)
                if rotten is not None:
                    self.rotten.add(node.name)
                    self._until_mended(rotten)
                    self.rotten.discard(node.name)

    def _rot_what_is_lacked(self) -> None:
        """A follower is cut off until its leader has forgotten what it lacks, and some of that rots at the leader."""
        self.until(self.level, MENDED_LIMIT_MS, "the set is not level")
        leader = self.leader()
        assert leader is not None
        follower = self._random.choice([node for node in self.nodes if node is not leader])
        lacks_from = self._last_index(follower) + 1
        for node in self.nodes:
            if node is not follower:
                self.world.network.cut(node.host, follower.host)
        self.world.run_for_ms(LAGS_MS)
        raft = self.look_at(leader).raft
        assert raft.core is not None
        known = min(raft.store.synced_index, raft.core.log.recent_from - 1)
        lacked = [entry for entry in self.entries() if lacks_from <= entry.number <= known]
        rotten = self._flip_one(leader, lacked) if self.leader() is leader else None
        self.world.network.heal()
        if rotten is None:
            return
        self.rotten.add(leader.name)
        self._wait(lambda: self.stands(rotten), MENDED_LIMIT_MS, "mended", rotten)
        self._wait(lambda: not self._damages(leader), MENDED_LIMIT_MS, "told as mended", rotten)
        self.rotten.discard(leader.name)
        if leader.failure is not None:
            raise Violation("G9", f"{leader.name} ended for what {follower.name} lacks: {leader.failure}")
        end = lacked[-1].number
        self.until(lambda: self._last_index(follower) >= end, MENDED_LIMIT_MS, "what was lacked has not come")
        self.mended += 1

    def _last_index(self, node: Node) -> int:
        look = next((look for look in self.looks() if look.name == node.name), None)
        return -1 if look is None else look.raft.last_index

    def old_entries(self, node: Node) -> list[Entry]:
        """Those that may rot there."""
        look = self.look_at(node)
        store = look.app.store
        sealed = self._sealed(node, f"{look.raft.store.name}/checkpoint")
        return [
            entry
            for entry in self.entries()
            if store.min_offset() <= entry.position and entry.end < store._log.cold_end  # type: ignore[attr-defined]
            and entry.number < sealed - 1
        ]  # fmt: skip

    def _flip(self, node: Node) -> Rotten | None:
        found = [
            entry
            for entry in self.old_entries(node)
            if self._any_byte or record_in(entry) is not None and len(entry.body) > BODY_AT
        ]
        return self._flip_one(node, found)

    def _flip_one(self, node: Node, found: list[Entry]) -> Rotten | None:
        """A bit of one of the entries."""
        places = [(entry, at) for entry in found for at in self._bytes_of(entry)]
        if not places:
            return None
        entry, at = self._random.choice(places)
        return self.flip_at(node, entry, at, self._random.randrange(8))

    def flip_at(self, node: Node, entry: Entry, at: int, bit: int = 0) -> Rotten:
        """A bit of its byte `at`."""
        number, size = self.nodes.index(node), self._segment_bytes
        start = entry.position - entry.position % size
        path = f"dledger-n{number}/data/{start:020d}"
        begin = entry.position - start
        content = node.disk.content(path)
        assert content is not None, "it was level a moment ago"
        was = content[begin : begin + entry.end - entry.position]
        node.disk.flip_bit(path, begin + at, bit)
        return Rotten(node, path, at, was, begin)

    def _sealed(self, node: Node, path: str) -> int:
        """The last such entry."""
        size = len(node.disk.content(path) or b"")
        lines = node.disk.durable_part(path, 0, size).decode().splitlines()
        return max(
            (int(line.partition("=")[2]) for line in lines if line.startswith("syncedIndex=")), default=-1
        )

    def _bytes_of(self, entry: Entry) -> Iterator[int]:
        """Some that a look at the record, or at the entry's header, judges; or any, often one of the disk's own."""
        if self._lags:
            yield self._random.randrange(entry.end - entry.position)
            yield self._random.randrange(OWN_AT, OWN_END)
            return
        body_bytes = TAIL.unpack_from(entry.body, BODY_AT - TAIL.size)[2]
        if body_bytes:
            yield HEADER.size + BODY_AT + self._random.randrange(body_bytes)
        yield self._random.randrange(PLACE_AT, PLACE_END)

    def _until_mended(self, rotten: Rotten) -> None:
        """Somebody dies meanwhile in every other round: the one that rots, or another."""
        dies = self._random.choice([rotten.node, *self.nodes]) if self._random.random() < 0.5 else None
        self._wait(lambda: self._damages(rotten.node) or self.stands(rotten), FOUND_LIMIT_MS, "found", rotten)
        if dies is not None and not self.stands(rotten):
            self.end(dies, self._random.random() < 0.5)
        self._wait(lambda: self.stands(rotten), MENDED_LIMIT_MS, "mended", rotten)
        self._wait(lambda: not self._damages(rotten.node), MENDED_LIMIT_MS, "told as mended", rotten)
        self.mended += 1

    def _damages(self, node: Node) -> int:
        look = next((look for look in self.looks() if look.name == node.name), None)
        return 0 if look is None else len(look.app.store.integrity.damages)

    def stands(self, rotten: Rotten) -> bool:
        """As it was, on the disk itself; retention may have taken it, or is about to."""
        look = next((look for look in self.looks() if look.name == rotten.node.name), None)
        begin = 0 if look is None else look.app.store.min_offset()
        if rotten.path not in rotten.node.disk.entries or int(rotten.path[-20:]) + rotten.begin < begin:
            return True
        end = rotten.begin + len(rotten.was)
        return rotten.node.disk.durable_part(rotten.path, rotten.begin, end) == rotten.was

    def _wait(self, holds: Callable[[], object], limit_ms: int, what: str, rotten: Rotten) -> None:
        self.until(holds, limit_ms, f"{rotten} is not {what}")

    def until(self, holds: Callable[[], object], limit_ms: int, what: str, invariant: str = "G8") -> None:
        deadline_ms = self.world.now_ms + limit_ms
        while not holds():
            if self.world.now_ms > deadline_ms:
                raise Violation(invariant, f"{what} after {limit_ms} ms")
            self.world.run_for_ms(200)

    def look_at(self, node: Node) -> Look:
        return next(look for look in self.looks() if look.name == node.name)
