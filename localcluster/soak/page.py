"""A run of hours as one HTML page: verdicts, then metrics over time as inline SVG, with faults marked on every time axis.

Invariant: no external resource is loaded, and every text is escaped. Without scripts everything works but hovering. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from localcluster.soak.figures import formatted
from localcluster.soak.pagecode import SCRIPT, STYLE

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 190, 78, 8, 8, 22
TICKS = 4
COLOURS = 9
STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Line:
    """One value for each of the page's times; NaN breaks the line."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    heading: str
    in_bytes: bool
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event with a duration, in seconds of the page."""

    from_s: float
    to_s: float
    text: str


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One verdict. `holds` is None if it is still unknown."""

    what: str
    holds: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class SoakPage:
    """The content of a page. `times_s` grow from 0 on. `details` are further lines under headings."""

    title: str
    facts: Sequence[str]
    rows: Sequence[VerdictRow]
    times_s: Sequence[float]
    charts: Sequence[Chart]
    marks: Sequence[Mark]
    details: Sequence[tuple[str, Sequence[str]]] = field(default_factory=tuple)

    @property
    def span_s(self) -> float:
        return max([1.0, *self.times_s[-1:], *(mark.to_s for mark in self.marks)])

    def html(self) -> str:
        parts = [f"<h1>{escape(self.title)}</h1>", *(f"<p>{escape(fact)}</p>" for fact in self.facts)]
        parts.append(f"<table>{''.join(map(_row, self.rows))}</table>")
        for chart in self.charts:
            parts.append(f"<h2>{escape(chart.heading)}</h2>{_key(chart)}<figure>{self._svg(chart)}")
            parts.append('<div class="tip"></div></figure>')
        for heading, lines in self.details:
            if lines:
                parts.append(f"<h2>{escape(heading)}</h2><pre>{escape(chr(10).join(lines))}</pre>")
        head = f'<meta charset="utf-8"><title>{escape(self.title)}</title><style>{STYLE}</style>'
        data = f'<script type="application/json" id="data">{self._data()}</script><script>{SCRIPT}</script>'
        return (
            f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}{data}</body></html>\n'
        )

    def _data(self) -> str:
        data = {
            "times": [round(time_s, 1) for time_s in self.times_s],
            "span": self.span_s,
            "width": WIDTH,
            "left": LEFT,
            "right": RIGHT,
            "marks": [{"from": mark.from_s, "to": mark.to_s, "text": mark.text} for mark in self.marks],
            "charts": [
                {
                    "bytes": chart.in_bytes,
                    "lines": [{"name": line.name, "values": _plain(line.values)} for line in chart.lines],
                }
                for chart in self.charts
            ],
        }
        return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")

    def _svg(self, chart: Chart) -> str:
        top = _top(
            [value for line in chart.lines for value in line.values if not math.isnan(value)], chart.in_bytes
        )
        drawn = [self._band(mark) for mark in self.marks]
        for tick in range(TICKS + 1):
            y = _y(top * tick / TICKS, top)
            drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            label = formatted(top * tick / TICKS, in_bytes=chart.in_bytes)
            drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        step = next((step for step in STEPS_S if self.span_s / step <= 10), STEPS_S[-1])
        for number in range(int(self.span_s / step) + 1):
            x = self._x(number * step)
            drawn.append(
                f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{_moment(number * step)}</text>'
            )
        for place, line in enumerate(chart.lines):
            for points in self._pieces(line, top):
                drawn.append(f'<polyline stroke="var(--c{place % COLOURS})" points="{points}"/>')
        drawn.append(f'<line class="cross" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(drawn)}</svg>'

    def _band(self, mark: Mark) -> str:
        x = self._x(mark.from_s)
        width = max(self._x(mark.to_s) - x, 1.5)
        return (
            f'<rect class="band" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{escape(mark.text)}</title></rect>"
        )

    def _pieces(self, line: Line, top: float) -> list[str]:
        """The points of each stretch without a gap. A single point is drawn as a short dash."""
        pieces: list[list[str]] = [[]]
        for time_s, value in zip(self.times_s, line.values, strict=True):
            if math.isnan(value):
                pieces.append([])
            else:
                pieces[-1].append(f"{self._x(time_s):.1f},{_y(value, top):.1f}")
        dashed = [
            [*piece, f"{float(piece[0].split(',')[0]) + 1:.1f},{piece[0].split(',')[1]}"]
            for piece in pieces
            if len(piece) == 1
        ]
        return [" ".join(piece) for piece in [*(piece for piece in pieces if len(piece) > 1), *dashed]]

    def _x(self, time_s: float) -> float:
        return LEFT + time_s / self.span_s * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _top(values: Sequence[float], in_bytes: bool) -> float:
    """The end of the axis above all values: 1, 2, 4 or 8 times a power of ten, or of two for bytes."""
    most = max([*values, 1.0])
    if in_bytes:
        power = 2.0 ** math.ceil(math.log2(most))
        return 0.75 * power if most <= 0.75 * power else power
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 4, 8, 10) if most <= factor * power)


def _row(row: VerdictRow) -> str:
    mark, name = {True: ("holds", "holds"), False: ("broken", "BROKEN"), None: ("open", "–")}[row.holds]
    return f'<tr><td>{escape(row.what)}</td><td class="{mark}">{name}</td><td>{escape(row.text)}</td></tr>'


def _key(chart: Chart) -> str:
    spans = (
        f'<span><i style="background:var(--c{place % COLOURS})"></i>{escape(line.name)}</span>'
        for place, line in enumerate(chart.lines)
    )
    return f'<div class="key">{"".join(spans)}</div>'


def _plain(values: Sequence[float]) -> list[float | None]:
    """A value in a short form for JSON, which has no NaN."""
    return [
        None if math.isnan(value) else int(value) if value >= 1000 else round(value, 1) for value in values
    ]


def _moment(seconds: int) -> str:
    """A time as minutes and seconds, with hours from one hour on."""
    minutes = f"{seconds // 60 % 60:02}" if seconds >= 3600 else f"{seconds // 60}"
    return (
        f"{seconds // 3600}:{minutes}:{seconds % 60:02}"
        if seconds >= 3600
        else f"{minutes}:{seconds % 60:02}"
    )
