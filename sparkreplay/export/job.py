"""Writes the rows of one stretch as Parquet, in the worker that decoded them, with one file for each topic and day.

Invariant: the parts (Parquet files) of a stretch depend only on the stretch, and all of them are staged before the record of
the finished stretch appears. So attempts may be killed, repeated or run in parallel, with the same result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from sparkreplay.durable import replace_durably
from sparkreplay.export.manifest import ParquetPart
from sparkreplay.export.partfiles import PartFiles
from sparkreplay.export.partitions import escaped
from sparkreplay.export.window import WriteWindow
from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.records.walk import Stretch

WORK = "_mqreplay"
"""The work folder, in the export's folder. Readers of Parquet ignore names that begin with `_`."""
STAGED, RECORDS, ATTEMPTS = "staged", "stretches", "attempts"
WINDOW_BYTES = 24 << 20
"""Limit of rows held before they are written: a row group if one topic fills the log, or a part of a row group if many topics
do."""
NEEDED = ("topic", "store_timestamp", "physical_offset")
"""Columns for a row's destination and origin."""
PARTITIONED_BY = ("topic",)
"""Columns that are in the folder's name and not in the file."""


@dataclass(frozen=True)
class ExportJob:
    """The job of all workers. `read` selects the columns of the files (`columns`) and the columns in NEEDED."""

    read: ReadPlan
    columns: tuple[str, ...]
    folder: str

    @property
    def work(self) -> Path:
        return Path(self.folder, WORK)

    def record_of(self, stretch: Stretch) -> Path:
        return self.work / RECORDS / f"{self.stem(stretch)}.json"

    def stem(self, stretch: Stretch) -> str:
        """The prefix of the names of a stretch's files: broker set and physical range."""
        name = self.read.sources[stretch.source].store.broker_name
        return f"part-{escaped(name)}-{stretch.start:020d}-{stretch.end:020d}"


def columns_to_read(columns: tuple[str, ...]) -> tuple[str, ...]:
    return (*columns, *(name for name in NEEDED if name not in columns))


def file_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in columns if name not in PARTITIONED_BY)


def export_stretch(job: ExportJob, number: int) -> list[ParquetPart]:
    """Stage the parts of one stretch, and then record them. Only the bytes of a part are synced, not its name. If a power cut
    loses the name, `ExportFolder.finished` notices that the part is missing."""
    stretch = job.read.stretches[number]
    with TemporaryDirectory(prefix=job.stem(stretch), dir=job.work / ATTEMPTS) as attempt:
        made = write_parts(job, stretch, Path(attempt), read_stretch(job.read, stretch))
        for place, part in made:
            target = job.work / STAGED / part.file
            target.parent.mkdir(parents=True, exist_ok=True)
            place.replace(target)
        parts = [part for _, part in made]
        record = Path(attempt, "record.json")  # another attempt may write it at the same time
        replace_durably(record, json.dumps([asdict(part) for part in parts]).encode())
        record.replace(job.record_of(stretch))
    return parts


def write_parts(
    job: ExportJob, stretch: Stretch, attempt: Path, batches: Iterable[pa.RecordBatch]
) -> list[tuple[Path, ParquetPart]]:
    """The finished files of an attempt, and their descriptions."""
    broker_name = job.read.sources[stretch.source].store.broker_name
    window = WriteWindow(WINDOW_BYTES)
    files = PartFiles(attempt, job.stem(stretch), broker_name, job.columns, window)
    with ExitStack() as cleanup:
        cleanup.callback(files.abandon)
        for batch in batches:
            files.add(batch)
        return files.finish()
