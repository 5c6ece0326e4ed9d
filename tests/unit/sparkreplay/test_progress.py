"""Progress: nothing on stdout, nothing when quiet, plain lines where there is no terminal."""

from __future__ import annotations

import io

import pytest

from sparkreplay.engine.progress import Bar, Lines, Silent, progress, size_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_form_of_progress_depends_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress("scan", 10, quiet=True, stream=Terminal()), Silent)
    assert isinstance(progress("scan", 10, quiet=False, stream=Terminal()), Bar)
    assert isinstance(progress("scan", 10, quiet=False, stream=io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress("scan", 10, quiet=False, stream=Terminal()), Lines)
    monkeypatch.delenv("TERM")
    assert isinstance(progress("scan", 10, quiet=False, stream=Terminal()), Lines)


def test_progress_lines_show_bytes_rows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("sparkreplay.engine.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    with progress("export", 100_000_000, quiet=False, stream=stream) as shown:
        now[0] = 7
        shown.advance(0, 0)  # nothing to report yet: no rate, no time left
        for second in (1, 4, 5, 6, 9):
            now[0] = second
            shown.advance(5_000_000, 1000)
    assert stream.getvalue() == "export: 15.0 MB of 100.0 MB, 3,000 rows, 3.0 MB/s, 28 s left\n"


def test_a_short_run_prints_no_progress() -> None:
    stream = io.StringIO()
    with progress("scan", 10, quiet=False, stream=stream) as shown:
        shown.advance(10, 1)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (1000, "1.0 kB"), (12_300_000, "12.3 MB"), (2.5e12, "2,500.0 GB")]
)
def test_sizes_are_powers_of_ten(size: float, text: str) -> None:
    assert size_text(size) == text
