"""A probe for the least cost of a send in Python. `python -m scripts.bench.bareloop FILE` prints its port and serves.

On uvloop, the server parses each request's header with orjson, packs a record's head with `struct`, writes it with the body to
a mapping of a new file, and formats a reply. One write answers all requests of one receive. Nothing is checked, replicated,
dispatched or kept.

Invariant: the probe understands the frames of scripts.bench.lightclient, and does no more than is described here."""

from __future__ import annotations

import asyncio
import mmap
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from struct import Struct
from typing import cast

import orjson
import uvloop

from localcluster.processes import command_of, environment
from remoting.frame import START
from scripts.bench.lightclient import Sends, load
from scripts.bench.measured import cpu_seconds, high

MAPPED_BYTES = 1 << 30
RECORD_HEAD = Struct(">iIiiiqqiq8sq8siqi")
ROOM = 64 << 10


class BareServer(asyncio.Protocol):
    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._at = 0
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        at, end, mapping, place = 0, len(data), self._mapping, self._at
        view = memoryview(data)
        answers: list[bytes] = []
        while end - at >= START.size:
            length, head_bytes = START.unpack_from(data, at)
            if end - at < 4 + length:
                break
            body_at = at + START.size + (head_bytes & 0xFFFFFF)
            request = orjson.loads(view[at + START.size : body_at])
            ext = request["extFields"]
            queue, born, properties = int(ext["e"]), int(ext["g"]), ext["i"].encode()
            at += 4 + length
            if place + length + ROOM > MAPPED_BYTES:
                place = 0
            size = RECORD_HEAD.size + at - body_at + len(properties)
            RECORD_HEAD.pack_into(
                mapping, place, size, 1, 0, queue, 0, 0, place, 0, born, b"", born, b"", 0, 0, at - body_at
            )
            body_to = place + RECORD_HEAD.size
            mapping[body_to : body_to + at - body_at] = view[body_at:at]
            mapping[body_to + at - body_at : place + size] = properties
            said = {"msgId": f"0A0102030A5C18B4{place:016X}", "queueId": ext["e"], "queueOffset": str(place)}
            answer = orjson.dumps({"code": 0, "flag": 1, "opaque": request["opaque"], "extFields": said})
            answers += START.pack(4 + len(answer), len(answer)), answer
            place += size
        self._at, self._unread = place, data[at:]
        if answers:
            self._transport.write(b"".join(answers))


async def serve(file: Path) -> None:
    with file.open("w+b") as opened:
        opened.truncate(MAPPED_BYTES)
        mapping = mmap.mmap(opened.fileno(), MAPPED_BYTES)
        server = await asyncio.get_running_loop().create_server(lambda: BareServer(mapping), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


@contextmanager
def bare_server(directory: Path | None) -> Iterator[tuple[str, int]]:
    """Run the probe's server. The result is its address and pid."""
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-", dir=directory) as folder:
        command = command_of("scripts.bench.bareloop", [f"{folder}/mapped"])
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
            finally:
                process.kill()


@dataclass(frozen=True)
class Probe:
    """Figures for single messages: messages per second with many under way, the server's cost of one, the ms of one alone."""

    per_second: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


def probe(directory: Path | None, body_bytes: int, in_flight: int, seconds: float) -> Probe:
    """The probe's figures on this machine at this time."""
    sends = Sends("bench", 8, body_bytes)
    with bare_server(directory) as (address, pid):
        load(address, sends, in_flight, 0.2)  # warm up all code
        before = cpu_seconds(pid)
        many = load(address, sends, in_flight, seconds)
        cpu_us = (cpu_seconds(pid) - before) / many.messages * 1e6
        alone = load(address, sends, 1, seconds / 2)
    return Probe(many.messages / many.seconds, cpu_us, median(alone.took_ms), high(alone.took_ms))


def mean(first: Probe, second: Probe) -> Probe:
    """The mean of a probe before and a probe after."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return Probe(*((one + other) / 2 for one, other in pairs))


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
