"""A stream driven as Spark drives it, without Spark: offsets go through JSON, the process may be replaced at any moment."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkreplay.read.options import read_options
from sparkreplay.source.streamsource import RocketMQStreamReader
from sparkreplay.stream.request import admission_of, open_stream


class Query:
    """The engine's part: a checkpoint of offsets, and the rows of the batches that were finished.

    A new reader for the same checkpoint is a query that was started again."""

    def __init__(self, **options: str) -> None:
        self.offsets: list[str] = []
        self.committed = 0
        self.rows: list[dict[str, Any]] = []
        self.now_s = 0.0
        self.restart(**options)

    def restart(self, **options: str) -> None:
        asked = read_options(options)
        self.reader = RocketMQStreamReader(lambda: (asked, admission_of(asked, options)))
        self.reader.stream = open_stream(self.reader.request[0], self.clock_s)

    def clock_s(self) -> float:
        return self.now_s

    def start_offset(self) -> str:
        if self.committed:
            return self.offsets[self.committed - 1]
        return json.dumps(self.reader.initialOffset())

    def plan_batch(self, *, everything: bool = False) -> bool:
        """Writes the next batch's end into the checkpoint, if there is anything new."""
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        start = self.start_offset()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def read_batch(self) -> list[dict[str, Any]]:
        """The rows of the batch that is planned and not committed."""
        start, end = json.loads(self.start_offset()), json.loads(self.offsets[self.committed])
        rows = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                rows += pa.Table.from_batches([batch]).to_pylist()
        return rows

    def commit(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows
        self.committed += 1

    def trigger(self) -> int:
        """One batch, if there is one; returns its rows."""
        if len(self.offsets) == self.committed and not self.plan_batch():
            return 0
        rows = self.read_batch()
        self.commit(rows)
        return len(rows)

    def run(self) -> list[int]:
        """Batches until nothing is left; returns the rows of each."""
        batches = []
        while len(self.offsets) > self.committed or self.plan_batch():
            rows = self.read_batch()
            self.commit(rows)
            batches.append(len(rows))
        return batches

    @property
    def ids(self) -> list[str]:
        return [row["msg_id"] for row in self.rows]
