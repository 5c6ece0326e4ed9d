"""Retention in one run, with small segments that are kept for seconds. This module checks that only permitted segments are
deleted. As an operator it empties a replica that needs segments which no other replica has any more (it is left behind).

Invariant D: when a log's beginning moves up, the deleted records are confirmed, covered by the checkpoint on disk, and old
enough. No connected slave that lags by less than the reserve still needs them, and none is an undelivered delayed message.
Queues begin within the log. The checks know all confirmed bytes, so they judge deleted records like records that can still be
read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from broker.app import BrokerApp
from ha.master.link import MasterState
from ha.slave.link import LeftBehind
from messagestore import record
from messagestore.log.commitlog import CommitLog
from messagestore.queues.consumequeue import is_filler
from messagestore.systemtopics import SCHEDULE_TOPIC
from simulation.checkers.damagedstores import vouched_end
from simulation.cluster.looks import BrokerLook
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

SEGMENT_BYTES = 16_384
KEPT_S = (3, 10, 30)
KEPT_OTHERWISE_MS = 72 * 3_600_000
"""The default of fileReservedTime."""
RESERVE_BYTES = (1 << 40, 1 << 40, 5 * SEGMENT_BYTES)
INTERVAL_MS = 300
PATIENCE_MS = 5_000  # of the operator


class Retention(Fault):
    """The retention of one run. It is `on` only in seeds that may lose no acknowledged record, so that all deleted records can
    be judged."""

    name = "left behind by retention"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/retention")
        self.on = on
        self.kept_s = self.random.choice(KEPT_S)
        self.reserve_bytes = self.random.choice(RESERVE_BYTES)
        self.violation: Violation | None = None
        self.behind_since_ms: dict[str, int] = {}
        self.deleted = 0

    @property
    def nodes(self) -> list[Node]:
        return [*self.machines.brokers, *self.machines.learners]

    @property
    def kept_ms(self) -> int:
        return self.kept_s * 1000 if self.on else KEPT_OTHERWISE_MS

    def settings(self) -> dict[str, object]:
        """Additional settings of brokers."""
        if not self.on:
            return {}
        return {
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            "fileReservedSeconds": self.kept_s,
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": INTERVAL_MS,
            "slaveCatchupReserveBytes": self.reserve_bytes,
        }

    @contextmanager
    def watched(self) -> Iterator[None]:
        begin_at = CommitLog.begin_at

        def watched_begin_at(log: CommitLog, offset: int) -> None:
            node, app = self.broker_of(log)
            try:
                self.judge(node, app, offset)
            except Violation as violation:
                self.violation = self.violation or violation
            begin_at(log, offset)
            self.deleted += 1

        with patch.object(CommitLog, "begin_at", watched_begin_at):
            yield

    def broker_of(self, log: CommitLog) -> tuple[Node, BrokerApp]:
        """The broker of this disk. It need not be a member of the set: copies of brokers delete segments of their own disks,
        too."""
        for node in self.world.nodes.values():
            if isinstance(node.app, BrokerApp) and node.app.store._log is log:
                return node, node.app
        raise AssertionError("a log without a broker")

    def judge(self, node: Node, app: BrokerApp, offset: int) -> None:
        """Check that the log of `app` may begin at `offset` now. Raises Violation."""
        store, name = app.store, node.name
        if offset > store.confirm_offset():
            raise Violation("D", f"{name} deletes up to {offset}, confirmed is {store.confirm_offset()}")
        if offset > vouched_end(node):
            raise Violation("D", f"{name} deletes up to {offset}, its checkpoint covers {vouched_end(node)}")
        known = self.machines.check.confirmed  # not read from this disk, where bits may have flipped
        view, start = (known, 0) if offset < len(known) else store._log.segment_view(offset)
        stored_ms = record.store_timestamp(view, offset - start)
        if stored_ms + self.kept_s * 1000 > store._clock.now_ms() + self.machines.spread_ms:
            age_ms = store._clock.now_ms() - stored_ms
            what = f"{name} deletes up to {offset}, the record there is {age_ms} ms old"
            raise Violation(
                "D", f"{what}, expected {self.kept_s} s, less {self.machines.spread_ms} ms of skew"
            )
        mastership = app.ha.mastership
        for connection in mastership.connections if mastership is not None else ():
            link = connection.link
            within = store.max_offset() - link.ack_offset <= self.reserve_bytes
            if link.state is MasterState.SENDING and link.ack_offset < offset and within:
                raise Violation(
                    "D",
                    f"{name} deletes up to {offset}, broker {connection.slave_broker_id} reads at {link.ack_offset}",
                )
        for level in range(1, 19):
            first = app.tables.delays.next_offset(level)
            for entry in store.entries(SCHEDULE_TOPIC, level - 1, first, 1):
                if entry.physical_offset < offset:
                    raise Violation(
                        "D", f"{name} deletes up to {offset}, level {level} waits at {entry.physical_offset}"
                    )

    def next_step(self) -> None:
        """Empty a replica that was left behind once it is no longer electable. Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self.on:
            return
        looks = self.machines.broker_looks()
        for look in looks:
            self.look_at_queues(look)
        master = self.machines.master()
        begins = next((look.store.min_offset() for look in looks if master and look.name == master.name), 0)
        flipped = self.machines.damaged.flipped
        for node in self.nodes:
            if node.name in flipped and flipped[node.name].offset < begins:
                flipped.pop(node.name).flip(node)  # this slow clock may keep the only copy
        for look in looks:
            if not isinstance(look.stays_out, LeftBehind):
                self.behind_since_ms.pop(look.name, None)
                continue
            since_ms = self.behind_since_ms.setdefault(look.name, self.world.now_ms)
            node = self.world.nodes[look.name]
            may_go = look.broker_id is not None and look.name not in self.machines.losing
            if (
                may_go
                and look.broker_id not in self.machines.check.electable
                and self.world.now_ms - since_ms > PATIENCE_MS
            ):
                del self.behind_since_ms[look.name]
                assert look.broker_id is not None
                self.machines.kill(node)
                self.machines.losing[look.name] = look.broker_id, node.disk.wipe
                self.count()

    def look_at_queues(self, look: BrokerLook) -> None:
        """Check that queues begin where the log begins. Raises Violation."""
        for topic, queue_id in look.store.queues():
            first = look.store.min_queue_offset(topic, queue_id)
            for entry in look.store.entries(topic, queue_id, first, 1):
                if not is_filler(entry) and entry.physical_offset < look.store.min_offset():
                    raise Violation(
                        "D",
                        f"{look.name}: {topic}/{queue_id} begins at {first}, whose record is below the log's begin",
                    )

    def stop(self) -> None:
        """Stop deletion, so that the rest can be compared."""
        for node in self.nodes:
            if isinstance(node.app, BrokerApp):
                node.app.settings.file_reserved_seconds = 10**6
