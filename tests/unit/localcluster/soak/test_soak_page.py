"""The page of a soak: self-contained, escaped, complete at any moment; and its verdicts."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from localcluster.history import SendOutcome
from localcluster.soak.book import Book, Fault
from localcluster.soak.figures import SoakFigure, column
from localcluster.soak.page import Chart, Line, Mark, SoakPage, VerdictRow
from localcluster.soak.recording import Recording
from localcluster.soak.verdict import MIB, SoakFindings, passed, rows

NAN = math.nan
ROWS = [
    VerdictRow("lost", True, "0"),
    VerdictRow("memory", False, "<more>"),
    VerdictRow("disk", None, "too short"),
]


def page(**changes: object) -> SoakPage:
    chart = Chart(
        "memory", True, [Line("broker-0", [0.0, 512.0, 1024.0]), Line("broker-1", [NAN, NAN, 256.0])]
    )
    given = {
        "title": "A soak",
        "facts": ["seed 1 < 2"],
        "rows": ROWS,
        "times_s": [0.0, 50.0, 100.0],
        "charts": [chart],
    }
    marks = [Mark(25.0, 50.0, "SIGKILL </script><b>")]
    return SoakPage(**{**given, "marks": marks, "details": [("Why", ["a & b"]), ("None", [])], **changes})  # type: ignore[arg-type]


def drawings(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def test_the_page_loads_nothing_from_elsewhere_and_escapes_every_text() -> None:
    html = page().html()
    assert not re.search(r"https?:|//[a-z]|src=|href=|url\(|@import", html)
    assert "&lt;more&gt;" in html and "a &amp; b" in html and "seed 1 &lt; 2" in html
    assert "<b>" not in html
    assert html.count("</script>") == 2
    assert "None" not in html


def test_lines_are_drawn_to_scale_with_breaks_at_missing_values() -> None:
    [drawing] = drawings(page().html())
    first, lone = (line.attrib["points"].split() for line in drawing.iter("polyline"))
    assert [tuple(map(float, point.split(","))) for point in first] == [(78, 168), (515, 88), (952, 6 + 2)]
    assert len(lone) == 2, "a single point is drawn as a dash"
    [band] = (rect for rect in drawing.iter("rect") if rect.attrib["class"] == "band")
    assert (float(band.attrib["x"]), float(band.attrib["width"])) == (296.5, 218.5)
    assert [title.text for title in drawing.iter("title")] == ["SIGKILL </script><b>"]
    labels = [text.text for text in drawing.iter("text")]
    assert labels[:5] == ["0 B", "256 B", "512 B", "768 B", "1.0 KiB"]
    assert labels[5:] == [
        "0:00",
        "0:10",
        "0:20",
        "0:30",
        "0:40",
        "0:50",
        "1:00",
        "1:10",
        "1:20",
        "1:30",
        "1:40",
    ]


def test_the_script_gets_every_value_of_every_moment() -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page().html(), re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    assert data["times"] == [0, 50, 100]
    assert [line["values"] for line in data["charts"][0]["lines"]] == [[0, 512, 1024], [None, None, 256]]
    assert data["marks"] == [{"from": 25, "to": 50, "text": "SIGKILL </script><b>"}]


def test_each_verdict_says_whether_it_holds() -> None:
    cells = re.findall(r'<td class="(\w+)">(.*?)</td>', page().html())
    assert cells == [("holds", "holds"), ("broken", "BROKEN"), ("open", "–")]


@pytest.mark.parametrize("values", [[], [NAN], [0.0], [5.0]])
def test_a_page_can_be_drawn_with_few_values(values: list[float]) -> None:
    times = [float(number) for number in range(len(values))]
    charts = [Chart("x", in_bytes, [Line("a", values)]) for in_bytes in (True, False)]
    assert len(drawings(page(times_s=times, charts=charts, marks=[]).html())) == 2


def steady(memory_at: float = 1.0) -> Recording:
    """Twenty minutes; in the last third broker-0's memory is multiplied by the factor."""
    recording = Recording()
    for number in range(240):
        factor = memory_at if number >= 160 else 1.0
        row = {
            column("broker-0", SoakFigure.MEMORY): 100 * MIB * factor,
            column("namesrv", SoakFigure.DISK): 4096.0,
        }
        recording.add(5.0 * number, {**row, column("broker-0", SoakFigure.DESCRIPTORS): 50.0})
    return recording


def verdicts(book: Book, recording: Recording, findings: SoakFindings) -> dict[str, VerdictRow]:
    return {row.what: row for row in rows(book, recording, findings, 64 * MIB, ["broker-0"], ["namesrv"])}


def test_a_soak_passes_when_all_messages_were_read_and_nothing_grew() -> None:
    found = verdicts(Book(1000), steady(), SoakFindings(retained=5))
    assert passed(found.values())
    assert found["acknowledged messages lost"] == VerdictRow(
        "acknowledged messages lost", True, "0; 5 retained ones read again at the end"
    )
    assert found["anonymous memory stays"].text == "broker-0 100.0 MiB → 100.0 MiB"
    assert found["disk taken by the store stays"].text == "namesrv 4.0 KiB → 4.0 KiB"


def test_verdicts_are_open_before_the_last_reading() -> None:
    found = verdicts(Book(1000), Recording(), SoakFindings())
    assert found["acknowledged messages lost"].holds is None
    assert found["open descriptors stays"] == VerdictRow(
        "open descriptors stays", None, "too short for a verdict"
    )


@pytest.mark.parametrize(
    ("what", "findings"),
    [
        ("a process ended by itself", SoakFindings(ended=["broker-0 has ended"], retained=0)),
        ("a strike that was not overcome", SoakFindings(strikes=["not whole"], retained=0)),
        ("errors in logs", SoakFindings(log_lines=1, retained=0)),
    ],
)
def test_each_unexpected_finding_fails_a_soak(what: str, findings: SoakFindings) -> None:
    found = verdicts(Book(1000), steady(), findings)
    assert [row.what for row in found.values() if row.holds is False] == [what]


def test_growth_and_lost_messages_fail_a_soak() -> None:
    grown = verdicts(Book(1000), steady(1.5), SoakFindings(retained=0))["anonymous memory stays"]
    assert grown.holds is False
    assert grown.text == "broker-0 100.0 MiB → 150.0 MiB (at most 118.0 MiB)"
    book = Book(1000)
    book.faults.add(Fault.LOST, "one")
    book.faults.add(Fault.GAP, "two")
    book.end(book.begin(), SendOutcome.UNKNOWN)
    found = verdicts(book, steady(), SoakFindings())
    assert found["acknowledged messages lost"].holds is False
    assert found["other broken promises"].text == "1 gap in a queue"
    assert found["messages"].text == "0 acknowledged, 0 refused, 1 of unknown outcome; 0 read by the consumer"
