"""mqreplay export: the rows as Parquet, exactly once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from sparkreplay.commands.shared import (
    engine_of,
    local_place,
    options_of,
    print_json,
    print_source,
    reading_options,
    run_stretches,
    running_options,
    stores_argument,
    warn,
)
from sparkreplay.engine.engine import Engine
from sparkreplay.engine.progress import size_text
from sparkreplay.errors import EpochChanged, ExportRefused, SegmentGone
from sparkreplay.export.folder import ExportFolder
from sparkreplay.export.job import WORK, ExportJob, columns_to_read, export_stretch, file_columns
from sparkreplay.export.manifest import Manifest, ParquetPart, StartedPlan, require_same_request
from sparkreplay.export.plan import appended, by_partition, frozen, resumed
from sparkreplay.read.options import ReadOptions, read_options
from sparkreplay.read.reader import ReadPlan, plan_read
from sparkreplay.records.schema import columns_named
from sparkreplay.store.logs import log_min_now

END = "endingoffsets"
NOT_OF_ROWS = ("address", "crc", "failondataloss", "index", "minpartitions", "splitbytes")
"""Options that change how rows are read, but not which rows. A run that continues or appends may change them."""


@dataclass(frozen=True)
class Gone:
    """A part of a log that retention deleted before it was read: physical offsets [start_offset, end_offset)."""

    store: str
    start_offset: int
    end_offset: int


@click.command()
@stores_argument
@click.option("--to", "folder", required=True, metavar="DIR", help="A new folder, or one to continue.")
@click.option(
    "--columns", default="full", show_default=True, help="default, meta, full, or names separated by commas."
)
@click.option("--append", is_flag=True, help="Add what was committed since the export in DIR ended.")
@reading_options
@running_options
def command(
    stores: tuple[str, ...],
    folder: str,
    columns: str,
    append: bool,
    engine: str,
    master: str,
    spark_conf: dict[str, str],
    workers: int | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """The rows as Parquet in DIR/topic=.../day=.../, with DIR/_manifest.json.

    Nothing appears in DIR before all of it is there. A killed export continues when the same command is run again; a finished
    one says so. Spark's workers must reach DIR under the same name."""
    wanted = columns_named(columns)
    options = {**options_of(stores, **given), "columns": ",".join(columns_to_read(wanted))}
    request = request_of(options, wanted)
    target = ExportFolder(local_place("--to", folder))
    try:
        target.clear_if_published()
        manifest, plan = target.manifest(), target.started()
        if plan is None and manifest is not None and not append:
            require_same_request(folder, manifest.request, request, but=NOT_OF_ROWS)
            print_result(manifest, [], folder, as_json, "was finished before; --append adds what came since")
            return
        try:
            read = plan_of(folder, read_options(options), request, manifest, plan)
        except EpochChanged as error:
            raise (void(folder, error) if plan else outlived(folder, error)) from error
        state = "is done" if plan is None else "was continued and is done"
        if plan is not None:
            target.make_room()
        elif manifest is not None and not read.stretches:
            print_result(manifest, [], folder, as_json, "has nothing to add")
            return
        else:
            plan = frozen(request, read)
            target.begin(plan)
        job = ExportJob(by_partition(read), file_columns(wanted), folder)
        if not as_json:
            for source in read.sources:
                print_source(source)
        try:
            with engine_of(engine, master, workers, spark_conf) as workplace:
                export(job, target, workplace, quiet=quiet or as_json)
            gone = without_rows(job, target)
            before = len(manifest.parts) if manifest else 0
            published = target.publish(job, plan)
        except (EpochChanged, SegmentGone) as error:
            raise void(folder, error) from error
        except FileNotFoundError as error:
            if target.is_there():
                raise
            raise ExportRefused(folder, "was taken away while it ran; run the same command again") from error
        print_result(published, published.parts[before:], folder, as_json, state, gone)
        if not published.rows:
            warn("no row was selected: the folder has a manifest and no part")
    finally:
        target.close()


def request_of(options: dict[str, str], wanted: tuple[str, ...]) -> dict[str, Any]:
    """The options that distinguish this export from another one, by lower-case name."""
    request: dict[str, Any] = {name.lower(): value for name, value in options.items()}
    paths = json.loads(options["path"])
    request["path"] = [path if "://" in path else os.path.abspath(path) for path in paths]
    request["columns"] = ",".join(wanted)
    return request


def plan_of(
    folder: str,
    options: ReadOptions,
    request: dict[str, Any],
    manifest: Manifest | None,
    plan: StartedPlan | None,
) -> ReadPlan:
    """The plan of this run: new, frozen or appended. Raises ExportRefused for a folder of another export."""
    if plan is not None:
        require_same_request(folder, plan.request, request, but=NOT_OF_ROWS)
        return resumed(folder, plan, plan_read(options))
    fresh = plan_read(options)
    if manifest is None:
        return fresh
    require_same_request(folder, manifest.request, request, but=(END, *NOT_OF_ROWS))
    return appended(folder, manifest, fresh, options.split_bytes)


def export(job: ExportJob, target: ExportFolder, engine: Engine, *, quiet: bool) -> None:
    """Make the parts of every stretch that has no parts yet."""
    stretches = job.read.stretches
    numbers = [number for number, stretch in enumerate(stretches) if target.finished(job, stretch) is None]

    def count(_: int, parts: list[ParquetPart]) -> int:
        return sum(part.rows for part in parts)

    run_stretches(
        engine, "export", stretches, partial(export_stretch, job), count, quiet=quiet, numbers=numbers
    )


def void(folder: str, error: EpochChanged | SegmentGone) -> ExportRefused:
    """The error for a frozen plan that can no longer be finished. Running the command again would find the same plan."""
    cure = f"remove {folder}/{WORK} to plan again over the current log; nothing of this run is in {folder}"
    if isinstance(error, SegmentGone):
        cure = f"{cure}. Or continue with -o failOnDataLoss=false, which leaves out deleted rows"
    return ExportRefused(folder, f"what was planned cannot be read any more: {error.why}; {cure}")


def outlived(folder: str, error: EpochChanged) -> ExportRefused:
    return ExportRefused(
        folder, f"{error.why}: rows that it holds are no longer the log's; export to a new folder"
    )


def without_rows(job: ExportJob, target: ExportFolder) -> list[Gone]:
    """The deleted parts of logs, whose rows are missing from the export. With failOnDataLoss there are none, because the export
    has failed."""
    if job.read.fail_on_data_loss:
        return []
    found = []
    for number, source in enumerate(job.read.sources):
        log_min = log_min_now(source.store.files)
        ends = [
            stretch.end
            for stretch in job.read.stretches
            if stretch.source == number and stretch.start < log_min and not target.finished(job, stretch)
        ]
        if ends:
            found.append(Gone(source.store.root, source.start, max(ends)))
    return found


def print_result(
    manifest: Manifest,
    added: list[ParquetPart],
    folder: str,
    as_json: bool,
    state: str,
    gone: Sequence[Gone] = (),
) -> None:
    path = os.path.join(folder, "_manifest.json")
    rows = sum(part.rows for part in added)
    if as_json:
        stores = [vars(store) for store in manifest.runs[-1]]
        print_json(
            {
                "state": state,
                "manifest": path,
                "stores": stores,
                "rows_added": rows,
                "parts_added": len(added),
                "rows": manifest.rows,
                "parts": len(manifest.parts),
                "bytes": manifest.bytes,
                "deleted_meanwhile": [vars(part) for part in gone],
            }
        )
        return
    print(f"export {state}: {rows:,} rows added in {len(added)} parts")
    for part in gone:
        print(
            f"left out of {part.store}: [{part.start_offset}, {part.end_offset}), as far as it was deleted before it was read "
            "(failOnDataLoss=false)"
        )
    print(
        f"{folder} holds {manifest.rows:,} rows in {len(manifest.parts)} parts, {size_text(manifest.bytes)}; {path}"
    )
