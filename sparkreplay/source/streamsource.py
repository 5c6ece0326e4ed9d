"""`spark.readStream.format("rocketmq")`: Spark's interface for a stream, on top of a LogStream.

Invariant: LogStream makes all decisions. Nothing relies on `commit`, because Spark does not call it for a query's last
batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparkreplay.read.options import ReadOptions
from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.source.usererrors import UserErrors
from sparkreplay.stream.admission import UNLIMITED, Admission
from sparkreplay.stream.logstream import LogStream
from sparkreplay.stream.position import StreamOffset
from sparkreplay.stream.request import open_stream


@dataclass
class StreamPartition(InputPartition):
    """One stretch of one batch, with everything that a worker needs to read it."""

    read_plan: ReadPlan


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader, created on the driver for each run of a query. Workers get a copy, and only call `read`."""

    def __init__(self, asked: Callable[[], tuple[ReadOptions, Admission]]) -> None:
        """`asked` checks the query's options. It is called later, because PySpark replaces an exception of this constructor by
        its own error (it tries to stop a reader that does not exist)."""
        self.asked = asked

    @cached_property
    def request(self) -> tuple[ReadOptions, Admission]:
        return self.asked()

    @cached_property
    def stream(self) -> LogStream:
        return open_stream(self.request[0])

    def initialOffset(self) -> dict[str, Any]:
        with UserErrors():
            return self.stream.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark later passes to `latestOffset`, unless a trigger wants everything (ReadAllAvailable). A limit
        object of Spark holds only one of this source's two limits."""
        with UserErrors():
            _, limits = self.request
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.max_messages is not None:
            return ReadMaxRows(limits.max_messages)
        if limits.min_messages is not None:
            return ReadMinRows(limits.min_messages)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with UserErrors():
            admission = UNLIMITED if isinstance(limit, ReadAllAvailable) else self.request[1]
            before = StreamOffset.from_json(start)
            after = self.stream.latest(before, admission)
            return start if after is before else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The committed end of each broker set."""
        with UserErrors():
            return dict(self.stream.bounds())

    def prepareForTriggerAvailableNow(self) -> None:
        with UserErrors():
            self.stream.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        with UserErrors():
            plans = self.stream.plan(StreamOffset.from_json(start), StreamOffset.from_json(end))
            return [StreamPartition(read_plan) for read_plan in plans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamPartition)
        return batches_of(partition.read_plan)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing for a worker, because the worker's partition has everything."""
        return {}


def batches_of(read_plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    with UserErrors():
        for stretch in read_plan.stretches:
            yield from read_stretch(read_plan, stretch)
