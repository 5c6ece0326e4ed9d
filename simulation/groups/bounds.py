"""Limits of the tables of a simulated Raft-mode set.

Invariant: the rules N1 to N4 of simulation.kernel.bounds hold. Limits are computed from the requests and the files on disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from messagestore.dispatch.savedqueues import BOUNDARIES_MAX
from simulation.groups.clients import QUEUES_OF
from simulation.groups.members import BROKER_PORT, RAFT_PORT
from simulation.kernel.bounds import Bounds, Numbers, Ports
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads import accessclients
from simulation.workloads.administration import VALUE_MAX
from simulation.workloads.dealers import TOPICS

LOOK_MS = 10_000
PORTS = Ports(links={RAFT_PORT: 1, BROKER_PORT: 2}, single=RAFT_PORT)
"""Connections between two members, counting both directions: six. Each member has one for Raft, which followers use with each
other to ask for tables, and two to the broker port, for tables and for forwarded requests."""
NAMES_OF_THEIR_OWN = 16
"""Topics and groups that brokers and clients make themselves."""
KINDS_OF_CALLS = 16
SPOKEN_ON = 3
"""Connections on which a member names itself: the present one, and earlier ones on which it did so within the last second. The
member has ended those before them."""
DEAD_LINKS = 6
"""Former connections of each host that lost power, alone or with all others. No peer has noticed their end yet."""
NOTES_OF_A_MOMENT = 2 * 1_000 // 50 + 2
"""Notes of commit indexes by time: two in 50 ms, kept for a second and until the next."""
ENTRIES_IN_MEMORY = 4_000
"""Entries of the log in memory: all entries of a run of this length."""

WALKS_ENDED = 16
"""Walks over the log that have ended, with and without check values."""
ROWS_EACH = 4
"""Rows for a name or a queue: the row itself, its deletion, its lock, and a row that is gone."""
HISTORIES_EACH = 3
"""Histories for a topic: messages to it, deliveries to a group, and messages that the group gave back."""


class GroupBounds:
    """Checks the limits every LOOK_MS."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        names: Callable[[], int],
        *,
        deals: Callable[[], int],
        has_deals: bool,
        users: Callable[[], int],
    ) -> None:
        """`names()` is how many names administrators requested, including retry topics of groups. `deals()` is how many
        transactions began, and `users()` how many users were ever requested."""
        self.world = world
        self.names = names
        self.deals = deals
        self.users = users
        self.own_names = NAMES_OF_THEIR_OWN + (len(TOPICS) if has_deals else 0)
        self.bounds = Bounds(world, list(nodes), Violation, PORTS)
        self.due_ms = LOOK_MS

    def look(self) -> None:
        """Raises Violation N1 to N4."""
        if self.world.now_ms >= self.due_ms:
            self.due_ms = self.world.now_ms + LOOK_MS
            self.bounds.look(self.expected)

    def at_the_end(self) -> None:
        """Check when nobody has sent anything for a while and the set is whole."""
        self.bounds.look(self.expected, idle=True)

    def expected(self, node: Node) -> Numbers:
        files = node.disk.entries
        ledger = sum(path.startswith("dledger-") for path in files)
        indexes = sum(path.startswith("index/") for path in files)
        of_queues = Counter(path.rpartition("/")[0] for path in files if path.startswith("consumequeue/"))
        asked = self.names()
        users = self.users()
        names = len(QUEUES_OF) + self.own_names + asked + (accessclients.NAMES if users else 0)
        queues = names + sum(QUEUES_OF.values()) + asked * VALUE_MAX
        rows = ROWS_EACH * (names + queues + users)
        return {
            "FileList.files": ledger,
            "FileList.dirty": ledger,
            "IndexTable._files": indexes + 1,  # one may be on its way from the disk
            "IndexTable._unsynced": indexes + 1,
            "Connections.peers": DEAD_LINKS * len(self.world.nodes),
            "PeerTransport.calls_max": KINDS_OF_CALLS,
            "PeerTransport.inbound[]": SPOKEN_ON,
            "IndexTable._prefixes": names + queues,
            "EntryDispatcher._logged_skips": queues,
            "ConsumeQueue._files[]": 1 + max(of_queues.values(), default=0),
            "ConsumeQueue._files": 1 + max(of_queues.values(), default=0),
            "ConsumeQueue._names": 1 + max(of_queues.values(), default=0),
            "Appender._next_offsets": queues,
            "QueueEndsTable._ends": queues,
            "QueueTable._queues": queues,
            "QueueTable._assigned_ends": queues,
            "SavedQueues._boundaries": BOUNDARIES_MAX,
            "QueueTable._kept_ends": queues,
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
            "QueueTable._lives": names,
            "RouteTable.topics": names,
            "SubscriptionGroupWrapper.subscription_group_table": names,
            "ConsumerOffsetWrapper.offset_table": names,
            "RecentCommits._notes": NOTES_OF_A_MOMENT,
            "Outcomes._outcomes": self.deals(),
            "RaftLog._recent": ENTRIES_IN_MEMORY,
            "PositionTracker._ends": ENTRIES_IN_MEMORY,
            "Chain._ends": WALKS_ENDED,
            **accessclients.sizes(users, len(self.world.nodes)),
        }
