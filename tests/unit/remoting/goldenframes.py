"""The captured frames, for the tests in this folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "vectors" / "remoting"


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """One row of the index with its bytes."""

    row: dict[str, Any]
    data: bytes

    @property
    def header(self) -> dict[str, Any]:
        return self.row["header"]

    @property
    def request_code(self) -> int:
        """The code of the request that this frame is or answers; -1 when unknown."""
        return self.row.get("requestCode", -1 if self.row["kind"] == "response" else self.header["code"])

    @property
    def serialize_type(self) -> int:
        return {"JSON": 0, "ROCKETMQ": 1}[self.row["serializeType"]]

    @property
    def is_request(self) -> bool:
        return self.row["kind"] != "response"


@cache
def golden_frames() -> tuple[GoldenFrame, ...]:
    data = (FOLDER / "frames.bin").read_bytes()
    rows = json.loads((FOLDER / "index.json").read_text())
    return tuple(GoldenFrame(row, data[row["offset"] : row["offset"] + row["length"]]) for row in rows)


def odd_frames() -> list[dict[str, Any]]:
    """The malformed frames of which enough bytes were captured to know Java's reaction."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / "odd-frames.json").read_text())
    return [row for row in rows if row["closed"] or row["sentLength"] * 2 == len(row["sentHexPrefix"])]
