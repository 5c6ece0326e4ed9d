"""Measurements of several runs and sides, as tables of a document, and their targets.

Invariant: the values of a row are in the order of the runs, so that sides are compared within a run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scripts.bench.measured import cell


@dataclass(frozen=True)
class Reach:
    """The target of a row of the first side. It is absolute, or a multiple of the probe, of the same row of the side `beside`,
    or of the side's own `beside_row`."""

    row: str
    least: float | None = None
    most: float | None = None
    of_probe: bool = False
    beside: str | None = None
    beside_row: str | None = None

    def met(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        bound = f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"
        other = self.beside or self.beside_row or ("the probe" if self.of_probe else None)
        return bound + (f" × {other}" if other else "")


class Table:
    """A table with a row for each measurement, a column for each side and a value for each run. `multiples` are of the probe
    of that side and run."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.multiples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(self, name: str, side: str, value: float, beside: float | None = None) -> None:
        self.values[name][side].append(value)
        if beside:
            self.multiples[name][side].append(value / beside)

    def lines(self, sides: list[str]) -> Iterator[str]:
        for title, values in (("what", self.values), ("multiples of the probe", self.multiples)):
            if not values:
                continue
            yield f"\n| {title} | {' | '.join(sides)} |\n|---|{'---|' * len(sides)}"
            for name, row in values.items():
                cells = (cell(row[side]) if row.get(side) else "–" for side in sides)
                yield f"| {name} | {' | '.join(cells)} |"

    def reached(self, ours: str, reaches: Iterable[Reach]) -> Iterator[tuple[Reach, list[float]]]:
        """Each measured target, with the values of the side `ours` for each run."""
        for reach in reaches:
            values = (self.multiples if reach.of_probe else self.values).get(reach.row, {}).get(ours, [])
            if reach.beside or reach.beside_row:
                beside = self.values.get(reach.beside_row or reach.row, {}).get(reach.beside or ours, [])
                values = [value / other for value, other in zip(values, beside, strict=False) if other]
            if values:
                yield reach, values

    def judged(self, ours: str, reaches: Iterable[Reach]) -> tuple[list[str], int]:
        """The lines of a table that says whether each median reaches its target, and the number of those that do not."""
        lines = [f"\n| wanted of {ours} | is | reach | |", "|---|---|---|---|"]
        missed = 0
        for reach, values in self.reached(ours, reaches):
            met = reach.met(statistics.median(values))
            missed += not met
            lines.append(f"| {reach.row} | {cell(values)} | {reach} | {'met' if met else 'missed'} |")
        return lines, missed
