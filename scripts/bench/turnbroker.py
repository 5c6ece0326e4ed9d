"""A broker of this project that measures its event loop: `python -m scripts.bench.turnbroker -c FILE`.

A timer of one ms notes how much CPU time of the loop's thread has passed since its last call. The greatest value is the
longest turn of the loop, whatever else the machine does. SIGUSR2 prints it and begins a new measurement. With SIGUSR1 the
broker samples its CPU, as scripts.bench.sampledbroker does."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import time
from pathlib import Path

from mqruntime import tasks
from scripts.bench import sampledbroker

TURN_S = 0.001
SAID = "longest turn of the loop, ms:"
LOOK_AGAIN_S, SAID_S_MAX = 0.05, 20.0


class LoopTurns:
    """The turns of the loop that starts the first task."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._before_s = 0.0

    def begin(self) -> None:
        self._before_s = time.thread_time()
        asyncio.get_running_loop().call_later(TURN_S, self._again)

    def _again(self) -> None:
        now_s = time.thread_time()
        self.longest_s, self._before_s = max(self.longest_s, now_s - self._before_s), now_s
        asyncio.get_running_loop().call_later(TURN_S, self._again)

    def say(self, number: int, frame: object) -> None:
        print(f"{SAID} {1000 * self.longest_s:.2f}", flush=True)
        self.longest_s = 0.0


def longest_turn_ms(pid: int, log: Path) -> float:
    """The longest turn, since the last request, of the broker whose output is in `log`."""
    before = log.read_text().count(SAID)
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + SAID_S_MAX
    while (said := log.read_text()).count(SAID) == before:
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker reports no turns; see {log}")
        time.sleep(LOOK_AGAIN_S)
    return float(said[said.rfind(SAID) + len(SAID) :].split()[0])


def main() -> None:
    turns = LoopTurns()
    first = tasks.Tasks.start

    def start(self: tasks.Tasks, *arguments: object, **named: object) -> object:
        tasks.Tasks.start = first  # type: ignore[method-assign]
        turns.begin()
        return first(self, *arguments, **named)  # type: ignore[arg-type]

    tasks.Tasks.start = start  # type: ignore[method-assign, assignment]
    signal.signal(signal.SIGUSR2, turns.say)
    signal.signal(signal.SIGPROF, sampledbroker.sample)
    signal.signal(signal.SIGUSR1, sampledbroker.switch)
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
