"""A broker of ours that tells where its CPU goes: `python -m scripts.bench.sampledbroker -c FILE`.

Each SIGUSR1 switches sampling on or off. Once it has ended, its output says in which functions it was found, looked at each
4 ms of CPU, and how often they were under way. What the kernel or uvloop does before a function is called, as reading from a
socket or writing to one, is found in that function.

Invariant: only samples cost anything, so that cheap functions that are called often look no more expensive than they are."""

from __future__ import annotations

import os
import runpy
import signal
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from localcluster.processes import SOURCE_ROOT

INTERVAL_S = 0.004  # as often as most kernels look
SHOWN = 15
ALWAYS = 0.99  # of the samples: what is under way in so many leads to everything
HEADING = "where the CPU went"
SWITCHED_S = 0.1

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


def named(code: CodeType) -> str:
    path = Path(code.co_filename)
    if path.is_relative_to(SOURCE_ROOT):
        return f"{path.relative_to(SOURCE_ROOT)} {code.co_qualname}"
    return f"{path.name} {code.co_qualname}"


def report() -> str:
    """Lines of a table: share of all samples in the function itself, and with what it calls."""
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


def switch_sampling(pid: int) -> None:
    """Of a broker that runs here."""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(SWITCHED_S)


def samples_of(log: Path) -> str:
    """What an ended broker said."""
    said = log.read_text()
    return said[said.find(HEADING) :] if HEADING in said else f"the broker said nothing; see {log}"


def main() -> None:
    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, switch)
    try:
        runpy.run_module("broker", run_name="__main__", alter_sys=True)
    finally:
        print(report(), flush=True)


if __name__ == "__main__":
    main()
