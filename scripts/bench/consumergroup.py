"""The broker's cost of one consumer that joins or leaves a large group, and how long another client's send waits meanwhile.

    python -m scripts.bench.consumergroup [--members 1000] [--runs 3]

There are one name server, one controller and one broker with shipped settings. Each member is a connection that sends one
heartbeat. When a member is notified that its group changed (NOTIFY_CONSUMER_IDS_CHANGED, 40), it requests the list of members
(38) for its topic and for its retry topic, at most once a second, as upstream's clients do. All members join as fast as they
get answers. Then one member joins, leaves (UNREGISTER_CLIENT, 35), joins again, and loses its connection."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import time
from collections.abc import Awaitable
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import START, encode
from remoting.headers.admin import ConsumerGroupHeader, UnregisterClientHeader
from scripts.bench.lightclient import Sends
from scripts.bench.measured import cpu_seconds, machine, spread
from scripts.bench.options import options
from scripts.bench.wholecluster import whole_cluster

GROUP, TOPIC, BESIDE = "bench-crowd", "crowd", "beside"
NOTIFIED = b'"code":40,'
ASKED_TIMES = 2  # for the topic, and for the retry topic
ASKS_EACH_S = 1.0
QUIET_S = 1.5
SPARE_FILES = 200


class Member(asyncio.Protocol):
    """One member. `notified` and `answered` count for all members together."""

    notified = answered = 0
    last_received = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = bytearray()
        self._asks_at = 0.0
        self.beaten: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        at = 0
        while len(self._unread) - at >= START.size:
            length, head_bytes = START.unpack_from(self._unread, at)
            if len(self._unread) - at < 4 + length:
                break
            header = self._unread[at + START.size : at + START.size + (head_bytes & 0xFFFFFF)]
            at += 4 + length
            if NOTIFIED in header:
                Member.notified += 1
                self._ask()
            elif self.beaten.done():
                Member.answered += 1
            else:
                self.beaten.set_result(None)
            Member.last_received = time.perf_counter()
        del self._unread[:at]

    def _ask(self) -> None:
        """Request the list now, or a second after the last request."""
        loop = asyncio.get_running_loop()
        if self._asks_at <= loop.time():
            self._asks_at = max(loop.time(), self._asks_at + ASKS_EACH_S)
            loop.call_at(self._asks_at, lambda: self._transport.write(ASK * ASKED_TIMES))

    def say(self, frame: bytes) -> None:
        self._transport.write(frame)

    def vanish(self) -> None:
        self._transport.abort()


def frame(code: RequestCode, header: object = None, body: bytes | None = None) -> bytes:
    request = RemotingCommand.request(code, header, body)  # type: ignore[arg-type]
    request.opaque = 1
    return b"".join(encode(request))


ASK = frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(GROUP))


def heartbeat(client_id: str) -> bytes:
    consumer = ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC)])
    return frame(RequestCode.HEART_BEAT, None, HeartbeatData(client_id, [], [consumer]).encode())


def bystander(address: str, questions: Connection) -> None:
    """Send one message after the other. When called, it returns the longest wait since the last call, in ms."""
    host, _, port = address.rpartition(":")
    requests, longest_s, number = Sends(BESIDE, 4, 100), 0.0, 0
    with socket.create_connection((host, int(port))) as connection:
        while True:
            if questions.poll():
                questions.recv()
                questions.send(longest_s * 1000)
                longest_s = 0.0
            began = time.perf_counter()
            connection.sendall(requests.next(number, time.time_ns() // 1_000_000))
            (length,) = START.unpack(connection.recv(START.size, socket.MSG_WAITALL))[:1]
            connection.recv(length + 4 - START.size, socket.MSG_WAITALL)
            longest_s = max(longest_s, time.perf_counter() - began)
            number += 1
            time.sleep(0.002)


class Crowd:
    """The members at `address`, whose broker has the process id `pid`. Measurements go to `values`."""

    def __init__(self, address: str, pid: int, beside: Connection, values: dict[str, list[float]]) -> None:
        self._address, self._pid, self._beside, self._values = address, pid, beside, values

    async def member(self, client_id: str) -> Member:
        """Add a member that the broker knows."""
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, member = await loop.create_connection(Member, host, int(port))
        member.say(heartbeat(client_id))
        await member.beaten
        return member

    async def measured(self, what: str, action: Awaitable[None]) -> None:
        """Measure the broker until all members have been quiet for a while."""
        self._longest_ms()
        began, cpu_s, notified, answered = (
            time.perf_counter(),
            cpu_seconds(self._pid),
            Member.notified,
            Member.answered,
        )
        Member.last_received = began
        await action
        while (left_s := Member.last_received + QUIET_S - time.perf_counter()) > 0:  # noqa: ASYNC110 - until all are quiet
            await asyncio.sleep(left_s)
        for name, value in (
            ("broker's CPU, s", cpu_seconds(self._pid) - cpu_s),
            ("until the last heard, s", Member.last_received - began),
            ("longest send beside, ms", self._longest_ms()),
            ("notifications", Member.notified - notified),
            ("lists", Member.answered - answered),
        ):
            self._values.setdefault(f"{what}: {name}", []).append(value)

    def _longest_ms(self) -> float:
        self._beside.send(None)
        return float(self._beside.recv())


async def run_once(crowd: Crowd, count: int) -> None:
    kept: list[Member] = []

    async def all_join() -> None:
        for number in range(count - 1):
            kept.append(await crowd.member(f"member-{number}"))

    async def one_joins() -> None:
        kept.append(await crowd.member("the-last"))

    async def one_leaves() -> None:
        kept.pop().say(frame(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("the-last", None, GROUP)))

    async def one_vanishes() -> None:
        kept.pop().vanish()

    await crowd.measured("all join", all_join())
    await crowd.measured("one joins", one_joins())
    await crowd.measured("it leaves", one_leaves())
    await crowd.measured("it comes again", one_joins())
    await crowd.measured("it vanishes", one_vanishes())


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < arguments.members + SPARE_FILES:
        raise SystemExit(f"only {hard} open files are allowed; raise the hard limit or take fewer --members")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{arguments.members} members; {machine()}")
    values: dict[str, list[float]] = {}
    for _ in range(arguments.runs):
        with whole_cluster(controllers=1, brokers=1) as cluster:
            asyncio.run(cluster.create_topic(BESIDE))
            broker = cluster.states()["broker-0"]
            assert broker is not None
            address = cluster.layout.address("broker-0")
            beside, questions = multiprocessing.Pipe()
            sender = multiprocessing.get_context("spawn").Process(target=bystander, args=(address, questions))
            sender.start()
            uvloop.run(run_once(Crowd(address, broker.pid, beside, values), arguments.members))
            sender.terminate()
            sender.join()
    for name, measured in values.items():
        print(f"{name:<40} {spread(measured, '', 2)}")
    print(machine())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
