"""Blocks of loopback ports, each used by one cluster at a time.

Invariant: the lock file of a block names its cluster. Every process of that cluster inherits a shared flock on the file, so a
block is free exactly when no process of its cluster lives. Blocks lie below the range from which the kernel takes ports for
outgoing connections, so a stopped broker's port stays free for its restart.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import zlib
from pathlib import Path

FIRST_PORT = 20_000
END_PORT = 32_000
BLOCK_PORTS = 40


class PortsTaken(OSError):
    """The ports are not free. The text names the cluster that has them, or the port that is in use."""


class PortLease:
    """The open and locked lock files of all blocks that a span of ports touches. Started processes inherit them, and so keep
    the lock after this process has closed them."""

    def __init__(self, ports: range, files: list[int]) -> None:
        self.ports = ports
        self.files = files

    def release(self) -> None:
        """Release this process's share of the locks. Processes that inherited the files keep their shares."""
        for file in self.files:
            os.close(file)
        self.files = []


def lease_any(directory: Path, count: int) -> PortLease:
    """Lease `count` consecutive ports that no other cluster has and on which nothing listens. Raises `PortsTaken`.

    The search begins at a place that depends on the directory, so a cluster tends to get the same ports again.
    """
    blocks = -(-count // BLOCK_PORTS)
    places = (END_PORT - FIRST_PORT) // BLOCK_PORTS - blocks + 1
    first = zlib.crc32(str(directory).encode()) % places
    for step in range(places):
        base = FIRST_PORT + (first + step) % places * BLOCK_PORTS
        try:
            return lease(directory, range(base, base + count))
        except PortsTaken:
            continue
    raise PortsTaken(f"no {count} free ports in a row between {FIRST_PORT} and {END_PORT}")


def lease(directory: Path, ports: range, *, in_use: frozenset[int] = frozenset()) -> PortLease:
    """Lease these ports for the cluster in `directory`, which may have them already. Raises `PortsTaken`.

    `in_use` are ports on which the cluster's own living processes listen.
    """
    files: list[int] = []
    try:
        for block in range(ports.start // BLOCK_PORTS, (ports.stop - 1) // BLOCK_PORTS + 1):
            files.append(_share(_lock_file(block), directory))
        for port in ports:
            if port not in in_use:
                _check_free(port)
    except PortsTaken:
        for file in files:
            os.close(file)
        raise
    return PortLease(ports, files)


def _lock_file(block: int) -> Path:
    folder = Path(tempfile.gettempdir()) / f"autoswitch-mq-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{block * BLOCK_PORTS}.lock"


def _share(path: Path, directory: Path) -> int:
    """A shared lock on `path`, which must name `directory`. If no process holds the lock, the file is rewritten."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, str(directory).encode(), 0)
        except BlockingIOError:
            pass  # a process has it, perhaps one of this cluster
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        owner = os.pread(file, 4096, 0).decode(errors="replace")
        if owner != str(directory):
            raise PortsTaken(f"ports of {path.stem} on are used by the cluster in {owner}")
    except BlockingIOError:
        os.close(file)
        raise PortsTaken(f"ports of {path.stem} on are being claimed by another cluster") from None
    except PortsTaken:
        os.close(file)
        raise
    os.set_inheritable(file, True)
    return file


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortsTaken(f"port {port} cannot be used: {error.strerror}") from None
