"""The folder of an export, which is begun, perhaps continued, and published.

    DIR/_manifest.json                       appears last
    DIR/topic=.../day=.../part-*.parquet     appear together, once every stretch is done and the epochs are checked
    DIR/_mqreplay/plan.json                  frozen before the first part
    DIR/_mqreplay/stretches/*.json           a record of each finished stretch
    DIR/_mqreplay/staged, attempts           unpublished parts, incomplete files

Invariant: a part (one Parquet file) is published once, whatever process is killed at whatever moment. If the folder has no
plan.json, it holds exactly the parts that its manifest lists."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from sparkreplay.durable import replace_durably
from sparkreplay.errors import ExportRefused
from sparkreplay.export.job import ATTEMPTS, RECORDS, STAGED, WORK, ExportJob
from sparkreplay.export.manifest import (
    Manifest,
    ParquetPart,
    StartedPlan,
    decode_manifest,
    decode_plan,
    encode,
)
from sparkreplay.records.schema import BY_NAME
from sparkreplay.records.walk import Stretch
from sparkreplay.store.snapshot import check_epochs

MANIFEST = "_manifest.json"
PLAN = "plan.json"


class ExportFolder:
    """The folder, used by one driver at a time. The lock is the kernel's, so it ends with the process."""

    def __init__(self, folder: str) -> None:
        """Raises ExportRefused if another process exports into the folder, or if the folder holds anything but an export."""
        self.folder = Path(folder)
        self.work = self.folder / WORK
        self.made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manifest_path = self.folder / MANIFEST
        self.plan_path = self.work / PLAN
        strangers = [] if self.manifest_path.exists() or self.work.exists() else os.listdir(self.folder)
        if strangers:
            raise ExportRefused(
                folder, f"is not empty (it holds {strangers[0]}), and no export; name a new folder"
            )
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.lock)
            raise ExportRefused(folder, "another process is exporting into it; wait for its end") from None

    def close(self) -> None:
        """Remove a folder that was made for a rejected command."""
        if self.made:
            with suppress(OSError):  # the folder is not empty
                self.folder.rmdir()
        os.close(self.lock)

    def manifest(self) -> Manifest | None:
        try:
            return decode_manifest(str(self.folder), self.manifest_path.read_bytes())
        except FileNotFoundError:
            return None

    def started(self) -> StartedPlan | None:
        try:
            return decode_plan(str(self.folder), self.plan_path.read_bytes())
        except FileNotFoundError:
            return None

    def clear_if_published(self) -> None:
        """Remove the work folder if the manifest is already there, because an earlier run was killed between writing the
        manifest and removing the folder."""
        manifest, plan = self.manifest(), self.started()
        if manifest is not None and (plan is None or manifest.runs[-1] == plan.stores):
            shutil.rmtree(self.work, ignore_errors=True)

    def begin(self, plan: StartedPlan) -> None:
        """Freeze the plan, and remove leftovers of a plan that was never frozen."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.make_room()
        replace_durably(self.plan_path, encode(plan))

    def make_room(self) -> None:
        """Make folders for workers, and remove leftovers of killed attempts."""
        shutil.rmtree(self.work / ATTEMPTS, ignore_errors=True)
        for name in (ATTEMPTS, STAGED, RECORDS):
            (self.work / name).mkdir(exist_ok=True)

    def is_there(self) -> bool:
        """Whether the folders for workers still exist."""
        return (self.work / ATTEMPTS).is_dir()

    def finished(self, job: ExportJob, stretch: Stretch) -> list[ParquetPart] | None:
        """The parts of a finished stretch. None if the stretch is not finished, or one of its files differs from the record."""
        try:
            parts = [ParquetPart(**each) for each in json.loads(job.record_of(stretch).read_bytes())]
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return parts if all(self.place_of(part) for part in parts) else None

    def place_of(self, part: ParquetPart) -> Path | None:
        for place in (self.work / STAGED / part.file, self.folder / part.file):
            if place.is_file() and place.stat().st_size == part.bytes:
                return place
        return None

    def publish(self, job: ExportJob, plan: StartedPlan) -> Manifest:
        """Check the epochs, move every part to its place, and write the manifest. Raises EpochChanged, with nothing moved."""
        for source in job.read.sources:
            check_epochs(source.store)
        parts = [part for stretch in job.read.stretches for part in self.require_finished(job, stretch)]
        for part in parts:
            staged = self.work / STAGED / part.file
            if staged.exists():
                target = self.folder / part.file
                target.parent.mkdir(parents=True, exist_ok=True)
                staged.replace(target)
        manifest = self.manifest() or Manifest(plan.request, schema_of(job.columns))
        manifest.add(plan.stores, parts)
        replace_durably(self.manifest_path, encode(manifest))
        shutil.rmtree(self.work, ignore_errors=True)  # the next run removes files of a late attempt
        return manifest

    def require_finished(self, job: ExportJob, stretch: Stretch) -> list[ParquetPart]:
        parts = self.finished(job, stretch)
        if parts is None:
            raise ExportRefused(
                str(self.folder),
                f"the files of [{stretch.start}, {stretch.end}) were taken away while it ran; "
                "run the same command again",
            )
        return parts


def schema_of(columns: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"name": name, "type": str(BY_NAME[name].arrow)} for name in columns]
