"""What TLS costs, beside plain connections and beside Apache RocketMQ 5.3.3, and what a crowd of handshakes does to a broker.

    python -m scripts.bench.security [--runs 3] [--seconds 10] [--warm-up 30] [--skip-java]
        [--handshakes 1000] [--handshake-seconds 10]

Sends: 256 messages of 1 KiB in flight from the public Java client to the master of three brokers with shipped settings, in
turn to our brokers at contract C without TLS, to the same with TLS, and to Java's at contract A with TLS. With TLS, clients
and servers need certificates. Java has no TLS for the replication stream, which stays plain there. Plain and TLS have a JVM
each, because a JVM reads its certificates once; both JVMs are warmed up by the same load.

Handshakes: another process opens so many TLS connections a second to a master, each with a certificate, and closes them.
Meanwhile a client asks that master a question every 10 ms over a connection of its own; its longest wait bounds the longest
turn of the broker's loop. The epoch must stay the same. The exit code is 1 if a median misses its target."""

from __future__ import annotations

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from localcluster.secured import context_of, make_tools_file, tools_file
from mqruntime.certificates import make_authority
from mqruntime.clock import SystemClock
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import GetMaxOffsetHeader
from scripts.bench.bareloop import mean, probe
from scripts.bench.javaload import JavaLoad
from scripts.bench.measured import cpu_seconds, machine, spread
from scripts.bench.options import bounded, options
from scripts.bench.servers import Servers
from scripts.bench.sides import SIDES, Side, cluster_of
from scripts.bench.tables import Reach, Table
from scripts.peers.javapeer import broker_missing, missing

IN_FLIGHT, QUEUES, BODY = 256, 8, 1024
TOPIC = "secured"
RATE, CPU_US = "messages/s", "master CPU, µs/message"
WHOLE_MS_MAX = 180_000
STALL_MS_MAX = 50
ASKED_EACH_S = 0.01
SIDES_OF_SENDS = ("ours-c-tls", "ours-c", "java-a-tls")
REACHES = (
    Reach(RATE, least=0.5, beside="ours C"),
    Reach(RATE, least=1.5, beside="Java A TLS"),
)


def send_once(side: Side, given: Namespace, java: JavaLoad, authority: Path, table: Table) -> None:
    """One side in one run."""
    with cluster_of(side, authority=authority if side.secure else None) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WHOLE_MS_MAX))
        asyncio.run(cluster.create_topic(TOPIC, QUEUES))
        servers, namesrv = Servers(cluster), cluster.layout.namesrv
        java.load("async", namesrv, TOPIC, given.warm_up, BODY, IN_FLIGHT)
        servers.settle()
        before, probed = servers.spent(), probe(None, BODY, IN_FLIGHT, 1.0)
        outcome = java.load("async", namesrv, TOPIC, given.seconds, BODY, IN_FLIGHT)
        spent = servers.settle().spent().since(before)
        rate_of_probe = mean(probed, probe(None, BODY, IN_FLIGHT, 1.0)).per_second
        java.leave(namesrv)
    rate = outcome.messages / outcome.seconds
    table.note(RATE, side.name, rate, rate_of_probe)
    table.note(CPU_US, side.name, spent.master / outcome.messages * 1e6)


def measure_sends(given: Namespace, stack: ExitStack) -> int:
    """The number of missed targets."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    make_authority(folder)
    file = make_tools_file(folder)
    plain = stack.enter_context(JavaLoad(folder))
    secured = stack.enter_context(JavaLoad(folder, ["-Dtls.enable=true", f"-Dtls.config.file={file}"]))
    table = Table()
    sides = [SIDES[name] for name in SIDES_OF_SENDS]
    for number in range(given.runs):
        for side in sides:
            send_once(side, given, secured if side.secure else plain, folder, table)
            print(f"run {number + 1} of {side.name} is done; {machine()}", flush=True)
    for line in table.lines([side.name for side in sides]):
        print(line)
    lines, missed = table.judged(sides[0].name, REACHES)
    print("\n".join(lines), flush=True)
    return missed


async def shake_hands(address: str, context: ssl.SSLContext, rate: int, seconds: float) -> int:
    """Open `rate` connections a second, as far as this process can, and close each after its handshake; returns how many."""
    host, _, port = address.rpartition(":")
    done, running = 0, set[asyncio.Task[None]]()

    async def one() -> None:
        nonlocal done
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        done += 1
        writer.transport.abort()

    begun = time.perf_counter()
    number = 0
    while (passed := time.perf_counter() - begun) < seconds:
        while number < passed * rate and len(running) < rate:
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*running, return_exceptions=True)
    return done


async def worst_ms(client: RemotingClient, address: str, seconds: float) -> float:
    """The longest wait for an answer within so many seconds."""
    worst, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        question = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0))
        asked = time.perf_counter()
        await client.call(address, question, WHOLE_MS_MAX)
        worst = max(worst, 1000 * (time.perf_counter() - asked))
        await asyncio.sleep(ASKED_EACH_S)
    return worst


async def measure_handshakes(given: Namespace) -> int:
    """The number of missed targets."""
    with cluster_of(SIDES["ours-c-tls"]) as cluster:
        cluster.start()
        before = await cluster.wait_whole(timeout_ms=WHOLE_MS_MAX)
        await cluster.create_topic(TOPIC, QUEUES)
        context, address = context_of(cluster.layout), before.master_address or ""
        assert context is not None
        client = RemotingClient(clock=SystemClock(), network=TlsConnector(context))
        name = cluster.layout.name_of(address) or ""
        identity = cluster.states()[name]
        assert identity is not None
        quiet, busy, rates, costs = [], [], [], []
        for _ in range(given.runs):
            quiet.append(await worst_ms(client, address, given.handshake_seconds / 2))
            spent = cpu_seconds(identity.pid)
            arguments = (
                address,
                str(tools_file(cluster.layout)),
                str(given.handshakes),
                str(given.handshake_seconds),
            )
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "scripts.bench.security",
                "--shake",
                *arguments,
                stdout=asyncio.subprocess.PIPE,
            )
            busy.append(await worst_ms(client, address, given.handshake_seconds))
            output, _ = await child.communicate()
            done = int(output)
            rates.append(done / given.handshake_seconds)
            costs.append((cpu_seconds(identity.pid) - spent) / done * 1e6)
        await client.close()
        after = await cluster.wait_whole(timeout_ms=WHOLE_MS_MAX)
    print(f"handshakes a second                 {spread(rates, '/s', 0)}")
    print(f"CPU of the master for each          {spread(costs, 'µs', 0)}")
    print(f"longest wait for an answer, quiet   {spread(quiet, 'ms')}")
    print(f"longest wait for an answer, busy    {spread(busy, 'ms')}, wanted {STALL_MS_MAX}")
    if (after.master_id, after.master_epoch) != (before.master_id, before.master_epoch):
        print(f"another epoch: {before.master_epoch} before, {after.master_epoch} after")
        return 1
    return int(statistics.median(busy) > STALL_MS_MAX)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--seconds", type=bounded(1, 600), default=10)
    parser.add_argument("--warm-up", type=bounded(1, 600), default=30)
    parser.add_argument("--skip-java", action="store_true", help="handshakes only")
    parser.add_argument("--handshakes", type=bounded(1, 10_000), default=1_000, help="a second")
    parser.add_argument("--handshake-seconds", type=bounded(1, 600), default=10)
    parser.add_argument(
        "--shake", nargs=4, metavar="ADDRESS FILE RATE SECONDS", help="only the other process"
    )
    given = parser.parse_args()
    if given.shake:
        address, file, rate, seconds = given.shake
        print(asyncio.run(shake_hands(address, context_from(Path(file)), int(rate), float(seconds))))
        return 0
    print(machine(), flush=True)
    missed = asyncio.run(measure_handshakes(given))
    why = "as requested" if given.skip_java else missing() or broker_missing()
    if why is not None:
        print(f"without Java: {why}")
    else:
        with ExitStack() as stack:
            missed += measure_sends(given, stack)
    print(machine())
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
