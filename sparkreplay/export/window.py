"""Rows that wait to be written, by partition.

Invariant: the batches that are kept have at most `bytes_max` together, or there is one, which is larger.

Rows are slices of the batches that they came with: these are freed when all have left, so all leave at once. Copies of those
that stay would let some leave before others, for larger row groups; but so many small buffers of so many sizes leave the
allocator in pieces, and cost more memory than the row groups are worth. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparkreplay.export.partitions import Partition, by_partition


class Window:
    """The partitions are in the order in which they first came."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.waiting: dict[Partition, list[pa.RecordBatch]] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.Table]]:
        """Takes the rows of a batch that is ordered by partition; first gives all that waits if there is no room for it."""
        if self.bytes + batch.nbytes > self.bytes_max:
            yield from self.rest()
        for partition, rows in by_partition(batch):
            self.waiting.setdefault(partition, []).append(rows)
        self.bytes += batch.nbytes

    def rest(self) -> Iterator[tuple[Partition, pa.Table]]:
        """All that waits, and waits no longer: a table for each partition."""
        while self.waiting:
            partition = next(iter(self.waiting))
            yield partition, self.take(partition)
        self.bytes = 0
        pa.default_memory_pool().release_unused()  # else it keeps for a second what was freed, and takes new pages meanwhile

    def take(self, partition: Partition) -> pa.Table | None:
        """The rows of one partition, which wait no longer; None where none do."""
        batches = self.waiting.pop(partition, None)
        return None if batches is None else pa.Table.from_batches(batches)
