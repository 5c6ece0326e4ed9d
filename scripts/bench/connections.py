"""The broker's cost of idle client connections: resident memory, and the latency of other clients' sends.

    python -m scripts.bench.connections [--connections 10000] [--runs 3]

There are one name server, one controller and one broker with shipped settings. Every connection registers a client with one
heartbeat, as a producer does, and is then silent. One sender waits for each acknowledgement before it sends its next message
of 1 KiB. It is timed without the connections, with them, and after they are closed again. The exit code is 1 if memory misses
its target."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import statistics
import struct
import time

from mqclient.client import Client
from mqruntime.clock import SystemClock
from remoting.bodies.heartbeats import HeartbeatData, ProducerData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import encode
from scripts.bench.measured import cpu_seconds, machine, own_mib, resident_mib, spread
from scripts.bench.options import options
from scripts.bench.wholecluster import whole_cluster

RESIDENT_MIB_TARGET = 250
TOPIC = "beside"
BODY = bytes(1024)
SENDS = 10_000
WARM_UP_SENDS = 500
SOURCES = 20  # addresses 127.0.0.2 and up, so that ports do not run short
SPARE_FILES = 200
IDLE_S = 10


def idle_clients(address: str, count: int) -> list[socket.socket]:
    """Open `count` connections to the broker, whose heartbeats the broker has answered."""
    host, _, port = address.rpartition(":")
    opened = []
    for number in range(count):
        source = f"127.0.0.{2 + number % SOURCES}"
        connection = socket.create_connection((host, int(port)), timeout=10, source_address=(source, 0))
        opened.append(connection)
        beat = HeartbeatData(client_id=f"{source}@{number}", producer_data_set=[ProducerData("bench")])
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=beat.encode())
        connection.sendall(b"".join(encode(request)))
    for connection in opened:
        (length,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(length, socket.MSG_WAITALL)
    return opened


async def send_latencies(namesrv: str) -> list[float]:
    """Milliseconds from each send to its acknowledgement."""
    took = []
    async with Client(namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer = client.producer("bench")
        for number in range(WARM_UP_SENDS + SENDS):
            began = time.perf_counter()
            result = await producer.send(TOPIC, BODY)
            if number >= WARM_UP_SENDS:
                took.append((time.perf_counter() - began) * 1000)
            assert result.acknowledged, result
    return sorted(took)


class Figures:
    """The measurements of all runs, by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def note_sends(self, when: str, namesrv: str) -> None:
        took = asyncio.run(send_latencies(namesrv))
        self.note(f"send {when}, median ms", statistics.median(took))
        self.note(f"send {when}, p99 ms", took[len(took) * 99 // 100])


def run_once(figures: Figures, connections: int) -> None:
    with whole_cluster(controllers=1, brokers=1) as cluster:
        asyncio.run(cluster.create_topic(TOPIC))
        layout = cluster.layout
        broker = cluster.states()["broker-0"]
        assert broker is not None
        figures.note("broker before load, MiB", resident_mib(broker.pid))
        figures.note_sends("without", layout.namesrv)
        figures.note("broker after sends, MiB", resident_mib(broker.pid))
        opened = idle_clients(layout.address("broker-0"), connections)
        figures.note("broker with connections, MiB", resident_mib(broker.pid))
        figures.note("of which no file backs, MiB", own_mib(broker.pid))
        before = cpu_seconds(broker.pid)
        time.sleep(IDLE_S)
        figures.note(
            "broker's CPU while all are silent, %", (cpu_seconds(broker.pid) - before) / IDLE_S * 100
        )
        figures.note_sends("with", layout.namesrv)
        for connection in opened:
            connection.close()
        figures.note_sends("after", layout.namesrv)
        figures.note("broker afterwards, MiB", resident_mib(broker.pid))


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < arguments.connections + SPARE_FILES:
        raise SystemExit(
            f"only {hard} open files are allowed; raise the hard limit or take fewer --connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{arguments.connections} connections; {machine()}")
    figures = Figures()
    for _ in range(arguments.runs):
        run_once(figures, arguments.connections)
    for name, values in figures.values.items():
        print(f"{name:<40} {spread(values, '', 2)}")
    print(f"target {RESIDENT_MIB_TARGET} MiB; {machine()}")
    return int(statistics.median(figures.values["broker with connections, MiB"]) > RESIDENT_MIB_TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
