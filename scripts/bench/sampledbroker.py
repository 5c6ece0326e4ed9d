"""One of our brokers that prints which functions use its CPU: `python -m scripts.bench.sampledbroker -c FILE`.

A SIGUSR1 begins the sampling, each few milliseconds of CPU, and the next SIGUSR1 ends it. Then the broker prints in which
functions it was found, and how often they were under way. Time of the kernel or uvloop before a function is called, such as
reading from a socket, counts for that function.

Invariant: only samples cost CPU, so cheap functions that are called often do not look more expensive than they are."""

from __future__ import annotations

import os
import runpy
import signal
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from localcluster.processes import SOURCE_ROOT

INTERVAL_S = 0.002  # kernels look every 1 to 10 ms
SHOWN = 15
ALWAYS = 0.99  # a function under way in this share of samples leads to everything
HEADING = "where the CPU went"
LOOK_AGAIN_S, SAID_S_MAX = 0.1, 10.0

here: Counter[CodeType] = Counter()
under_way: Counter[CodeType] = Counter()


def sample(number: int, frame: FrameType | None) -> None:
    if frame is None:
        return
    here[frame.f_code] += 1
    seen = set()
    while frame is not None:
        seen.add(frame.f_code)
        frame = frame.f_back
    under_way.update(seen)


def switch(number: int, frame: FrameType | None) -> None:
    running, _ = signal.getitimer(signal.ITIMER_PROF)
    interval = 0.0 if running else INTERVAL_S
    signal.setitimer(signal.ITIMER_PROF, interval, interval)
    if running:
        print(report(), flush=True)
        here.clear()
        under_way.clear()


def named(code: CodeType) -> str:
    path = Path(code.co_filename)
    if path.is_relative_to(SOURCE_ROOT):
        return f"{path.relative_to(SOURCE_ROOT)} {code.co_qualname}"
    return f"{path.name} {code.co_qualname}"


def report() -> str:
    """Lines of a table: the share of all samples in the function itself, and in the function with everything that it calls."""
    total = sum(here.values())
    if not total:
        return f"{HEADING}: no samples"
    lines = [f"{HEADING}, {total:,} samples", "| itself | with callees | function |", "|---|---|---|"]
    for code, count in here.most_common(SHOWN):
        lines.append(f"| {count / total:.1%} | {under_way[code] / total:.1%} | {named(code)} |")
    lines += ["", "| with callees | function |", "|---|---|"]
    leading = [(code, count) for code, count in under_way.most_common() if count < ALWAYS * total]
    lines += [f"| {count / total:.1%} | {named(code)} |" for code, count in leading[: 2 * SHOWN]]
    return "\n".join(lines)


def begin_sampling(pid: int) -> None:
    """Begin to sample a broker on this machine."""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(LOOK_AGAIN_S)


def end_sampling(pid: int, log: Path) -> str:
    """End the sampling, and return the report of the broker, whose output is in `log`."""
    said_before = log.read_text().count(HEADING)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + SAID_S_MAX
    while (said := log.read_text()).count(HEADING) == said_before:
        if time.monotonic() > deadline:
            return f"the broker says nothing; see {log}"
        time.sleep(LOOK_AGAIN_S)
    time.sleep(LOOK_AGAIN_S)  # until all of it is there
    said = log.read_text()
    return said[said.rfind(HEADING) :]


def main() -> None:
    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, switch)
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
