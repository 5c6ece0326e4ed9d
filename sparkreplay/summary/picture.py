"""The statistics as one HTML page, with bars as inline SVG and tables below. The page loads nothing from elsewhere.

Invariant: every name from a log is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from sparkreplay.engine.progress import size_text
from sparkreplay.summary.sizes import Sizes

WIDTH, BAR_HEIGHT, LABEL_WIDTH, HOURS_HEIGHT = 960, 22, 280, 160
BARS_MAX, ROWS_MAX = 30, 500
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } th, td { padding: .2rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left } tr:nth-child(even) { background: #8881 }
rect { fill: #3b7dd8 } rect:hover { fill: #e07b39 } svg { width: 100%; height: auto }
text { font: 12px system-ui, sans-serif; fill: currentColor }
"""
Name = Callable[[Sizes], str]


def page(title: str, facts: Sequence[str], tables: Sequence[tuple[str, Sequence[Sizes], Name]]) -> str:
    """The page. `tables` are (heading, rows, name of a row). The table called Hours is drawn along the time."""
    parts = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(fact)}</p>" for fact in facts)]
    for heading, rows, name in tables:
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts.append(columns(rows, name) if heading == "Hours" else bars(rows, name))
        parts.append(table(rows, name))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def bars(rows: Sequence[Sizes], name: Name) -> str:
    """Bytes of the largest rows, one bar under the other."""
    shown = sorted(rows, key=lambda row: -row.bytes)[:BARS_MAX]
    most = max((row.bytes for row in shown), default=1)
    drawn = []
    for place, row in enumerate(shown):
        y = place * BAR_HEIGHT
        width = max(1, round((WIDTH - LABEL_WIDTH - 90) * row.bytes / most))
        drawn.append(
            f'<text x="0" y="{y + 15}">{escape(short(name(row)))}</text>'
            f'<rect x="{LABEL_WIDTH}" y="{y + 3}" width="{width}" height="{BAR_HEIGHT - 6}">{tip(row, name)}</rect>'
            f'<text x="{LABEL_WIDTH + width + 6}" y="{y + 15}">{size_text(row.bytes)}</text>'
        )
    return svg(len(shown) * BAR_HEIGHT, drawn)


def columns(rows: Sequence[Sizes], name: Name) -> str:
    """Bytes along the time, side by side."""
    most = max((row.bytes for row in rows), default=1)
    step = WIDTH / max(len(rows), 1)
    drawn = []
    for place, row in enumerate(rows):
        height = max(1, round((HOURS_HEIGHT - 30) * row.bytes / most))
        drawn.append(
            f'<rect x="{place * step:.2f}" y="{HOURS_HEIGHT - 20 - height}" width="{max(step - 1, 0.5):.2f}" '
            f'height="{height}">{tip(row, name)}</rect>'
        )
    for place in sorted({0, len(rows) - 1} & set(range(len(rows)))):
        anchor = "end" if place else "start"
        x = WIDTH if place else 0
        drawn.append(
            f'<text x="{x}" y="{HOURS_HEIGHT - 4}" text-anchor="{anchor}">{escape(name(rows[place]))}</text>'
        )
    return svg(HOURS_HEIGHT, drawn)


def svg(height: int, drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {max(height, 1)}" role="img">{"".join(drawn)}</svg>'


def tip(row: Sizes, name: Name) -> str:
    return f"<title>{escape(name(row))}: {row.count:,} messages, {size_text(row.bytes)}</title>"


def table(rows: Sequence[Sizes], name: Name) -> str:
    heads = ("", "messages", "bytes", "least", "average", "p50", "p99", "most")
    lines = [f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"]
    for row in rows[:ROWS_MAX]:
        numbers = (row.count, row.bytes, row.least, round(row.average), row.p50, row.p99, row.most)
        cells = "".join(f"<td>{number:,}</td>" for number in numbers)
        lines.append(f"<tr><td>{escape(name(row))}</td>{cells}</tr>")
    left = f"<p>and {len(rows) - ROWS_MAX:,} more</p>" if len(rows) > ROWS_MAX else ""
    return f"<table>{''.join(lines)}</table>{left}"


def short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
