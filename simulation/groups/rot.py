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
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._entries = entries
        self._looks = looks
        self._end = end
        self._level = level
        self._rotten = rotten
        self._leader = leader
        self._lags = lags
        self._random = random.Random(f"{world.seed}/rot")
        self.mended = 0

    def play(self) -> None:
        """While nothing else breaks but members that die. Raises Violation."""
        for _ in range(ROUNDS if self._lags else 0):
            self._rot_what_is_lacked()
        for node in self._random.sample(self._nodes, len(self._nodes)):
            for _ in range(1 if self._lags else ROUNDS):
                self._until(self._level, MENDED_LIMIT_MS, "the set is not level")
                rotten = self._flip(node)
                if rotten is not None:
                    self._rotten.add(node.name)
                    self._until_mended(rotten)
                    self._rotten.discard(node.name)

    def _rot_what_is_lacked(self) -> None:
        """A follower is cut off until its leader has forgotten what it lacks, and some of that rots at the leader."""
        self._until(self._level, MENDED_LIMIT_MS, "the set is not level")
        leader = self._leader()
        assert leader is not None
        follower = self._random.choice([node for node in self._nodes if node is not leader])
        lacks_from = self._last_index(follower) + 1
        for node in self._nodes:
            if node is not follower:
                self._world.network.cut(node.host, follower.host)
        self._world.run_for_ms(LAGS_MS)
        raft = self._look_at(leader).raft
        assert raft.core is not None
        known = min(raft.store.synced_index, raft.core.log.recent_from - 1)
        lacked = [entry for entry in self._entries() if lacks_from <= entry.number <= known]
        rotten = self._flip_one(leader, lacked) if self._leader() is leader else None
        self._world.network.heal()
        if rotten is None:
            return
        self._rotten.add(leader.name)
        self._wait(lambda: self._stands(rotten), MENDED_LIMIT_MS, "mended", rotten)
        self._wait(lambda: not self._damages(leader), MENDED_LIMIT_MS, "told as mended", rotten)
        self._rotten.discard(leader.name)
        if leader.failure is not None:
            raise Violation("G9", f"{leader.name} ended for what {follower.name} lacks: {leader.failure}")
        end = lacked[-1].number
        self._until(
            lambda: self._last_index(follower) >= end, MENDED_LIMIT_MS, "what was lacked has not come"
        )
        self.mended += 1

    def _last_index(self, node: Node) -> int:
        look = next((look for look in self._looks() if look.name == node.name), None)
        return -1 if look is None else look.raft.last_index

    def _flip(self, node: Node) -> Rotten | None:
        look = self._look_at(node)
        store = look.app.store
        sealed = self._sealed(node, f"{look.raft.store.name}/checkpoint")
        found = [
            entry
            for entry in self._entries()
            if store.min_offset() <= entry.position and entry.end < store._log.cold_end  # type: ignore[attr-defined]
            and entry.number < sealed - 1 and (self._lags or record_in(entry) is not None and len(entry.body) > BODY_AT)
        ]  # fmt: skip
        return self._flip_one(node, found)

    def _flip_one(self, node: Node, found: list[Entry]) -> Rotten | None:
        """A bit of one of the entries."""
        look = self._look_at(node)
        places = [(entry, at) for entry in found for at in self._bytes_of(entry)]
        if not places:
            return None
        entry, at = self._random.choice(places)
        size = look.app.store.segment_size_bytes
        start = entry.position - entry.position % size
        path = f"{look.raft.store.name}/data/{start:020d}"
        begin = entry.position - start
        content = node.disk.content(path)
        assert content is not None, "it was level a moment ago"
        was = content[begin : begin + entry.end - entry.position]
        node.disk.flip_bit(path, begin + at, self._random.randrange(8))
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
        dies = self._random.choice([rotten.node, *self._nodes]) if self._random.random() < 0.5 else None
        self._wait(
            lambda: self._damages(rotten.node) or self._stands(rotten), FOUND_LIMIT_MS, "found", rotten
        )
        if dies is not None and not self._stands(rotten):
            self._end(dies, self._random.random() < 0.5)
        self._wait(lambda: self._stands(rotten), MENDED_LIMIT_MS, "mended", rotten)
        self._wait(lambda: not self._damages(rotten.node), MENDED_LIMIT_MS, "told as mended", rotten)
        self.mended += 1

    def _damages(self, node: Node) -> int:
        look = next((look for look in self._looks() if look.name == node.name), None)
        return 0 if look is None else len(look.app.store.soundness.damages)

    def _stands(self, rotten: Rotten) -> bool:
        """As it was, on the disk itself; retention may have taken it."""
        if rotten.path not in rotten.node.disk.entries:
            return True
        end = rotten.begin + len(rotten.was)
        return rotten.node.disk.durable_part(rotten.path, rotten.begin, end) == rotten.was

    def _wait(self, holds: Callable[[], object], limit_ms: int, what: str, rotten: Rotten) -> None:
        where = f"byte {rotten.at} of the entry at {rotten.begin} in {rotten.path}"
        self._until(holds, limit_ms, f"{rotten.node.name}: {where} is not {what}")

    def _until(self, holds: Callable[[], object], limit_ms: int, what: str) -> None:
        deadline_ms = self._world.now_ms + limit_ms
        while not holds():
            if self._world.now_ms > deadline_ms:
                raise Violation("G8", f"{what} after {limit_ms} ms")
            self._world.run_for_ms(200)

    def _look_at(self, node: Node) -> Look:
        return next(look for look in self._looks() if look.name == node.name)
