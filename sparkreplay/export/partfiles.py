"""The Parquet files of one stretch as they grow, one for each topic and day.

Invariant: the number of open files, the memory of their writers and the number of waiting rows are limited. A part's size and
CRC are computed from the bytes that were written to its file."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkreplay.durable import naming
from sparkreplay.export.manifest import ParquetPart
from sparkreplay.export.partitions import ExportPartition
from sparkreplay.export.window import WriteWindow

OPEN_FILES_MAX = 256
OPEN_BYTES_MAX = 16 << 20
"""Limit of the memory of writers of open files. It is enough for 220 files of twelve columns with one row group, or 90 files
with ten row groups."""
ENCODER_BYTES, GROUP_BYTES = 5 << 10, 1 << 10
"""Memory of a writer for each column: ENCODER_BYTES while the file is open, and GROUP_BYTES more for each row group in it.
Both are measured and rounded up."""
FEW_VALUES = {
    "queue_id", "tags", "born_host", "store_host", "transaction", "broker_name", "flag", "sys_flag", "reconsume_times",
    "epoch", "prepared_transaction_offset",
}  # fmt: skip
"""Columns for which a dictionary saves bytes. For bodies or keys it only costs."""
NO_STATISTICS = {"body", "properties"}


class CountedFile:
    """A file that counts its bytes and computes their CRC. Parquet is written from front to end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by its owner
        self.bytes = 0
        self.crc32 = 0
        self.closed = False

    def write(self, data: Any) -> int:
        with memoryview(data) as view, naming(self.path):
            self.crc32 = crc32(view, self.crc32)
            done = 0
            while done < view.nbytes:
                done += self.file.write(view[done:]) or 0
            self.bytes += done
            return done

    def flush(self) -> None:
        """Nothing to flush: every write goes to the kernel at once."""

    def write_behind(self) -> None:
        """Let the kernel begin to write to the disk, so that a later `sync` waits less."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        with naming(self.path):
            os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()
        self.closed = True


@dataclass
class PartFile:
    """One part as it grows."""

    place: Path
    sink: CountedFile
    writer: Any
    part: ParquetPart
    columns: int
    row_groups: int = 0

    @property
    def held_bytes(self) -> int:
        return self.columns * (ENCODER_BYTES + GROUP_BYTES * self.row_groups)


@dataclass
class PartFiles:
    """The parts of one stretch. If another row group does not fit into the memory limit, the file whose writer holds most
    memory is finished, with its waiting rows. Later rows of its partition begin another part."""

    folder: Path
    stem: str
    broker_name: str
    columns: tuple[str, ...]
    window: WriteWindow
    open: OrderedDict[ExportPartition, PartFile] = field(default_factory=OrderedDict)
    """Open files, ordered by the last write, the oldest first."""
    held_bytes: int = 0
    finished: list[tuple[Path, ParquetPart]] = field(default_factory=list)
    begun: Counter[ExportPartition] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows ordered by partition. If they do not fit into the window, waiting rows are written first."""
        for partition, table in self.window.add(batch):
            self.write(partition, table)

    def write(self, partition: ExportPartition, table: pa.Table) -> None:
        """Write a row group to the file of its partition."""
        while (
            self.held_bytes >= OPEN_BYTES_MAX
            or len(self.open) >= OPEN_FILES_MAX
            and partition not in self.open
        ):
            self.end(max(self.open, key=lambda each: self.open[each].held_bytes))
        if partition not in self.open:
            self.begin(partition, table)
        self.append(partition, table)

    def append(self, partition: ExportPartition, table: pa.Table) -> None:
        file = self.open[partition]
        self.open.move_to_end(partition)
        last_offset = pc.max(table.column("physical_offset")).as_py()
        file.writer.write_table(table.select(self.columns), row_group_size=table.num_rows)
        file.sink.write_behind()
        file.part = replace(file.part, rows=file.part.rows + table.num_rows, last_offset=last_offset)
        self.held_bytes -= file.held_bytes
        file.row_groups += 1
        self.held_bytes += file.held_bytes

    def begin(self, partition: ExportPartition, table: pa.Table) -> None:
        before = self.begun[partition]
        self.begun[partition] += 1
        name = f"{self.stem}{f'-{before}' if before else ''}.parquet"
        place = self.folder / f"{self.begun.total()}.parquet"
        sink = CountedFile(place)
        names = set(self.columns)
        writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            table.select(self.columns).schema,
            compression="snappy",
            use_dictionary=[*sorted(names & FEW_VALUES), "properties.key_value.key"],
            write_statistics=sorted(names - NO_STATISTICS),
        )
        first_offset = pc.min(table.column("physical_offset")).as_py()
        part = ParquetPart(
            f"{partition.folder}/{name}", self.broker_name, partition.topic, partition.day_text,
            rows=0, bytes=0, crc32=0, first_offset=first_offset, last_offset=first_offset,
        )  # fmt: skip
        self.open[partition] = file = PartFile(place, sink, writer, part, len(names))
        self.held_bytes += file.held_bytes

    def end(self, partition: ExportPartition) -> None:
        rest = self.window.take(partition)
        if rest is not None:
            self.append(partition, rest)
        file = self.open[partition]
        file.writer.close()
        file.sink.sync()
        file.sink.close()
        self.finished.append((file.place, replace(file.part, bytes=file.sink.bytes, crc32=file.sink.crc32)))
        self.held_bytes -= file.held_bytes
        del self.open[partition]

    def finish(self) -> list[tuple[Path, ParquetPart]]:
        """Write the waiting rows, and return the parts by name."""
        for partition, table in self.window.rest():
            self.write(partition, table)
        for partition in list(self.open):
            self.end(partition)
        return sorted(self.finished, key=lambda each: each[1].file)

    def abandon(self) -> None:
        """Called after a failure: leave open files unfinished. The cleanup of the attempt removes them."""
        for file in self.open.values():
            file.writer.is_open = False  # else garbage collection closes it and fails again
            file.sink.close()
