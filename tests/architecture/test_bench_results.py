"""The figures of bench/results have the shape that bench/results/README.md describes."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "bench" / "results"
REQUIRED, OPTIONAL = {"what", "machine", "rows"}, {"date", "load", "command", "columns", "notes"}
FIGURE = {"median", "min", "max", "unit", "note"}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_of_results_has_the_described_shape(path: Path) -> None:
    results = json.loads(path.read_text())
    assert results.keys() == {"subject", "records"} and results["records"]
    for record in results["records"]:
        assert REQUIRED <= record.keys() <= REQUIRED | OPTIONAL, record["what"]
        date.fromisoformat(record.get("date", "2026-11-21"))
        assert record["rows"] and all(is_row(row) for row in record["rows"]), record["what"]


def test_a_figure_without_its_median_is_found() -> None:
    assert is_row({"what": "sends/s", "here": {"median": 2, "min": 1, "max": 3}})
    assert not is_row({"what": "sends/s", "here": {"min": 1, "max": 3}})
    assert not is_row({"what": "sends/s", "here": {"median": 4, "min": 1, "max": 3}})


def is_row(row: dict[str, Any]) -> bool:
    figures = [value for name, value in row.items() if name not in ("what", "of")]
    return "what" in row and bool(figures) and all(is_figure(value) for value in figures)


def is_figure(value: object) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, int | float | str)
    if not {"median"} <= value.keys() <= FIGURE:
        return False
    return bool(value.get("min", value["median"]) <= value["median"] <= value.get("max", value["median"]))
