"""A probe for the least cost of copying a log in Python. One process writes from a mapping to a socket, and another reads from
the socket into a mapping of a new file, 256 KiB at a time.

Invariant: the bytes are not examined, and the only system calls are those that move them."""

from __future__ import annotations

import mmap
import multiprocessing
import socket
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

PIECE_BYTES = 256 << 10


@dataclass(frozen=True)
class Copy:
    """MB per second of wall clock, and per second of CPU of each end."""

    mb_per_second: float
    sender_mb_per_cpu_second: float
    receiver_mb_per_cpu_second: float


def send(source: Path, count: int, answer: Connection) -> None:
    with (
        source.open("rb") as file,
        mmap.mmap(file.fileno(), count, prot=mmap.PROT_READ) as mapping,
        socket.create_server(("127.0.0.1", 0)) as server,
        memoryview(mapping) as view,
    ):
        answer.send(server.getsockname()[1])
        connection, _ = server.accept()
        began = time.process_time()
        with connection:
            for at in range(0, count, PIECE_BYTES):
                connection.sendall(view[at : at + PIECE_BYTES])
        answer.send(time.process_time() - began)


def receive(target: Path, count: int, port: int, answer: Connection) -> None:
    with target.open("w+b") as file:
        file.truncate(count)
        with (
            mmap.mmap(file.fileno(), count) as mapping,
            memoryview(mapping) as view,
            socket.create_connection(("127.0.0.1", port)) as connection,
        ):
            began, cpu, at = time.perf_counter(), time.process_time(), 0
            while at < count:
                at += connection.recv_into(view[at : at + PIECE_BYTES])
            answer.send((time.perf_counter() - began, time.process_time() - cpu))


def copy(source: Path, count: int, directory: Path | None) -> Copy:
    """Copy the first `count` bytes of `source` to a file below `directory`, which is removed afterwards."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-", dir=directory) as folder:
        from_sender, to_sender = spawn.Pipe()
        sender = spawn.Process(target=send, args=(source, count, to_sender))
        sender.start()
        to_sender.close()  # so that the sender's end is noticed
        from_receiver, to_receiver = spawn.Pipe()
        arguments = (Path(folder) / "copy", count, from_sender.recv(), to_receiver)
        receiver = spawn.Process(target=receive, args=arguments)
        receiver.start()
        to_receiver.close()
        took, receiver_cpu = from_receiver.recv()
        sender_cpu = from_sender.recv()
        sender.join()
        receiver.join()
    return Copy(count / took / 1e6, count / sender_cpu / 1e6, count / receiver_cpu / 1e6)
