"""How long another client waits for its answer while a master is flooded with small requests.

    python -m scripts.bench.floods [--runs 3]

Three brokers at contract C run under three controllers, all on this machine. The floods are: 300,000 one-way requests of 29
bytes on one connection, and on each of three connections; 150,000 one-way commits; and 1,500 requests for all offsets
(GET_ALL_CONSUMER_OFFSET, 43), of which there are then 150,000, with the answers read. Meanwhile another client requests the
end of a queue each 10 ms. Before each run a probe measures the longest wait of that client without other requests. The exit
code is 1 if an answer takes more than a second or the master leads in another epoch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from localcluster.cluster import Cluster
from localcluster.layout import HOST
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import GetMaxOffsetHeader
from scripts.bench.measured import machine, spread
from scripts.bench.options import bounded, options
from scripts.bench.wholecluster import whole_cluster
from simulation.hostile import floods
from simulation.hostile.frames import whole

TOPIC, QUEUES = "Orders", 8
SMALL, GROUPS, TABLES = 300_000, 18_750, 1_500
WAIT_MS = 120_000
EACH_S, QUIET_S, TABLES_S, FLOOD_S_MAX = 0.01, 3.0, 15.0, 300.0
ANSWER_MS_MAX = 1_000
READ_BYTES = 1 << 20


async def flood(port: int, data: bytes, answers: int = 0) -> None:
    """Send until everything was handled. If there are `answers`, they are read until the time is over."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=READ_BYTES)
    writer.write(data)
    end = time.monotonic() + (TABLES_S if answers else FLOOD_S_MAX)
    sending = asyncio.ensure_future(writer.drain())
    while time.monotonic() < end and not (sending.done() and not answers):
        if answers:
            await reader.read(READ_BYTES)
        else:
            await asyncio.sleep(EACH_S)
    sending.cancel()
    last = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0))
    if not answers:  # its answer shows that everything before it was handled
        writer.write(whole(last))
        await asyncio.wait_for(reader.readexactly(4), FLOOD_S_MAX)
    writer.transport.abort()


async def worst_ms(client: RemotingClient, address: str, work: Awaitable[object]) -> float:
    """The longest time for an answer that another client gets until `work` is done."""
    working, worst = asyncio.ensure_future(work), 0.0
    while not working.done():
        question = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0))
        asked = time.perf_counter()
        await client.call(address, question, WAIT_MS)
        worst = max(worst, 1000 * (time.perf_counter() - asked))
        await asyncio.sleep(EACH_S)
    await working
    return worst


async def measure(cluster: Cluster, runs: int) -> None:
    before = await cluster.wait_whole()
    await cluster.create_topic(TOPIC, QUEUES)
    master = before.master_address
    assert master is not None, "a whole cluster has a master"
    port = int(master.rpartition(":")[2])
    client, found = RemotingClient(clock=SystemClock()), dict[str, list[float]]()
    small, commits, tables = floods.small(SMALL), floods.commits(GROUPS, TOPIC, QUEUES), floods.tables(TABLES)
    for _ in range(runs):
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "nothing else": lambda: asyncio.sleep(QUIET_S),
            "300,000 one-way requests of 29 bytes": lambda: flood(port, small),
            "the same on three connections": lambda: asyncio.gather(*(flood(port, small) for _ in range(3))),
            "150,000 one-way commits": lambda: flood(port, commits),
            "1,500 requests 43 over 150,000 offsets": lambda: flood(port, tables, TABLES),
        }
        for name, work in works.items():
            worst = await worst_ms(client, master, work())
            found.setdefault(name, []).append(worst)
            print(f"{name:<40} {worst:.0f} ms", flush=True)
    await client.close()
    for name, values in found.items():
        print(f"{name:<40} {spread(values, 'ms', 0)}", flush=True)
    after = await cluster.wait_whole()
    if (after.master_id, after.master_epoch) != (before.master_id, before.master_epoch):
        raise SystemExit(f"another epoch: {before.master_epoch} before, {after.master_epoch} after")
    if max(map(max, found.values())) > ANSWER_MS_MAX:
        raise SystemExit(f"an answer took more than {ANSWER_MS_MAX} ms")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    given = parser.parse_args()
    print(machine())
    with whole_cluster() as cluster:
        asyncio.run(measure(cluster, given.runs))
    print(machine())


if __name__ == "__main__":
    main()
