"""A Raft group of real nodes in a simulated world: load, faults, and every invariant checked after each step.

Invariant: a run follows from its seed alone. Faults never take data from a majority of the members, so the group must elect a
leader and agree after the last fault is healed.

    python -m simulation.raft.world --seeds 100 --first 1
    python -m simulation.raft.world --seeds 300 --bug vote-not-persisted   (succeeds when a seed finds it)
"""

from __future__ import annotations

import errno
import random
import sys
from collections import Counter
from dataclasses import replace

from dledger.node.node import DLedgerNode
from dledger.raft.errors import EntryMisplaced, LogDamaged, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.settings import DLedgerSettings
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked, Feature, Features, named
from simulation.kernel.node import Node
from simulation.kernel.totals import Totals
from simulation.kernel.world import World
from simulation.mutants.raft import BUGS, planted
from simulation.raft.changes import Changes
from simulation.raft.group import RaftGroup
from simulation.raft.late import Post, forge
from simulation.raft.member import MemberApp
from simulation.raft.olddisks import OldDisks
from simulation.raft.placedload import PlacedLoad
from simulation.raft.stories import STORIES

FAULTS = (
    "kill",
    "power",
    "kill-leader",
    "kill-voter",
    "contest",
    "power-all",
    "cut",
    "cut-one-way",
    "isolate",
    "delay",
    "reset",
    "pause",
    "stall",
    "disk-error",
    "slow-disk",
    "slow-disks",
    "reset-leader",
    "drop",
    "transfer",
    "late-transfer",
    "empty",
    "forge",
    "late",
    *STORIES,
)
RUN_MS = 15_000
HEAL_LIMIT_MS = 15_000
PUSH_MS = 25
"""The time in which a member that is behind gets one push and has it on disk."""
KIND_OF_FAULT = "A kind of fault."
FEATURES = Features(
    Feature(
        "changes",
        1 / 5,
        "Members are added and removed all the while, and emptied ones come back.",
        "M1 to M4 of members (`simulation/raft/memberscheck.py`).",
    ),
    Feature(
        "old disks",
        1 / 5,
        "A disk is set back to an image that is 5 s old or older, all members die, and the member with that disk comes back "
        "first, with the members that are behind.",
        "R1 to R17.",
        excludes=frozenset({"changes"}),
    ),
    Feature(
        "positions",
        0.15,
        "The log keeps each entry at one position on all members.",
        "R18: the position is the one that the entry's body says, and readable entries are committed, on disk, and do not "
        "shrink (`simulation/raft/positions.py`).",
    ),
    *(Feature(kind, 1 / 7, KIND_OF_FAULT) for kind in FAULTS),
)


class RaftWorld:
    """The world of one seed. Its size, its settings, the kinds of faults and how often they strike are all drawn from the
    seed."""

    def __init__(self, seed: int, totals: Totals | None = None, asked: Asked = NOTHING_ASKED) -> None:
        """Raises FeatureError."""
        asked.check(FEATURES)
        self.played = FEATURES.of(seed, asked)
        self.world = World(seed)
        self.random = random.Random(f"{seed}/raft")
        self.totals = totals or Totals()
        snapshots = random.Random(f"{seed}/snapshots")
        window = random.Random(f"{seed}/window")
        settings = DLedgerSettings(
            election_timeout_max_ms=self.random.choice((2000, 1040)),
            push_entries_max=self.random.choice((1, 2, 64)),
            push_bytes_max=window.choice((800, 1 << 20)),
            pushes_in_flight_max=window.choice((1, 3, 8)),
            push_gap_ms=window.choice((0, 5)),
            bytes_in_flight_max=window.choice((3000, 4 << 20)),
            all_bytes_in_flight_max=window.choice((4000, 16 << 20)),
            data_file_bytes=self.random.choice((4096, 65536)),
            entry_bytes_max=1024,
            index_file_bytes=32 * 64,
            checkpoint_interval_ms=self.random.choice((200, 3000)),
            snapshot_entries=snapshots.choice((15, 40, 120)),
            snapshot_bytes=snapshots.choice((3000, 1 << 20)),
            snapshot_margin_entries=snapshots.choice((0, 5, 30)),
            snapshot_chunk_bytes=snapshots.choice((5, 4096)),
            recent_bytes_max=random.Random(f"{seed}/memory").choice((0, 2000, 1 << 20)),
        )
        positions = random.Random(f"{seed}/layout")
        self.settings = settings = replace(settings, same_positions="positions" in self.played)
        self.group = RaftGroup(self.world, self.random.choice((3, 3, 5)), settings=settings)
        versions = random.Random(f"{seed}/versions")
        self.group.old.update(name for name in self.group.peers if versions.random() < 0.1)
        self.group.overtaking_ms = window.choice((0, 0, 0, 2, 40))
        self.group.batches = random.Random(f"{seed}/batches").random() < 0.5
        self.check = self.group.check
        self.check.on_vote = self.on_vote_visible
        self.check.holders = self.holders
        self.changes = Changes(self, seed, plays="changes" in self.played)
        self.old_disks = OldDisks(self, seed, plays="old disks" in self.played)
        self.placed = PlacedLoad(self.group, positions)
        self.post = Post(self.group, self.random)
        self.stranger = self.world.node("stranger", "10.0.9.9")
        self.wiped: set[str] = set()
        self.nodes = self.group.nodes
        self.kinds = self.old_disks.kinds([kind for kind in FAULTS if kind in self.played] or ["kill"])
        self.pause_ms = self.random.choice((100, 400, 1500))
        self.body_number = 0
        self.healed_at_ms: dict[str, int] = {}
        self.voters_to_kill = 0

    @property
    def counts(self) -> Counter[str]:
        return self.totals.counts

    def run(self, run_ms: int = RUN_MS) -> None:
        """Run load and faults for `run_ms`, then heal and require agreement. Raises Violation or the error that a broken
        member raised."""
        with self.world as world:
            for node in self.nodes:
                self.start(node)
            end_ms = world.now_ms + run_ms
            next_fault_ms = world.now_ms + 1500
            while world.now_ms < end_ms:
                self.play(0)
                if world.now_ms >= next_fault_ms:
                    kind = self.random.choice(self.kinds)
                    self.fault(kind)
                    calm_ms = 2200 if kind == "contest" else 20
                    next_fault_ms = world.now_ms + self.random.randint(calm_ms, calm_ms + 2 * self.pause_ms)
            self.check.logs_match(self.group.members())
            self.heal()
        self.check.at_the_end()
        self.totals.counts.update(
            {f"snapshots {what}": count for what, count in self.check.snapshots.items()}
        )
        self.totals.simulated_ms += self.world.now_ms
        self.totals.counts.update(
            seeds=1,
            elections=len(self.check.leaders),
            commits=len(self.check.committed_log),
            answered=len(self.check.answered),
            pipelined=self.check.pipelined,
            batched=self.check.batched,
            readable=self.check.positions.readable,
            placed=self.placed.count,
            begun=self.placed.begun,
            disks_set_back=self.old_disks.count,
        )

    def play(self, ms: int) -> None:
        """Run load without further faults, for at least one step."""
        end_ms = self.world.now_ms + ms
        while True:
            self.world.run_for_ms(self.random.randint(5, 60) if not ms else self.random.randint(2, 20))
            self.restart_some()
            self.propose()
            self.changes.turn()
            self.old_disks.turn()
            self.placed.turn()
            if self.world.now_ms >= end_ms:
                return

    def holders(self, body: bytes, taken_for: set[str]) -> set[str]:
        return taken_for | {node.name for node in self.nodes if self.holds(node, body)}

    def holds(self, node: Node, body: bytes) -> bool:
        return node.disk.durably_holds(f"dledger-{node.name}/data/", body)

    def start(self, node: Node) -> None:
        if isinstance(node.failure, LogDamaged):
            raise self.check.found("R8", f"{node.name} lost durable entries: {node.failure}")
        if isinstance(node.failure, EntryMisplaced):
            raise self.check.found("R18", f"{node.name} has an entry at another position: {node.failure}")
        if node.failure is not None and not isinstance(node.failure, OSError):
            raise node.failure
        self.group.start(node, peers=self.changes.lists.get(node.name))

    def leader(self) -> Node | None:
        active = self.group.active()
        return self.random.choice(active) if active else None

    def read_from_deposed(self) -> None:
        """Read mostly from members that believe that they lead although a newer leader exists."""
        members = [member for node in self.group.active() if (member := self.group.member(node)) is not None]
        newest = max((member.term for member in members), default=0)
        for member in members:
            if member.term < newest:
                self.world.nodes[member.self_id].spawn(self.read(member))

    # Load

    def propose(self) -> None:
        self.read_from_deposed()
        node = self.leader()
        if node is None:
            return
        member = self.group.member(node)
        assert member is not None
        if self.random.random() < 0.2:
            node.spawn(self.read(member))
            return
        bodies = []
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            self.body_number += 1
            bodies.append(f"{self.body_number:08d}".encode() + b"x" * self.random.choice((0, 0, 30, 700)))
        if not self.placed.takes(node, member, bodies):
            node.spawn(self.write(member, bodies))

    async def write(self, member: DLedgerNode, bodies: list[bytes]) -> None:
        try:
            committed = await member.propose(bodies, timeout_ms=2000)
        except (NotLeader, TooManyProposals):
            self.check.refused.update(bodies)
        except OutcomeUnknown:
            self.totals.counts["unknown"] += len(bodies)
        else:
            indexes = [committed.first_index + number for number in range(len(bodies))]
            expected = [None] * len(indexes) if self.placed.plays else indexes
            assert committed.results == expected, (
                "the state machine, if there is one, returns each entry's index"
            )
            for body, index in zip(bodies, indexes, strict=True):
                self.check.answer(body, index)

    async def read(self, member: DLedgerNode) -> None:
        wanted = max(self.check.answered.values(), default=-1)
        try:
            await member.read_barrier(2000)
        except NotLeader:
            return
        self.totals.counts["reads"] += 1
        if member.applied_index < wanted:
            served = f"{member.self_id} served a read at applied index {member.applied_index}"
            raise self.check.found("R10", f"{served}, expected {wanted} or more, which was answered before")

    # Faults

    def fault(self, kind: str) -> None:
        self.totals.counts[kind] += 1
        if kind in STORIES:
            STORIES[kind](self)
            return
        world, node, other = self.world, *self.random.sample(self.nodes, 2)
        match kind:
            case "kill" | "power":
                self.crash(node, power_cut=kind == "power")
            case "kill-leader":
                self.crash(self.leader() or node, power_cut=self.random.random() < 0.5)
            case "kill-voter":
                self.voters_to_kill = self.random.choice((1, 3))
            case "contest":
                self.contest(node, other)
            case "power-all":
                for each in self.nodes:
                    self.crash(each, power_cut=True)
            case "cut" | "cut-one-way":
                world.network.cut(node.host, other.host, both=kind == "cut")
            case "isolate":
                self.isolate(node)
            case "empty" if self.may_empty([node]):
                self.empty(node)
            case "forge":
                forge(self.group, self.random, self.stranger)
            case "late":
                self.deliver_late(self.random.choice((5, 50)))
            case "delay":
                world.network.delay(node.host, other.host, 1, self.random.choice((20, 300)))
            case "reset":
                world.network.reset(node.host, other.host)
            case "pause" if node.running:
                node.pause(self.random.choice((50, 700, 2500)))
            case "stall":
                node.disk.stall(self.random.choice((100, 900, 3000)))
            case "slow-disk" | "slow-disks":
                for each in (
                    self.nodes
                    if kind == "slow-disks"
                    else [self.random.choice((self.leader(), node)) or node]
                ):
                    each.disk.slow_down(*self.random.choice(((250, 350), (20, 60))))
            case "reset-leader":
                leader = self.leader() or node
                for each in self.nodes:
                    world.network.reset(leader.host, each.host)
            case "drop":
                for app in self.apps():
                    app.client.drop_share = self.random.choice((0.05, 0.5, 1.0))
            case "transfer":
                self.transfer(other)
            case "late-transfer":
                self.late_transfer()
            case "disk-error":
                node.disk.fail_next("sync", OSError(errno.EIO, "Input/output error"))
        if kind not in ("contest", "late-transfer") and self.random.random() < 0.3:
            world.network.heal()
            self.mend()

    def apps(self) -> list[MemberApp]:
        return [app for node in self.nodes if isinstance(app := node.app, MemberApp)]

    def mend(self) -> None:
        """Make disks fast again, and drop no more calls."""
        for node in self.nodes:
            node.disk.slow_down(0.2, 2)
        for app in self.apps():
            app.client.drop_share = 0

    def transfer(self, target: Node) -> None:
        """The leader transfers leadership to `target`, or to any member."""
        node = self.leader()
        member = self.group.member(node) if node is not None else None
        if node is not None and member is not None:
            node.spawn(member.transfer_leadership(self.random.choice((None, target.name))))

    def late_transfer(self) -> None:
        """A leader is cut off while its transfer request is on its way. The request arrives when others have led for long."""
        node = self.leader()
        member = self.group.member(node) if node is not None else None
        if node is None or member is None or member.core is None:
            return
        target = self.random.choice([each for each in self.nodes if each is not node])
        self.world.network.delay(node.host, target.host, 20, 20)
        node.spawn(member.transfer_leadership(target.name))
        self.world.run_for_ms(10)
        for each in self.nodes:
            if each is not node:
                self.world.network.cut(node.host, each.host)
        self.healed_at_ms[node.name] = self.world.now_ms
        self.world.run_for_ms(self.random.choice((1500, 3500)))
        self.world.network.heal()
        self.world.network.delay(node.host, target.host, 0.1, 0.5)

    def on_vote_visible(self, voter: str) -> None:
        """A vote has just become visible to others, so from now on the voter must not forget it."""
        if self.voters_to_kill:
            self.voters_to_kill -= 1
            node = self.world.nodes[voter]
            node.kill(power_cut=self.random.random() < 0.2)
            self.healed_at_ms[voter] = self.world.now_ms
            self.world.loop.call_later(0.001, self.restart_some, context=self.world.network.context)

    def contest(self, node: Node, other: Node) -> None:
        """Two candidates do not reach each other. One voter is close to both, and dies after its first vote. The other voters
        are slow, so neither candidate wins before the voter is back."""
        network = self.world.network
        network.heal()
        for each in self.nodes:
            self.crash(each, power_cut=False)
            self.healed_at_ms[each.name] = self.world.now_ms
        network.cut(node.host, other.host)
        near, *slow = [each for each in self.nodes if each not in (node, other)]
        for voter in (near, *slow):
            self.healed_at_ms[voter.name] += 300  # its own election timeout is later than theirs
            for candidate in (node, other):
                network.delay(voter.host, candidate.host, *((0.1, 0.5) if voter is near else (1, 100)))
        self.voters_to_kill = 1

    def crash(self, node: Node, *, power_cut: bool, away_ms: int | None = None) -> None:
        node.kill(power_cut=power_cut)
        away_ms = self.random.choice((1, 50, 500, 3000)) if away_ms is None else away_ms
        self.healed_at_ms[node.name] = self.world.now_ms + away_ms

    def isolate(self, node: Node, *, both: bool = True) -> None:
        for each in self.nodes:
            if each is not node:
                self.world.network.cut(each.host, node.host, both=both)

    def deliver_late(self, count: int) -> None:
        self.post.deliver_late(count)

    def ambush(self, count: int) -> None:
        self.post.ambushes = count

    def may_empty(self, nodes: list[Node]) -> bool:
        """Whether these members and the members that have not caught up yet are a minority."""
        without = {node.name for node in nodes} | {
            node.name for node in self.nodes if node.name in self.wiped and not self.votes(node)
        }
        if self.changes.plays:
            return self.changes.may_empty(without)
        return 2 * len(without) < len(self.nodes)

    def votes(self, node: Node) -> bool:
        """Whether the member votes now, and would vote after a kill."""
        member = self.group.member(node)
        if member is None or member.core is None or member.core.rejoin.newcomer:
            return False
        kept = node.disk.content(f"dledger-{node.name}/currterm")
        return kept is not None and b"newcomer=true" not in kept

    def empty(self, node: Node) -> None:
        """Replace the disk and start at once, unless members have changed since this was planned."""
        if not self.changes.plays or self.changes.may_empty({node.name}):
            self.exchange_disk(node)

    def exchange_disk(self, node: Node) -> None:
        self.group.empty(node)
        self.wiped.add(node.name)
        self.healed_at_ms[node.name] = self.world.now_ms

    def restart_some(self) -> None:
        for node in self.nodes:
            if not node.running and self.world.now_ms >= self.healed_at_ms.get(node.name, 0):
                self.start(node)

    def calm(self) -> None:
        """End all faults."""
        self.voters_to_kill = 0
        self.world.network.heal()
        self.mend()
        for node in self.nodes:
            for other in self.nodes:
                if node is not other:
                    self.world.network.delay(node.host, other.host, 0.1, 0.5)
        self.healed_at_ms.clear()

    def heal(self) -> None:
        """End all faults, and require (V1) that there is a leader within a few election timeouts, all members are at one
        index, and all vote."""
        self.calm()
        self.old_disks.plays = False

        def agreed() -> bool:
            self.restart_some()
            return self.changes.settled() and self.group.agreed() and all(map(self.votes, self.nodes))

        entries = max((member.last_index + 1 for member in self.group.members()), default=0)
        pushes = entries // self.settings.push_entries_max
        self.world.run_until(agreed, HEAL_LIMIT_MS + pushes * PUSH_MS)
        self.check.logs_match(self.group.members())


def features() -> frozenset[str]:
    """The names of all features that a seed may play."""
    return frozenset(FEATURES)


def run_seed(seed: int, bug: str | None, totals: Totals, asked: Asked = NOTHING_ASKED) -> None:
    """Raises FeatureError, and what the run finds."""
    with planted(bug):
        world = RaftWorld(seed, totals, asked)
        with named(world.played):
            world.run()


def main() -> int:
    return seeds.main(__doc__, BUGS, 50, run_seed)


if __name__ == "__main__":
    sys.exit(main())
