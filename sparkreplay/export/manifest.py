"""The description of an export as JSON: the plan that was frozen at its start, the parts of each stretch, the manifest.

Invariant: a plan and a manifest contain the request that they were made for, so a run with another request is detected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sparkreplay.errors import ExportRefused
from sparkreplay.store.samelog import Marks

FORMAT = 1


@dataclass(frozen=True)
class ParquetPart:
    """One Parquet file. The offsets are those of the file's first and last record; `crc32` is the CRC of the file's bytes."""

    file: str
    broker_name: str
    topic: str
    day: str
    rows: int
    bytes: int
    crc32: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class StoreRange:
    """The range that was read of one store: physical offsets [start_offset, end_offset), and the epochs that begin below the
    end."""

    store: str
    broker_name: str
    start_offset: int
    end_offset: int
    bound: int
    committed_bound: int
    """Lower than `bound` if the export read uncommitted records."""
    bound_source: str
    epochs: list[list[int]]
    log_marks: Marks
    """Identifies the log."""


@dataclass(frozen=True)
class StartedPlan:
    """The plan that is frozen before the first part is written. `stretches` are [source, segment name, start, end,
    at_bound]."""

    request: dict[str, Any]
    stores: list[StoreRange]
    stretches: list[list[Any]]
    format: int = FORMAT


@dataclass
class Manifest:
    """All runs of one export, the first and the appended ones, and every part."""

    request: dict[str, Any]
    columns: list[dict[str, str]]
    runs: list[list[StoreRange]] = field(default_factory=list)
    parts: list[ParquetPart] = field(default_factory=list)
    partitioned_by: list[str] = field(default_factory=lambda: ["topic", "day"])
    rows: int = 0
    bytes: int = 0
    format: int = FORMAT

    def add(self, stores: list[StoreRange], parts: list[ParquetPart]) -> None:
        self.runs.append(stores)
        self.parts += parts
        self.rows += sum(part.rows for part in parts)
        self.bytes += sum(part.bytes for part in parts)

    def ends(self) -> dict[str, StoreRange]:
        """The last range of each broker set."""
        return {store.broker_name: store for run in self.runs for store in run}


def encode(value: Any) -> bytes:
    return (json.dumps(asdict(value), indent=1) + "\n").encode()


def decode_plan(folder: str, data: bytes) -> StartedPlan:
    """Raises ExportRefused."""
    with raising_refused(folder, StartedPlan):
        made = decode_object(folder, StartedPlan, data)
        return StartedPlan(
            made["request"], [StoreRange(**each) for each in made["stores"]], made["stretches"]
        )


def decode_manifest(folder: str, data: bytes) -> Manifest:
    """Raises ExportRefused."""
    with raising_refused(folder, Manifest):
        made = decode_object(folder, Manifest, data)
        made["runs"] = [[StoreRange(**each) for each in run] for run in made["runs"]]
        made["parts"] = [ParquetPart(**each) for each in made["parts"]]
        return Manifest(**made)


def decode_object(folder: str, kind: type[Any], data: bytes) -> dict[str, Any]:
    """Raises ExportRefused for another version's file, ValueError and RecursionError for invalid JSON."""
    made = json.loads(data)
    names = {each.name for each in fields(kind)}
    if not isinstance(made, dict) or set(made) != names or made["format"] != FORMAT:
        raise ExportRefused(
            folder, f"its {kind.__name__} is not of format {FORMAT}; use the version that wrote it"
        )
    return made


@contextmanager
def raising_refused(folder: str, kind: type[Any]) -> Iterator[None]:
    """Turn errors into ExportRefused if anything in the file was not written by an export."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise ExportRefused(
            folder, f"its {kind.__name__} is damaged ({error}); export to a new folder"
        ) from None


def require_same_request(
    folder: str, before: dict[str, Any], now: dict[str, Any], but: tuple[str, ...] = ()
) -> None:
    """Raise ExportRefused if the requests differ. The error names the first option or store that differs. Options in `but` may
    differ."""
    for name in sorted({*before, *now} - set(but)):
        if before.get(name) != now.get(name):
            raise ExportRefused(
                folder,
                f"holds an export with {name} {shown(before.get(name))}, this one has {shown(now.get(name))}; "
                "repeat the first command, or name a new folder",
            )


def shown(value: Any) -> str:
    return "not given" if value is None else str(value)
