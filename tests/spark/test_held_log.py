"""A Spark job with a lease on its log: retention keeps the leased files and deletes them after the job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.retention.leases import Leases
from messagestore.leases import FOLDER
from messagestore.log.retention import HOUR_MS, Moment, RetentionHold, decide
from messagestore.store.messagestore import MessageStore
from mqruntime.realruntime import real_runtime
from scripts.peers.waits import WAIT_S
from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.store.hold import wall_ms
from tests.unit.messagestore.storehelp import message, not_expected, small_settings
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]
SEGMENT_BYTES = 4096
SETTINGS = small_settings(mapped_file_size_commit_log=SEGMENT_BYTES, message_index_enable=False)
COUNT = 120


class Retention:
    """A store in its own thread that repeatedly deletes all files without a lease once `may_delete` is
    set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.offsets: list[int] = []
        self.min_offset = 0
        self.held_by = ""
        self.stored, self.may_delete, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.looked = threading.Condition()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        runtime = real_runtime(self.root)
        store = MessageStore(runtime, SETTINGS, on_fatal=not_expected)
        await store.start()
        await store.become_master()
        sent = store.append([message(bytes([number]) * 300) for number in range(COUNT)])
        self.offsets = [each.physical_offset for each in sent]
        await store.flush()
        store.set_confirm_offset(store.max_offset())
        while store.vouched_offset() < store.max_offset():  # noqa: ASYNC110 - the next checkpoint says so
            await asyncio.sleep(0.01)
        self.stored.set()
        while not self.ended.is_set():
            await asyncio.sleep(0.01)
            if self.may_delete.is_set():
                await self._clean(store, Leases(runtime.files))
        await store.stop()

    async def _clean(self, store: MessageStore, leases: Leases) -> None:
        rules = replace(SETTINGS.retention, reserved_ms=0)
        moment = Moment(wall_ms() + HOUR_MS, 0, 0.0, asked=True)
        segments = await store.oldest_segments(rules.segments_max)
        if not segments:
            return
        holds = [*await leases.holds(wall_ms()), RetentionHold(store.vouched_offset(), "not vouched for")]
        decision = decide(segments, holds, moment, rules)
        await store.begin_at(decision.end, lambda: True)
        with self.looked:
            self.min_offset = store.min_offset()
            self.held_by = decision.held.why if decision.held else ""
            self.looked.notify_all()

    def until(self, met: Callable[[], bool]) -> None:
        with self.looked:
            assert self.looked.wait_for(met, WAIT_S), (self.min_offset, self.held_by)


@contextmanager
def running(root: Path) -> Iterator[Retention]:
    retention = Retention(root)
    thread = threading.Thread(target=retention.run)
    thread.start()
    try:
        assert retention.stored.wait(WAIT_S)
        StoreFolder(root).write_epochs(((1, 0),))
        yield retention
    finally:
        retention.ended.set()
        thread.join()


def planned(spark: Any, root: Path, start: int, **options: str) -> Any:
    """Planned partitions that are not read yet."""
    reader = spark.read.format("rocketmq").options(splitBytes="4k", startingOffsets=str(start), **options)
    rows = reader.load(str(root)).rdd
    assert rows.getNumPartitions() > 2
    return rows.map(lambda row: row.physical_offset)


def test_retention_deletes_only_unleased_files_during_a_job_and_the_rest_after_it(
    spark: Any, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with running(root) as retention:
        start = retention.offsets[COUNT // 2]
        rows = planned(spark, root, start, holdLog="true")
        retention.may_delete.set()
        retention.until(lambda: retention.held_by.startswith("read by"))
        held_from = start - start % SEGMENT_BYTES
        assert 0 < retention.min_offset <= held_from
        assert sorted(rows.collect()) == [offset for offset in retention.offsets if offset >= start]
        retention.until(lambda: retention.min_offset == held_from)
        for lease in (root / FOLDER).iterdir():
            lease.unlink()  # five minutes later
        retention.until(lambda: retention.min_offset > held_from)


def test_without_a_lease_a_job_fails_when_its_log_was_deleted(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(root) as retention:
        rows = planned(spark, root, 0)
        assert not (root / FOLDER).exists()
        retention.may_delete.set()
        retention.until(lambda: retention.min_offset > 0)
        with pytest.raises(Exception, match="failOnDataLoss"):
            rows.collect()
