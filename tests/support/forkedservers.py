"""Servers of a test's cluster, forked from one process that has imported what they are made of: most of what `python -m broker`
and its like take to start are imports.

Invariant: a server is a process as `localcluster.processes.spawn` makes it, with the same arguments, environment, folder and
inherited files. That servers start by their commands is shown where they do not come from here: by the tests of samples,
documents, the longest soak and bad days at start.

`python -m tests.support.forkedservers MODULE ARGUMENTS` runs a module whose clusters have their servers from here."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from unittest.mock import patch

from localcluster.processes import ProcessIdentity, command_of, environment
from tests.support.serverforks import MESSAGE_BYTES_MAX


@contextmanager
def forked_servers() -> Iterator[None]:
    """Clusters of this process have their servers from here."""
    servers = ForkedServers()
    try:
        with patch("localcluster.cluster.spawn", servers.spawn):
            yield
    finally:
        servers.close()


class ForkedServers:
    """Asks the process that servers are forked from, which starts with the first of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self, module: str, arguments: list[str], log: Path) -> ProcessIdentity:
        """As `localcluster.processes.spawn`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch(0o600)  # it is there on return
        asked = {
            "module": module,
            "arguments": arguments,
            "environment": environment(),
            "folder": str(Path.cwd()),
            "log": str(log),
        }
        with self._lock:
            line = self._asked_on()
            socket.send_fds(line, [json.dumps(asked).encode()], inherited())
            return ProcessIdentity(**json.loads(line.recv(MESSAGE_BYTES_MAX)))

    def close(self) -> None:
        if self._line is not None and self._process is not None:
            self._line.close()
            self._process.wait()

    def _asked_on(self) -> socket.socket:
        if self._line is None:
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    command_of("tests.support.serverforks", [str(theirs.fileno())]),
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        return self._line


def inherited() -> list[int]:
    """The files that a process which is started here gets, leases of ports among them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listed folder itself, closed by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


if __name__ == "__main__":
    with forked_servers():
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
