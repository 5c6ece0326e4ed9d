"""What a process of a world may hold: open files, connections, tables, tasks and timers, by the numbers of the world.

Invariant: what it may hold follows from what the world has seen (hosts, files on the disk, names that were asked for), never
from the product's own bounds; sizes alone are read from the product.

N1 a process has each file open once, and none for long that is gone from the disk · N2 it has few connections with each host ·
N3 no table of it is larger than the world gives cause for; what waits for an answer is gone once nobody asks · N4 nor are its
tasks and timers more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.kernel.census import sizes
from simulation.kernel.node import Node
from simulation.kernel.process import Process
from simulation.kernel.world import World

PACKAGES = frozenset(
    {
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
"""So long a deleted file may stay open: somebody reads it, or the disk hangs."""
TABLES_EACH = 4
"""Of so many looks one is at tables, too: it walks through all that a process keeps."""
LINKS_MAX = 24
"""Between two hosts, of one process: each dials the other for its log, for its tables and for what it passes on; besides there
are those that a host has lost and the other has not missed yet."""
LINKS_IDLE_MAX = 8
"""Of a process of whose ports the world says nothing."""
LOST_MS_MAX = 130_000
"""So long a server keeps a connection that the other host has lost without a word, as one that lost power: 120 s of silence,
two sweeps of 5 s."""
LOOPS_MAX = 32
"""Tasks, and timers, of a process that nobody asks anything."""
IN_FLIGHT_MAX = 600
"""Requests of one moment that wait for their answers: a burst, and what it sets in motion."""
SETTLED = frozenset(
    {
        "PeerTransport.calls",
        "DelayDelivery._levels_ms",
        "DelayDelivery._sightings",
        "Histogram.counts",
        "PeerAuthenticator.refused",
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
"""Of a size that neither time nor anybody who asks can change."""
IN_FLIGHT = frozenset(
    {
        "PeerTransport.answers",
        "DelayDelivery._in_flight",
        "DelayDelivery._marks",
        "SyncQueue._beginnings",
        "SyncQueue._waiting",
        "Dispatcher._running",
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
"""What waits for an answer, a sync or its time."""
DEADLINES = "Deadlines._heap"
"""What is answered stays there until as many wait, or for some seconds."""
LINKS = frozenset({"Connections.peers", "Mastership._connections", "Gate._links", "Gate._newcomers"})
LINKS_OLD = 3
"""Of each link there may be former ones whose end nobody has told yet."""
IDLE_MAX = 12
"""Of those, besides one of each host, once nobody asks anything but brokers of each other and of controllers."""


class Ports(NamedTuple):
    """Where hosts that are each other's neighbours meet once nobody asks anything but they each other: port -> how many
    connections each has with another's. Former ones, which the other host has lost, stay for LOST_MS_MAX: on a `single` one,
    where a host has one connection at a time, one of each loss."""

    links: Mapping[int, int]
    single: int

    @property
    def links_max(self) -> int:
        """With one host, of those that it has, too: from here to there, and from there to here."""
        return 2 * sum(self.links.values())


Numbers = Mapping[str, int]
"""Class.attribute -> how many a table of that name may hold, as the world has it at this moment."""


@dataclass
class Bounds:
    """Of the processes of `nodes`. `found` makes what is raised of a rule and words."""

    world: World
    nodes: list[Node]
    found: Callable[[str, str], Exception]
    ports: Ports | None = None
    gone_since_ms: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """(node, incarnation, path) -> since when a file is open that is gone."""
    looks: int = 0

    def look(self, expected: Callable[[Node], Numbers], *, idle: bool = False) -> None:
        """`idle`: nobody has asked anything for a while, and all is whole."""
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
                self._expect("N4", count <= most, f"{node.name} has {count} {what}")

    def _files(self, node: Node, *, idle: bool) -> None:
        names, gone = Counter[str](), dict[tuple[str, int, str], int]()
        for path, stands in node.disk.open_names():
            names[path] += stands
            if not stands:
                key = node.name, node.incarnation, path
                gone[key] = self.gone_since_ms.get(key, self.world.now_ms)
                open_ms = self.world.now_ms - gone[key]
                told = f"{node.name} has {path} open, which is gone since {open_ms} ms"
                self._expect("N1", not idle and open_ms <= GONE_MS_MAX, told)
        for path, count in names.items():
            self._expect("N1", count <= 1, f"{node.name} has {path} open {count} times")
        self.gone_since_ms = {
            key: since for key, since in self.gone_since_ms.items() if key[0] != node.name
        } | gone

    def _connections(self, node: Node, *, idle: bool) -> None:
        assert node.process is not None
        if idle and self.ports is not None:
            self._links(node, node.process, self.ports)
            return
        for host, count in self.world.network.open_by_host(node.process).items():
            most = LINKS_IDLE_MAX if idle else LINKS_MAX
            self._expect("N2", count <= most, f"{node.name} has {count} connections with {host}")

    def _links(self, node: Node, process: Process, ports: Ports) -> None:
        hosts = {each.host for each in self.nodes}
        mutual, formers = Counter[str](), Counter[tuple[str, int]]()
        for link in self.world.network.open_of(process):
            if link.lost_us is not None:
                lost_ms = self.world.now_ms - link.lost_us // 1000
                told = f"{node.name} keeps a connection of port {link.port}, which {link.host} lost {lost_ms} ms ago"
                self._expect("N2", lost_ms <= LOST_MS_MAX, told)
                formers[link.host, link.lost_us] += link.port == ports.single
            else:
                mutual[link.host] += 1
        for (host, lost_us), count in formers.items():
            told = f"{node.name} keeps {count} connections on port {ports.single} which {host} lost at {lost_us} us"
            self._expect("N2", count <= 1, told)
        for host, count in mutual.items():
            most = ports.links_max if host in hosts else LINKS_IDLE_MAX
            self._expect("N2", count <= most, f"{node.name} has {count} connections with {host}")

    def _tables(self, node: Node, expected: Numbers, *, idle: bool) -> None:
        hosts = len(self.world.nodes)
        for name, size in sizes(node.app, PACKAGES).items():
            if name in SETTLED or "Settings." in name:
                continue
            if name == DEADLINES:
                most = IN_FLIGHT_MAX + hosts
            elif name.removesuffix("[]") in IN_FLIGHT:
                most = IDLE_MAX + hosts if idle else IN_FLIGHT_MAX + hosts
            else:
                passing = 0 if idle else IN_FLIGHT_MAX
                most = expected.get(name, LINKS_OLD * hosts if name in LINKS else hosts + passing)
            self._expect("N3", size <= most, f"{node.name} keeps {size} in {name}, {most} are accounted for")

    def _expect(self, rule: str, holds: bool, what: str) -> None:
        if not holds:
            raise self.found(rule, what)
