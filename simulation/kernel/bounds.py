"""Checks that a process's open files, connections, tables, tasks and timers stay within limits. The limits are computed from
the sizes of its world.

Invariant: a limit follows from the world's history (hosts, files on the disk, requested names), never from the product's own
bounds; only sizes are read from the product.

N1 a process has each file open once, and a deleted file not for long · N2 a process has few connections with each host · N3
tables are no larger than the requests and files of the world explain, and a request waits no longer than its sender does · N4
there are no more tasks and timers than the world's hosts and requests explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from accesscontrol import audit
from mqruntime import repeatedfailures
from simulation.kernel.census import sizes
from simulation.kernel.node import Node
from simulation.kernel.process import Process
from simulation.kernel.world import World

PACKAGES = frozenset(
    {
        "accesscontrol",
        "broker",
        "controller",
        "dledger",
        "epochfile",
        "ha",
        "messagestore",
        "mqclient",
        "mqruntime",
        "namesrv",
        "raftstore",
        "remoting",
    }
)
GONE_MS_MAX = 60_000
"""How long a deleted file may stay open, because it is still read or the disk hangs."""
TABLES_EACH = 4
"""One of this many looks also checks tables, which needs a walk through all objects of a process."""
LINKS_MAX = 24
"""Connections of one process between two hosts. Each host connects to the other for the log, the tables and forwarded
requests."""
LINKS_IDLE_MAX = 8
"""The same for a process whose ports the world does not list."""
LOST_MS_MAX = 130_000
"""How long a server keeps a connection that the other host has lost silently, for example in a power cut: 120 s of silence,
and two sweeps of 5 s."""
LOOPS_MAX = 32
"""Limit of tasks, and of timers, of a process that gets no requests."""
IN_FLIGHT_MAX = 600
"""Requests that wait for their answers at one moment: a burst, and the requests that it causes."""
SETTLED = frozenset(
    {
        "AccessGuard._table",
        "PeerTransport.calls",
        "DelayDelivery._levels_ms",
        "DelayDelivery._sightings",
        "Histogram.counts",
        "PeerAuthenticator.refused",
        "PolicyEntryInfo.actions",
        "PolicyEntryInfo.source_ips",
        "Rates._samples",
        "RemotingCommand.ext",
        "Router.batch_handlers",
        "Router.handlers",
        "RowChanges._ends",
        "RowChanges._ends[]",
        "TagCodes._levels_ms",
        "Topics._system",
    }
)
"""Tables whose size neither time nor requests can change."""
IN_FLIGHT = frozenset(
    {
        "PeerTransport.answers",
        "DelayDelivery._in_flight",
        "DelayDelivery._marks",
        "SyncQueue._log_starts",
        "SyncQueue._waiting",
        "RequestDispatcher._running",
        "Dispatcher.known",
        "ForwardLink._carried",
        "Forwarding._waiting",
        "HeldPulls._by_queue",
        "HeldPulls._deadlines",
        "MasterLink._sent_marks",
        "Peer._pending",
        "Peer._waiting",
        "PendingReads._asked",
        "PendingSends._sends",
        "Proposals._waiting",
        "Reads._waiting",
        "Tasks._tasks",
    }
)
"""Tables of requests that wait for an answer, a sync or their time."""
DEADLINES = "Deadlines._heap"
"""Tables of deadlines. Answered requests stay in them until as many wait, or for some seconds."""
REPORTS = {
    "RepeatedFailures._logged_ms": repeatedfailures.KEPT_MAX,
    "AuditLog._kinds_of[]": 1 + audit.OF_ONE_HOST_MAX,
}
"""Tables of reasons, which others choose."""
LINKS = frozenset({"Connections.peers", "Mastership._connections", "Gate._links", "Gate._newcomers"})
LINKS_OLD = 3
"""Former connections of each link whose end was not noticed yet."""
IDLE_MAX = 12
"""Limit of former connections, in addition to one for each host, when only brokers and controllers send requests."""


class Ports(NamedTuple):
    """The ports over which hosts of the cluster are connected with each other all the time, even if nobody sends requests: port
    -> how many connections a host has with one other host. Former connections, which the other host has lost, stay for
    LOST_MS_MAX. On a `single` port, where a host has one connection at a time, each loss leaves one."""

    links: Mapping[int, int]
    single: int

    @property
    def links_max(self) -> int:
        """Limit of connections with one host, counting both directions."""
        return 2 * sum(self.links.values())


Numbers = Mapping[str, int]
"""Class.attribute -> how many items a table of that name may hold at this moment of the world."""


@dataclass
class Bounds:
    """The limits of the processes of `nodes`. `found(rule, what)` makes the error that is raised."""

    world: World
    nodes: list[Node]
    found: Callable[[str, str], Exception]
    ports: Ports | None = None
    gone_since_ms: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """(node, incarnation, path) -> since when a deleted file is open."""
    looks: int = 0

    def look(self, expected: Callable[[Node], Numbers], *, idle: bool = False) -> None:
        """Check all limits. `idle` means that no requests were sent for a while and that no fault is on."""
        with_tables = idle or self.looks % TABLES_EACH == 0
        self.looks += 1
        timers = self.world.loop.timers_by_process()
        for node in self.nodes:
            if node.app is None or node.process is None:
                continue
            self._files(node, idle=idle)
            self._connections(node, idle=idle)
            if with_tables:
                self._tables(node, expected(node), idle=idle)
            most = LOOPS_MAX + (0 if idle else IN_FLIGHT_MAX)
            for what, count in (("tasks", len(node.process.pending())), ("timers", timers[node.process])):
                self._expect("N4", count <= most, f"{node.name} has {count} {what}, allowed are {most}")

    def _files(self, node: Node, *, idle: bool) -> None:
        names, gone = Counter[str](), dict[tuple[str, int, str], int]()
        for path, exists in node.disk.open_names():
            names[path] += exists
            if not exists:
                key = node.name, node.incarnation, path
                gone[key] = self.gone_since_ms.get(key, self.world.now_ms)
                open_ms = self.world.now_ms - gone[key]
                what = f"{node.name} has {path} open, which is gone since {open_ms} ms"
                self._expect("N1", not idle and open_ms <= GONE_MS_MAX, what)
        for path, count in names.items():
            self._expect("N1", count <= 1, f"{node.name} has {path} open {count} times, expected once")
        self.gone_since_ms = {
            key: since for key, since in self.gone_since_ms.items() if key[0] != node.name
        } | gone

    def _connections(self, node: Node, *, idle: bool) -> None:
        assert node.process is not None
        if idle and self.ports is not None:
            self._links(node, node.process, self.ports)
            return
        by_host = Counter(
            link.host for link in self.world.network.open_of(node.process) if idle or link.lost_us is None
        )
        for host, count in by_host.items():
            most = LINKS_IDLE_MAX if idle else LINKS_MAX
            self._expect(
                "N2", count <= most, f"{node.name} has {count} connections with {host}, allowed are {most}"
            )

    def _links(self, node: Node, process: Process, ports: Ports) -> None:
        hosts = {each.host for each in self.nodes}
        mutual, formers = Counter[str](), Counter[tuple[str, int]]()
        for link in self.world.network.open_of(process):
            if link.lost_us is not None:
                lost_ms = self.world.now_ms - link.lost_us // 1000
                what = f"{node.name} keeps a connection of port {link.port}, which {link.host} lost {lost_ms} ms ago"
                self._expect("N2", lost_ms <= LOST_MS_MAX, what)
                formers[link.host, link.lost_us] += link.port == ports.single
            else:
                mutual[link.host] += 1
        for (host, lost_us), count in formers.items():
            what = f"{node.name} keeps {count} connections on port {ports.single}, lost by {host} at {lost_us} us"
            self._expect("N2", count <= 1, what)
        for host, count in mutual.items():
            most = ports.links_max if host in hosts else LINKS_IDLE_MAX
            self._expect(
                "N2", count <= most, f"{node.name} has {count} connections with {host}, allowed are {most}"
            )

    def _tables(self, node: Node, expected: Numbers, *, idle: bool) -> None:
        hosts = len(self.world.nodes)
        for name, size in sizes(node.app, PACKAGES).items():
            if name in SETTLED or "Settings." in name:
                continue
            if name == DEADLINES:
                most = IN_FLIGHT_MAX + hosts
            elif name.removesuffix("[]") in IN_FLIGHT:
                most = IDLE_MAX + hosts if idle else IN_FLIGHT_MAX + hosts
            elif name in REPORTS:
                most = REPORTS[name]
            else:
                passing = 0 if idle else IN_FLIGHT_MAX
                most = expected.get(name, LINKS_OLD * hosts if name in LINKS else hosts + passing)
            self._expect("N3", size <= most, f"{node.name} keeps {size} in {name}, allowed are {most}")

    def _expect(self, rule: str, holds: bool, what: str) -> None:
        if not holds:
            raise self.found(rule, what)
