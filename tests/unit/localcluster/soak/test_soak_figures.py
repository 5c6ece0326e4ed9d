"""The figures of a soak: values of /proc, the number of samples, flatness, and log lines that are errors."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.soak.figures import formatted
from localcluster.soak.flatness import Allowance, Flatness, flatness
from localcluster.soak.logwatch import LogWatch, is_bad
from localcluster.soak.proc import TICKS_PER_SECOND, anonymous_bytes, cpu_seconds, disk_bytes, taken_by
from localcluster.soak.recording import Recording

STATUS = "Name:\tmq (b) x\nVmRSS:\t   51200 kB\nRssAnon:\t   30720 kB\nRssFile:\t   20480 kB\n"
STAT = "7 (mq (b) x) S 1 7 7 0 -1 4194560 9000 0 12 0 250 50 0 0 20 0 4 0 99 1000 500"
A_TENTH = Allowance(0.1, 5)


def test_memory_and_cpu_time_are_read_with_any_process_name() -> None:
    assert anonymous_bytes(STATUS) == 30 << 20
    assert cpu_seconds(STAT) == 300 / TICKS_PER_SECOND
    with pytest.raises(ValueError, match="RssAnon"):
        anonymous_bytes("Name:\tzombie\nState:\tZ (zombie)\n")


def test_a_running_process_has_figures_and_an_ended_one_has_none() -> None:
    own = taken_by(os.getpid())
    assert own is not None
    assert own.memory > 1 << 20 and own.descriptors > 2 and own.cpu_s > 0
    child = subprocess.Popen([sys.executable, "-c", ""])
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is None:
        pass
    assert taken_by(child.pid) is None  # a zombie
    child.wait()
    assert taken_by(child.pid) is None


def test_files_count_with_their_allocated_blocks(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "full").write_bytes(b"x" * 65536)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 65536 <= disk_bytes(tmp_path) < 1 << 20
    assert disk_bytes(tmp_path / "none") == 0


def test_a_recording_stays_short_and_spans_the_whole_run() -> None:
    recording = Recording(rows_max=8)
    for second in range(100):
        recording.add(second, {"a": second, **({"b": 1.0} if second >= 50 else {})})
    assert len(recording.times_s) < 8
    assert recording.times_s[0] == 0 and recording.times_s[-1] >= 80
    steps = {after - before for before, after in zip(recording.times_s, recording.times_s[1:], strict=False)}
    assert steps == {16}
    assert list(recording.column("a")) == list(recording.times_s)
    assert [math.isnan(value) for value in recording.column("b")] == [
        time_s < 50 for time_s in recording.times_s
    ]
    assert all(math.isnan(value) for value in recording.column("c"))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 100, 100], Flatness(100, 100, 115)),
        ([1, 100, 115], Flatness(100, 115, 115)),
        ([1, 100, 116], Flatness(100, 116, 115)),
        ([500, 100, 20], Flatness(100, 20, 115)),
    ],
)
def test_medians_of_the_last_two_thirds_show_growth(values: list[float], found: Flatness) -> None:
    times = [10.0 * number for number in range(90)]
    judged = flatness(times, [values[number // 30] for number in range(90)], A_TENTH)
    assert judged is not None
    assert judged == pytest.approx(found)
    assert judged.is_flat == (found.last <= 115)


def test_a_single_peak_is_no_growth_and_a_steady_slope_is() -> None:
    times = [10.0 * number for number in range(90)]
    peak = [1000.0 if number == 80 else 100.0 for number in range(90)]
    slope = [100.0 + number for number in range(90)]
    assert flatness(times, peak, A_TENTH).is_flat  # type: ignore[union-attr]
    assert not flatness(times, slope, A_TENTH).is_flat  # type: ignore[union-attr]


def test_a_short_run_or_few_values_give_no_verdict() -> None:
    assert flatness([], [], A_TENTH) is None
    assert flatness([1.0 * number for number in range(599)], [1.0] * 599, A_TENTH) is None
    times = [10.0 * number for number in range(90)]
    assert flatness(times, [1.0] * 60 + [math.nan] * 19 + [1.0] * 11, A_TENTH) is None
    assert flatness(times, [1.0] * 60 + [math.nan] * 18 + [1.0] * 12, A_TENTH) is not None


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        ("2026-01-02T03:04:05.678Z ERROR broker.role role refused: epoch 1", True),
        ("2026-01-02T03:04:05.678Z CRITICAL mqruntime.serve fatal: x", True),
        ("2026-01-02T03:04:05.678Z WARNING ha.slave ERROR in the text", False),
        ("Traceback (most recent call last):", True),
        ("MemoryError: ", True),
        ('  File "x.py", line 1, in f', False),
    ],
)
def test_errors_and_fatal_messages_are_bad_lines(line: str, bad: bool) -> None:
    assert is_bad(line) is bad


def test_each_complete_line_of_a_growing_log_is_examined_once(tmp_path: Path) -> None:
    log, error = tmp_path / "broker-0.log", "2026-01-02T03:04:05.678Z ERROR broker.role role refused"
    watch = LogWatch([("broker-0", log)])
    watch.look()
    with log.open("a") as file:
        for part, bad in ((f"{error}\nfine\n{error[:30]}", 1), (f"{error[30:]}\n", 2), ("fine\n", 2)):
            file.write(part)
            file.flush()
            watch.look()
            assert watch.bad == bad
    assert watch.lines == [f"broker-0: {error}"] * 2


@pytest.mark.parametrize(
    ("value", "in_bytes", "text"),
    [
        (math.nan, True, "-"), (512, True, "512 B"), (1536, True, "1.5 KiB"), (64 << 20, True, "64.0 MiB"),
        (3 << 30, True, "3.0 GiB"), (12345, False, "12,345"), (7, False, "7"), (7.25, False, "7.2"),
    ],
)  # fmt: skip
def test_values_are_formatted_briefly(value: float, in_bytes: bool, text: str) -> None:
    assert formatted(value, in_bytes=in_bytes) == text
