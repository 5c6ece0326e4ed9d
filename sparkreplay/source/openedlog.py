"""`sparkreplay.open(...)`: committed rows for any consumer of Arrow (DuckDB, Polars, pandas), without Spark.

Invariant: the read is planned once, when the log is opened. Each reader made from it returns the rows up to the same bound."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparkreplay.errors import OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, plan_read, read_all
from sparkreplay.records.schema import arrow_schema
from sparkreplay.stream.request import refuse_for_batch


def open_log(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> OpenedLog:
    """The committed rows of one or more stores. `options` are the options of the data source, with Python values.

    Raises OptionError, StoreUnreadable and the other errors of planning a read."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    given = {name: option_text(value) for name, value in options.items() if value is not None}
    refuse_for_batch(given)
    if "path" in {name.lower() for name in given}:
        raise OptionError("path", "is given twice")
    return OpenedLog(
        plan_read(read_options({"path": json.dumps([os.fspath(one) for one in paths]), **given}))
    )


def option_text(value: object) -> str:
    """An option's value as text: `true` for True, `a,b` for a list, JSON for a dictionary."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str):
        return ",".join(str(one) for one in value)
    return str(value)


class OpenedLog:
    """A planned read. Consumers of Arrow accept it directly (`__arrow_c_stream__`)."""

    def __init__(self, read: ReadPlan) -> None:
        self.read_plan = read

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.read_plan.columns)

    @property
    def bounds(self) -> dict[str, int]:
        """The end of each broker set's range, as an exclusive physical offset."""
        return {source.store.broker_name: source.store.bound for source in self.read_plan.sources}

    @property
    def bound(self) -> int:
        """The end for the only broker set. Raises OptionError if there are several."""
        bounds = self.bounds
        if len(bounds) > 1:
            raise OptionError(
                "path", f"names the broker sets {', '.join(bounds)}; take bounds, which has each one's"
            )
        return next(iter(bounds.values()))

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, read on demand, a few MiB at a time. The reader raises errors of the log: LogCorrupted, SegmentGone,
        EpochChanged."""
        return pa.RecordBatchReader.from_batches(self.schema, read_all(self.read_plan))

    def to_arrow(self) -> pa.Table:
        """All rows in memory."""
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)
