"""Rows that wait to be written, by partition.

Invariant: the kept batches have at most `bytes_max` together, unless a single batch is larger.

Rows are slices of their batches, and a batch is freed only when all its slices are gone. So all rows are written at once.
Copies of the remaining rows would allow larger row groups, but many small buffers of many sizes would fragment the allocator's
memory, which costs more than larger row groups save. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparkreplay.export.partitions import ExportPartition, by_partition


class WriteWindow:
    """The waiting rows. Partitions are in the order of their first rows."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.waiting: dict[ExportPartition, list[pa.RecordBatch]] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[ExportPartition, pa.Table]]:
        """Take the rows of a batch that is ordered by partition. If there is no room for the batch, all waiting rows are
        yielded first."""
        if self.bytes + batch.nbytes > self.bytes_max:
            yield from self.rest()
        for partition, rows in by_partition(batch):
            self.waiting.setdefault(partition, []).append(rows)
        self.bytes += batch.nbytes

    def rest(self) -> Iterator[tuple[ExportPartition, pa.Table]]:
        """Remove and yield all waiting rows, as one table for each partition."""
        while self.waiting:
            partition = next(iter(self.waiting))
            yield partition, self.take(partition)
        self.bytes = 0
        pa.default_memory_pool().release_unused()  # else the pool keeps freed memory for a second and takes new pages

    def take(self, partition: ExportPartition) -> pa.Table | None:
        """Remove and return the waiting rows of one partition; None if there are none."""
        batches = self.waiting.pop(partition, None)
        return None if batches is None else pa.Table.from_batches(batches)
