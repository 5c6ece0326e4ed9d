"""Limits of the tables of a simulated cluster.

Invariant: the rules N1 to N4 of simulation.kernel.bounds hold. Limits are computed from the requests, the granted broker ids
and the files on disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from messagestore.dispatch.savedqueues import BOUNDARIES_MAX
from simulation.cluster.machines import Machines
from simulation.cluster.members import QUEUES_OF
from simulation.faults import hostiletables
from simulation.kernel.bounds import Bounds, Numbers
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.workloads import accessclients, choosers, committers, groupmembers, handlers
from simulation.workloads.dealers import NAME, TOPICS

LOOK_MS = 10_000
NAMES_EACH = 3
"""A group has a retry topic and a dead letter topic."""
NAMES_OF_THEIR_OWN = 16
"""Topics and groups that brokers and clients make themselves: upstream's, the retry topics, the consumers."""
ROWS_EACH = 4
"""Rows for a name or a queue: the row itself, its deletion, its lock, and a row that is gone."""
HISTORIES_EACH = 3
"""Histories for a topic: messages to it, deliveries to a group, and messages that the group gave back."""
DELAY_LEVELS = 18
"""Of `messageDelayLevel` as shipped."""
ELECTIONS_KEPT = 10
"""Elections kept of each set, as many as upstream's tools show."""
ENTRIES_IN_MEMORY = 2_000
"""Entries of the controllers' log in memory: all entries of a run of this length."""


class ClusterBounds:
    """Checks the limits every LOOK_MS, and remembers every broker that was granted an id."""

    def __init__(self, machines: Machines, deals: Callable[[], int], users: Callable[[], int]) -> None:
        """`deals()` is how many transactions began, `users()` how many users were ever requested."""
        self.machines = machines
        self.deals = deals
        self.users = users
        self.bounds = Bounds(machines.world, [*machines.servers, machines.namesrv], Violation)
        self.due_ms = LOOK_MS
        self.ids: set[int] = set()

    def look(self) -> None:
        """Raises Violation N1 to N4."""
        for controller in self.machines.controller_looks():
            self.ids |= controller.known_ids
        if self.machines.world.now_ms >= self.due_ms:
            self.due_ms = self.machines.world.now_ms + LOOK_MS
            self.bounds.look(self.expected)

    def at_the_end(self) -> None:
        """Check when nobody has sent anything for a while and the cluster is whole."""
        self.bounds.look(self.expected, idle=True)

    def expected(self, node: Node) -> Numbers:
        files = node.disk.entries
        segments = sum(path.startswith("commitlog/") for path in files)
        indexes = sum(path.startswith("index/") for path in files)
        of_queues = Counter(path.rpartition("/")[0] for path in files if path.startswith("consumequeue/"))
        names = NAMES_EACH * len(self.machines.facts.all) + len(QUEUES_OF) + NAMES_OF_THEIR_OWN
        if self.machines.done[NAME]:
            names += len(TOPICS)
        if self.machines.done[choosers.NAME]:
            names += choosers.NAMES
        if self.machines.done[handlers.NAME]:
            names += len(handlers.TOPICS)
        if self.machines.done[groupmembers.NAME]:
            names += len(groupmembers.TOPICS)
        if self.machines.done[committers.NAME]:
            names += committers.NAMES
        users = self.users()
        if users:
            names += accessclients.NAMES
        if self.machines.done[hostiletables.NAME]:
            names += hostiletables.NAMES
        queues = names + sum(QUEUES_OF.values())
        rows = ROWS_EACH * (names + queues + users)
        ids = max(self.ids, default=0) + len(self.machines.servers)
        return {
            "CommitLog._files": segments,
            "CommitLog._leaving": segments + 1,
            "IndexTable._files": indexes + 1,  # one may be on its way from the disk
            "IndexTable._unsynced": indexes + 1,
            "IndexTable._prefixes": names + queues,  # of a topic, and of the beginning of a key
            "ConsumeQueue._files[]": segments,
            "ConsumeQueue._files": 1 + max(of_queues.values(), default=0),
            "ConsumeQueue._names": 1 + max(of_queues.values(), default=0),
            "Appender._next_offsets": queues,
            "QueueEndsTable._ends": queues,
            "OpenQueues._queues": queues,
            "QueueTable._queues": queues,
            "QueueTable._assigned_ends": queues,
            "SavedQueues._boundaries": BOUNDARIES_MAX,
            "QueueTable._kept_ends": queues,
            "Walked.next_offsets": queues,
            "Topics._table": names,
            "Totals.stored": names,
            "Totals.sizes": names,
            "Totals.found": names,
            "Totals.sent_back": names,
            "RecentTotals._histories": HISTORIES_EACH * names,
            "Tables._emptied": names,
            "Tables._unwritten": rows,
            "RowChanges._places": rows,
            "RowChanges._unnamed": rows,
            "RowChanges._gone": rows,
            "RowChanges._beside": names,
            "Deletions._table": names,
            "Outcomes._outcomes": self.deals(),
            "QueueTable._lives": names,
            "RouteTable.topics": names,
            "SubscriptionGroupWrapper.subscription_group_table": names,
            "ConsumerOffsetWrapper.offset_table": names,
            "DelayOffsetWrapper.offset_table": DELAY_LEVELS,
            "Admittance._table": ids,
            "Heartbeats._entries": ids,
            "Heartbeats._of_connection": ids,
            "Heartbeats._spoken": ids,
            "Holdings._of": ids,
            "Holdings._of_set[]": ids,
            "Replicas.by_id": ids,
            "ElectionHistory._elections[]": ELECTIONS_KEPT,
            "ElectionHistory._saved[]": ELECTIONS_KEPT,
            "RaftLog._recent": ENTRIES_IN_MEMORY,
            **accessclients.sizes(users, len(self.machines.world.nodes)),
        }
