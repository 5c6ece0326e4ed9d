"""A DLedger group of processes, on separate ports and in a folder that is removed afterwards.

Invariant: every started process is ended, even one that is stopped by a signal."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import ports
from localcluster.processes import ProcessIdentity, spawn

END_S = 20.0


class LedgerGroup:
    """Runs `module` with `--peers`, `--id` and `--store`, after the words `first`, for each member n0, n1, ..."""

    def __init__(self, module: str, *first: str, size: int = 3) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autoswitch-mq-ledger-")
        self.root = Path(self._folder.name)
        self._lease = ports.lease_any(self.root, size)
        self._command = module, first
        self.peers = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(self._lease.ports)}
        self._processes: dict[str, ProcessIdentity] = {}

    @property
    def peer_list(self) -> str:
        return ";".join(f"{name}-{address}" for name, address in self.peers.items())

    def __enter__(self) -> Self:
        for name in self.peers:
            self.start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._processes:
            self.kill(name)
        self._lease.release()
        self._folder.cleanup()

    def start(self, name: str) -> None:
        module, first = self._command
        arguments = ["--peers", self.peer_list, "--id", name, "--store", str(self.root / name)]
        self._processes[name] = spawn(module, [*first, *arguments], self.log(name))

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def said(self) -> str:
        """The end of each member's output."""
        return "\n".join(f"{name}: {self.log(name).read_text()[-2000:]}" for name in self._processes)

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send(number)

    def kill(self, name: str) -> None:
        self.end(name, signal.SIGKILL)

    def end(self, name: str, number: signal.Signals) -> None:
        """Send the signal to the member, and wait until it has ended."""
        self._processes[name].send(number)
        if not self._processes[name].wait_gone(END_S):
            raise SystemExit(f"{name} does not end; its output\n{self.log(name).read_text()[-2000:]}")
