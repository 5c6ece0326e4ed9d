"""Retention in some of the pairs. Master and slaves delete old segments, and an operator empties slaves that were left behind.

P5 deleted records are confirmed and old enough, and no connected slave that lags by less than the reserve still needs them"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from broker.app import BrokerApp
from ha.classic.mastership import PairMastership
from ha.service.haservice import HAService
from ha.slave.link import LeftBehind
from messagestore import record
from messagestore.log.commitlog import CommitLog
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

KEPT_S = (2, 5)
RESERVE_BYTES = (20_000, 1 << 20)
SEGMENT_BYTES = 16_384
INTERVAL_MS = 500
PATIENCE_MS = 2_000


class PairRetention:
    """The check of retention. `empty` kills and empties a slave, if that is possible now. `on` means that files are deleted in
    this seed."""

    def __init__(self, seed: int, nodes: list[Node], empty: Callable[[Node], bool], *, on: bool) -> None:
        chance = random.Random(f"{seed}/pair-retention")
        self.on = on
        self.kept_s = chance.choice(KEPT_S)
        self.reserve_bytes = chance.choice(RESERVE_BYTES)
        self.nodes = nodes
        self.violation: Violation | None = None
        self.deleted = 0
        self.left_behind = 0
        self._empty = empty
        self._behind_since_ms: dict[str, int] = {}

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
            apps = ((node.name, node.app) for node in self.nodes)
            name, app = next(
                (name, app) for name, app in apps if isinstance(app, BrokerApp) and app.store._log is log
            )
            try:
                self.judge(name, app, offset)
            except Violation as violation:
                self.violation = self.violation or violation
            begin_at(log, offset)
            self.deleted += 1

        with patch.object(CommitLog, "begin_at", watched_begin_at):
            yield

    def judge(self, name: str, app: BrokerApp, offset: int) -> None:
        """Check that the log of `app` may begin at `offset` now. Raises Violation."""
        store = app.store
        if offset > store.confirm_offset():
            raise Violation("P5", f"{name} deletes up to {offset}, confirmed is {store.confirm_offset()}")
        view, start = store._log.segment_view(offset)
        if record.store_timestamp(view, offset - start) + self.kept_s * 1000 > store._clock.now_ms():
            raise Violation(
                "P5", f"{name} deletes up to {offset}, of which some records are younger than {self.kept_s} s"
            )
        assert isinstance(app.ha, HAService)
        end = app.ha._end
        for connection in end.connections if isinstance(end, PairMastership) else ():
            held = connection.link.ack_offset
            if 0 < held < offset and store.max_offset() - held <= self.reserve_bytes:
                raise Violation("P5", f"{name} deletes up to {offset}, {connection.address} reads at {held}")

    def next_step(self, now_ms: int) -> None:
        """Empty slaves that were left behind. Raises Violation."""
        if self.violation is not None:
            raise self.violation
        for node in self.nodes if self.on else ():
            app = node.app
            if not isinstance(app, BrokerApp) or not isinstance(app.ha.stays_out, LeftBehind):
                self._behind_since_ms.pop(node.name, None)
            elif now_ms - self._behind_since_ms.setdefault(node.name, now_ms) > PATIENCE_MS and self._empty(
                node
            ):
                del self._behind_since_ms[node.name]
                self.left_behind += 1

    def stop(self) -> None:
        """Stop deletion, so that the rest can be compared."""
        for node in self.nodes:
            if isinstance(node.app, BrokerApp):
                node.app.settings.file_reserved_seconds = 10**6
