"""One of our brokers that counts the requests whose senders it checks one by one: `python -m scripts.bench.countedbroker -c
FILE`. A SIGUSR1 prints the count. The compiled module checks plain sends together, so these are not counted, and cost nothing
more here."""

from __future__ import annotations

import os
import runpy
import signal
import time
from pathlib import Path
from types import FrameType

from accesscontrol.guard import AccessGuard
from remoting.command import RemotingCommand
from remoting.peer import Peer

HEADING = "requests checked one by one: "
LOOK_AGAIN_S, SAID_S_MAX = 0.1, 10.0
refusal = AccessGuard.refusal
checked = 0


def counted(guard: AccessGuard, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
    global checked
    checked += 1
    return refusal(guard, peer, request)


def say(number: int, frame: FrameType | None) -> None:
    print(f"{HEADING}{checked}", flush=True)


def checked_one_by_one(pid: int, log: Path) -> int:
    """The count of a broker on this machine, whose output is in `log`."""
    said_before = log.read_text().count(HEADING)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + SAID_S_MAX
    while (said := log.read_text()).count(HEADING) == said_before or not said.endswith("\n"):
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker does not say how many requests it has checked; see {log}")
        time.sleep(LOOK_AGAIN_S)
    return int(said.rpartition(HEADING)[2].split()[0])


def main() -> None:
    setattr(AccessGuard, "refusal", counted)  # noqa: B010 - a method may not be assigned, says mypy
    signal.signal(signal.SIGUSR1, say)
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
