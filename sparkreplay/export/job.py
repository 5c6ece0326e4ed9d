"""Writes the rows of one stretch as Parquet, in the worker that decoded them, a file for each topic and day.

Invariant: the parts of a stretch are a function of the stretch alone, and they are staged whole before its record appears:
attempts may be killed, repeated or run side by side, and what is there is the same."""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkreplay.durable import replace_durably
from sparkreplay.export.manifest import Part
from sparkreplay.export.partitions import Partition, by_partition, escaped
from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.records.walk import Stretch

WORK = "_mqreplay"
"""Below the export's folder; readers of Parquet pass over names that begin with `_`."""
STAGED, RECORDS, ATTEMPTS = "staged", "stretches", "attempts"
WINDOW_BYTES = 32 << 20
"""Rows held before they are written: what a row group holds where one topic fills the log."""
OPEN_FILES_MAX = 256
NEEDED = ("topic", "store_timestamp", "physical_offset")
"""Columns that say where a row goes, and from where it came."""
PARTITIONED_BY = ("topic",)
"""Columns that a file leaves out: its folder has them."""
FEW_VALUES = {
    "queue_id", "tags", "born_host", "store_host", "transaction", "broker_name", "flag", "sys_flag", "reconsume_times",
    "epoch", "prepared_transaction_offset",
}  # fmt: skip
"""Columns for which a dictionary pays; of bodies or keys it only costs."""
NO_STATISTICS = {"body", "properties"}


@dataclass(frozen=True)
class ExportJob:
    """`read` has the columns of the files and those in NEEDED; the files hold `columns`."""

    read: ReadPlan
    columns: tuple[str, ...]
    folder: str

    @property
    def work(self) -> Path:
        return Path(self.folder, WORK)

    def record_of(self, stretch: Stretch) -> Path:
        return self.work / RECORDS / f"{self.stem(stretch)}.json"

    def stem(self, stretch: Stretch) -> str:
        """What the names of a stretch's files begin with: broker set and physical range."""
        name = self.read.sources[stretch.source].store.broker_name
        return f"part-{escaped(name)}-{stretch.start:020d}-{stretch.end:020d}"


def columns_to_read(columns: tuple[str, ...]) -> tuple[str, ...]:
    return (*columns, *(name for name in NEEDED if name not in columns))


def file_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in columns if name not in PARTITIONED_BY)


def export_stretch(job: ExportJob, number: int) -> list[Part]:
    """Stages the parts of one stretch and then records them. Their bytes are synced; a name that a power cut took is
    missed when the export goes on."""
    stretch = job.read.stretches[number]
    with TemporaryDirectory(prefix=job.stem(stretch), dir=job.work / ATTEMPTS) as attempt:
        made = write_parts(job, stretch, Path(attempt), read_stretch(job.read, stretch))
        for place, part in made:
            target = job.work / STAGED / part.file
            target.parent.mkdir(parents=True, exist_ok=True)
            place.replace(target)
        parts = [part for _, part in made]
        record = Path(attempt, "record.json")  # another attempt may be at the same point
        replace_durably(record, json.dumps([asdict(part) for part in parts]).encode())
        record.replace(job.record_of(stretch))
    return parts


def write_parts(
    job: ExportJob, stretch: Stretch, attempt: Path, batches: Iterable[pa.RecordBatch]
) -> list[tuple[Path, Part]]:
    """The finished files of an attempt, and what they are."""
    broker_name = job.read.sources[stretch.source].store.broker_name
    files = PartFiles(attempt, job.stem(stretch), broker_name, job.columns)
    window: dict[Partition, list[pa.RecordBatch]] = {}
    held = 0
    with ExitStack() as cleanup:
        cleanup.callback(files.abandon)
        for batch in batches:
            for partition, rows in by_partition(batch):
                window.setdefault(partition, []).append(rows)
            held += batch.nbytes
            if held >= WINDOW_BYTES:
                files.write(window)
                window.clear()
                held = 0
        files.write(window)
        return files.finish()


class CountedFile:
    """A file that knows its bytes and their CRC. Parquet is written from front to end."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by whoever made this
        self.bytes = 0
        self.crc32 = 0
        self.closed = False

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            self.crc32 = crc32(view, self.crc32)
            done = 0
            while done < view.nbytes:
                done += self.file.write(view[done:]) or 0
            self.bytes += done
            return done

    def flush(self) -> None:
        """Every write goes to the kernel at once."""

    def sync(self) -> None:
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
    part: Part


@dataclass
class PartFiles:
    """The parts of one stretch. At most OPEN_FILES_MAX are open: the one that waited longest is finished, and rows that
    come for its partition later begin another part."""

    folder: Path
    stem: str
    broker_name: str
    columns: tuple[str, ...]
    open: OrderedDict[Partition, PartFile] = field(default_factory=OrderedDict)
    finished: list[tuple[Path, Part]] = field(default_factory=list)
    begun: Counter[Partition] = field(default_factory=Counter)

    def write(self, window: dict[Partition, list[pa.RecordBatch]]) -> None:
        """A row group for each partition."""
        for partition, batches in window.items():
            table = pa.Table.from_batches(batches)
            offsets = pc.min_max(table.column("physical_offset")).as_py()
            table = table.select(self.columns)
            file = self.open.pop(partition, None) or self.begin(partition, table.schema, offsets["min"])
            self.open[partition] = file
            file.writer.write_table(table, row_group_size=table.num_rows)
            part = file.part
            file.part = replace(part, rows=part.rows + table.num_rows, last_offset=offsets["max"])

    def begin(self, partition: Partition, schema: pa.Schema, first_offset: int) -> PartFile:
        while len(self.open) >= OPEN_FILES_MAX:
            self.end(self.open.popitem(last=False)[1])
        before = self.begun[partition]
        self.begun[partition] += 1
        name = f"{self.stem}{f'-{before}' if before else ''}.parquet"
        place = self.folder / f"{self.begun.total()}.parquet"
        sink = CountedFile(place)
        names = set(schema.names)
        writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            schema,
            compression="snappy",
            use_dictionary=[*sorted(names & FEW_VALUES), "properties.key_value.key"],
            write_statistics=sorted(names - NO_STATISTICS),
        )
        part = Part(
            f"{partition.folder}/{name}", self.broker_name, partition.topic, partition.day_text,
            rows=0, bytes=0, crc32=0, first_offset=first_offset, last_offset=first_offset,
        )  # fmt: skip
        return PartFile(place, sink, writer, part)

    def end(self, file: PartFile) -> None:
        file.writer.close()
        file.sink.sync()
        file.sink.close()
        self.finished.append((file.place, replace(file.part, bytes=file.sink.bytes, crc32=file.sink.crc32)))

    def finish(self) -> list[tuple[Path, Part]]:
        while self.open:
            self.end(self.open.popitem(last=False)[1])
        return sorted(self.finished, key=lambda each: each[1].file)

    def abandon(self) -> None:
        """After a failure: files that are still open are closed as they are, and go with the attempt."""
        while self.open:
            self.open.popitem()[1].sink.close()
