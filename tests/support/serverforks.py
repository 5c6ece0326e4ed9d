"""The process that servers of tests are forked from: `python -m tests.support.serverforks FILE`, with the number of an open
socket on which they are asked for.

Invariant: a server is in a session of its own, has no file but those it is given, and runs the `__main__` of its module as its
command would, to Python's own end."""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from types import FrameType
from typing import Any

from localcluster.processes import ProcessIdentity

IMPORTED = (
    "broker.app",
    "controller.adoption",
    "controller.server",
    "messagestore.dispatch.bulkentries",
    "messagestore.bulk.layouts",
    "mqruntime.collector",
    "mqruntime.realruntime",
    "namesrv.server",
    "uvloop",
)
MESSAGE_BYTES_MAX = 1 << 17
FILES_MAX = 64


def asked_of_a_server(line: socket.socket) -> dict[str, Any] | None:
    """Forks one for each request that comes. Returns in it, with what is asked of it; here with None, once nobody asks."""
    signal.signal(signal.SIGCHLD, reap)
    while True:
        data, files, _, _ = socket.recv_fds(line, MESSAGE_BYTES_MAX, FILES_MAX)
        if not data:
            return None
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until it is known who it is
        pid = os.fork()
        if not pid:
            for file in files:
                os.set_inheritable(file, True)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            asked: dict[str, Any] = json.loads(data)
            return asked
        for file in files:
            os.close(file)
        line.send(json.dumps(asdict(ProcessIdentity.of_child(pid))).encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def reap(number: int, frame: FrameType | None) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(asked: dict[str, Any]) -> None:
    """Runs the module as its command does, to its end."""
    os.setsid()
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()  # what all share stays shared
    with socket.socket(fileno=int(sys.argv[1])) as line:
        asked = asked_of_a_server(line)
    if asked is not None:
        become(asked)


if __name__ == "__main__":
    main()
