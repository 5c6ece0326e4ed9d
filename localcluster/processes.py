"""Starts the processes of a cluster, records them in the cluster's directory, and signals a recorded process only if it is
still the same process.

Invariant: a signal is sent through a pidfd, and only to a process whose pid, start time and boot are those recorded at its
start. So a signal never reaches a process that reuses the pid.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

SOURCE_ROOT = Path(__file__).resolve().parent.parent
START_TICKS_FIELD = 19  # in /proc/PID/stat, counted after the command's name
THREADS_FIELD = 17
STATE_FIELD = 0


class BooksDamaged(ValueError):
    """The table of processes is unreadable, so no process can be signalled safely."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged ({why}); end the processes by hand, then remove that file")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies one process. The pid alone is not enough, because pids are reused."""

    pid: int
    start_ticks: int  # since boot, in clock ticks
    boot_id: str

    @classmethod
    def of_child(cls, pid: int) -> Self:
        """The identity of a child process that has not been waited for."""
        fields = _stat_fields(pid)
        assert fields is not None, "it stays in /proc until it is waited for"
        return cls(pid, int(fields[START_TICKS_FIELD]), _boot_id())

    def state(self) -> str | None:
        """The kernel's letter for the state (R, S, T stopped, ...). None if the process is gone or a zombie. A zombie with
        other threads is not gone: while a thread waits for a disk, the files and ports of the process are still open."""
        fields = _stat_fields(self.pid)
        if fields is None or int(fields[START_TICKS_FIELD]) != self.start_ticks or _boot_id() != self.boot_id:
            return None
        state = fields[STATE_FIELD]
        gone = state == "X" or (state == "Z" and int(fields[THREADS_FIELD]) <= 1)
        return None if gone else state

    def send(self, number: signal.Signals) -> bool:
        """Send the signal. Returns False if the process is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if self.state() is None:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process has ended, and reap it if it is a child. Returns False if it still runs."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if self.state() is not None:
                waiter = select.poll()
                waiter.register(handle, select.POLLIN)
                if not waiter.poll(timeout_s * 1000):
                    return False
        finally:
            os.close(handle)
        with suppress(ChildProcessError):  # another process' child
            os.waitpid(self.pid, os.WNOHANG)
        return True


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Handle Ctrl-C only at the end of this block, so that it cannot come between a process's start and its record. This has
    no effect outside the main thread, because only the main thread handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


def spawn(module: str, arguments: list[str], log: Path) -> ProcessIdentity:
    """Start `python -m module arguments` in a new session, and append its output to `log`.

    Inheritable file descriptors (the port lease) are passed on. The process outlives this one.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        command_of(module, arguments),
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return ProcessIdentity.of_child(pid)


def command_of(module: str, arguments: list[str]) -> list[str]:
    """`python -m module arguments`, with this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process' environment, with these sources first in the path."""
    paths = [str(SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A started process. `asked_to_end` is set once a signal was sent that ends it."""

    identity: ProcessIdentity
    asked_to_end: bool = False


class ProcessTable:
    """Name -> record of a cluster's processes, stored in `processes.json`. For tools, `pids.json` lists the living
    processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "processes.json"

    def read(self) -> dict[str, ProcessRecord]:
        """The newest process that was started under each name, living or not. Raises `BooksDamaged`."""
        try:
            return {
                name: ProcessRecord(ProcessIdentity(**row["identity"]), row["asked_to_end"])
                for name, row in json.loads(self._file.read_text()).items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BooksDamaged(self._file, repr(error)) from None

    @contextmanager
    def changing(self) -> Iterator[dict[str, ProcessRecord]]:
        """The table, to be changed in this context. It is written back at the end. Only one process at a time can change it."""
        with (self._directory / "processes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            table = self.read()
            try:
                yield table
            finally:
                self._write(table)

    def _write(self, table: dict[str, ProcessRecord]) -> None:
        with interrupts_held():
            _replace(self._file, {name: asdict(record) for name, record in table.items()})
            living = {
                name: record.identity.pid
                for name, record in table.items()
                if record.identity.state() is not None
            }
            _replace(self._directory / "pids.json", living)


def _replace(path: Path, value: object) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    temporary.replace(path)


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
