"""The data source with a fault in each task's first attempt; workers import it. Options of its own: `fault`, `folder`.

`killed`: the worker is killed after its first batch. `stuck`: the first partition's first attempt waits for a writer of the
FIFO `folder`/gate."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkreplay.records.walk import Stretch
from sparkreplay.source.datasource import RocketMQDataSource, RocketMQReader

OWN = ("fault", "folder")


class FaultyReader(RocketMQReader):
    fault = ""
    folder = ""

    def batches(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        batches = super().batches(stretch)
        yield next(batches)
        if self.is_first_attempt(stretch):
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif stretch.start == 0:
                with open(Path(self.folder, "gate")):
                    pass
        yield from batches

    def is_first_attempt(self, stretch: Stretch) -> bool:
        try:
            Path(self.folder, f"begun-{stretch.start}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class FaultySource(RocketMQDataSource):
    reader_class = FaultyReader

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.own = {name: options[name] for name in OWN}
        self.options = copy(options)
        for name in OWN:
            del self.options[name]

    def reader(self, schema: StructType) -> FaultyReader:
        reader = super().reader(schema)
        assert isinstance(reader, FaultyReader)
        reader.fault, reader.folder = self.own["fault"], self.own["folder"]
        return reader
