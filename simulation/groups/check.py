"""The invariants of a Raft-mode set, checked at every step.

G1  an acknowledged message is committed where the answer named it, and each member's queues list exactly the committed ones
G2  a term has one leader; only the leader of its term answers sends and is a master, and a slave in a term follows that one
G3  members show the same entries at the same positions, each record names its own, queue offsets have no gap and no double
G4  nothing is shown, or answered, that is not on the own disk and on a majority of disks
G5  a new leader has all that was ever committed
G6  store times never go back in the order of the log; (in the world) a set without faults serves and catches up
G7  (in the world) name servers have broker id 0 at the leader
G8  (in rot.py) a corrupt record is repaired on its disk as it was written
G9  (in rot.py) a leader keeps leading when its follower is missing a corrupt entry

Invariant: a check only reads, and computes its expectations from entries, answers and disks itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.role.membership import ReplicaRole
from dledger.raft.actions import Role as RaftRole
from messagestore.systemtopics import SCHEDULE_TOPIC
from simulation.groups.committed import HEADER, CommittedEntry, CommittedLog, entry_in
from simulation.groups.members import BROKER_PORT, HOSTS, GroupsKind, Look
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

FILLER_SIZE = 0x7FFFFFFF
"""The size field of a queue entry that points to no message, because the message is gone."""


@dataclass
class GroupCheck:
    """The check of the set on `nodes`, which are in the order of their ids."""

    kind: GroupsKind
    nodes: Sequence[Node]
    committed: CommittedLog = field(init=False)
    leaders: dict[int, str] = field(default_factory=dict)
    """Term -> its leader."""
    served: list[int] = field(default_factory=list)
    """Terms whose leaders took messages."""
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    """For each process: up to where its shown log was compared."""
    listed: dict[tuple[str, int], dict[tuple[str, int], int]] = field(default_factory=dict)
    """For each process: up to where its queues were compared."""
    flipped: set[str] = field(default_factory=set)
    """Brokers whose log has a flipped bit. For their new processes, only entries after the committed ones are compared."""
    answered: int = 0
    broken: Violation | None = None
    """A violation that was found during a broker's work, where raising it would only end that broker."""

    def __post_init__(self) -> None:
        self.committed = CommittedLog(self.kind.segment_bytes)

    # Each step

    def look(self, look: Look) -> None:
        """Raises Violation."""
        core = look.raft.core
        assert core is not None
        if core.role is RaftRole.LEADER:
            known = self.leaders.get(core.term)
            if known is None:
                self.begins_to_lead(look, core.term)
            elif known != look.name:
                raise Violation("G2", f"{known} and {look.name} both lead in term {core.term}")
            self.look_at_mastership(look, core.term)
        store = look.app.store
        shown = max(store.confirm_offset(), store.dispatched_offset(), look.raft.readable()[1])
        if look.name in self.flipped:
            self.seen.setdefault(look.key, self.committed.end)
        if shown > self.seen.get(look.key, -1):
            self.look_at_entries(look, shown)

    def look_at_mastership(self, look: Look, term: int) -> None:
        epoch = look.app.membership.master_epoch
        if look.leads and epoch != term:
            raise Violation("G2", f"{look.name} is master of term {epoch}, expected {term}, which it leads")
        if look.leads and term not in self.served:
            self.served.append(term)

    def look_at_role(self, look: Look) -> None:
        """Raises Violation."""
        membership = look.app.membership
        if membership.role is ReplicaRole.SLAVE:
            leader = self.leaders.get(membership.master_epoch)
            followed, expected = membership.master_address, leader and self.address_of(leader)
            if followed != expected:
                what = f"{look.name} follows {followed} in term {membership.master_epoch}, expected its leader {expected}"
                raise Violation("G2", what)

    def begins_to_lead(self, look: Look, term: int) -> None:
        """Called when a leader begins. It need not have entries that leaders of later terms have committed, because the votes
        for it may have come late."""
        later = any(other > term for other in self.leaders)
        self.leaders[term] = look.name
        if look.raft.log_end() < self.committed.end and not later:
            what = f"{look.name} begins to lead term {term} with a log up to {look.raft.log_end()}"
            raise Violation("G5", f"{what}, committed is {self.committed.end}")

    def address_of(self, name: str) -> str:
        number = next(number for number, node in enumerate(self.nodes) if node.name == name)
        return f"{HOSTS[number]}:{BROKER_PORT}"

    def look_at_entries(self, look: Look, shown: int) -> None:
        """Check the entries that this process shows since the last look."""
        begin = look.raft.log_begin()
        position = max(self.seen.get(look.key, begin), begin)
        if position > self.committed.end and not self.committed.follows(position):
            raise Violation("G3", f"{look.name} begins at {position}, committed is {self.committed.end}")
        while position < shown:
            file = look.raft.data.file_at(position)
            entry = None if file is None else entry_in(file.view(), position, self.kind.segment_bytes)
            if file is None:
                raise Violation("G3", f"{look.name} shows up to {shown}, and has no file for {position}")
            if entry is None:
                position = self.committed.next_file(position)
                continue
            if entry.end > shown:
                raise Violation(
                    "G3", f"{look.name} shows up to {shown}, in the middle of the entry at {position}"
                )
            self.compare(look, entry)
            position = entry.end
        self.seen[look.key] = shown

    def compare(self, look: Look, entry: CommittedEntry) -> None:
        known = self.committed.at.get(entry.position)
        if known is None and entry.position < self.committed.end:
            raise Violation(
                "G3", f"{look.name} has an entry at {entry.position}, in the middle of a committed one"
            )
        if known is not None and known != entry:
            what = f"{look.name} shows entry {entry[:3]}, committed is {known[:3]} (position, index, term)"
            raise Violation("G3", what)
        holders = {number for number in range(len(self.nodes)) if self.on_disk(number, entry)}
        if look.number not in holders:
            raise Violation(
                "G4", f"{look.name} shows the entry at {entry.position}, which is not durable on its disk"
            )
        if known is None:
            if len(holders) < self.kind.quorum:
                what = f"{look.name} shows the entry at {entry.position}, durable on {sorted(holders)}"
                raise Violation("G4", f"{what}, expected {self.kind.quorum} members")
            self.committed.take(entry)

    def on_disk(self, number: int, entry: CommittedEntry) -> bool:
        """Whether the entry survives every power cut on this node."""
        file_bytes = self.kind.segment_bytes
        at = entry.position % file_bytes
        name = f"dledger-n{number}/data/{entry.position - at:020d}"
        data = self.nodes[number].disk.durable_part(name, at, at + HEADER.size + len(entry.body))
        if len(data) < HEADER.size:
            return False
        _, _, index, term, said, _, _, _, _ = HEADER.unpack_from(data)
        return CommittedEntry(said, index, term, data[HEADER.size :]) == entry

    # Queues

    def look_at_queues(self, look: Look) -> None:
        """Check the queue entries of this process since the last look. Raises Violation."""
        store, listed = look.app.store, self.listed.setdefault(look.key, {})
        for topic, queue_id in store.queues():
            end, known = store.max_queue_offset(topic, queue_id), listed.get((topic, queue_id), 0)
            listed[topic, queue_id] = end
            if end <= known:
                continue
            expected = self.committed.queues.get((topic, queue_id), [])
            first = max(known, store.min_queue_offset(topic, queue_id))
            if end > len(expected):
                what = (
                    f"{look.name} shows {end} messages of {topic} {queue_id}, committed are {len(expected)}"
                )
                raise Violation("G4", what)
            entries = store.entries(topic, queue_id, first, end - first)
            for at, (entry, wanted) in enumerate(zip(entries, expected[first:end], strict=False), first):
                if entry[:2] != wanted and (wanted[0] >= store.min_offset() or entry[1] != FILLER_SIZE):
                    what = f"{look.name} lists {topic} {queue_id} {at} as {entry[:2]}"
                    raise Violation("G1", f"{what}, committed is {wanted}")

    def all_listed(self, look: Look) -> None:
        """Check every queue to its end, at the end of a run. Raises Violation."""
        self.look_at_queues(look)
        for (topic, queue_id), expected in self.committed.queues.items():
            end = look.app.store.max_queue_offset(topic, queue_id)
            if end != len(expected):
                what = f"{look.name} ends {topic} {queue_id} at {end}, committed are {len(expected)}"
                raise Violation("G1", what)

    # Answers

    def acknowledges(self, look: Look, end: int, answer: dict[str, Any]) -> None:
        """A send whose last message ends at `end` gets the answer OK with these fields. A violation is kept in `broken`."""
        try:
            self._acknowledges(look, end, answer)
        except Violation as violation:
            self.broken = self.broken or violation

    def _acknowledges(self, look: Look, end: int, answer: dict[str, Any]) -> None:
        core = look.raft.core
        assert core is not None
        self.answered += 1
        if core.role is not RaftRole.LEADER or self.leaders.setdefault(core.term, look.name) != look.name:
            raise Violation("G2", f"{look.name} answers a send, and does not lead term {core.term}")
        self.look(look)
        if end > self.committed.end:
            raise Violation(
                "G4", f"{look.name} answers a send that ends at {end}, committed is {self.committed.end}"
            )
        if "msgId" not in answer:
            return  # this answer (to a hand-back) names no position
        for nth, message_id in enumerate(str(answer["msgId"]).split(",")):
            place = int(message_id[-16:], 16)
            found = self.committed.records.get(place)
            wanted = int(answer["queueId"]), int(answer["queueOffset"]) + nth
            seen = found and (found[0].queue_id, found[0].queue_offset)
            if found is not None and found[0].topic == SCHEDULE_TOPIC:  # the answer names the requested queue
                seen = wanted[0], found[0].queue_offset
            if seen != wanted:
                what = f"{look.name} answers that {wanted} is at {place}, where the committed message is"
                raise Violation("G1", f"{what} {found and found[0]}")
