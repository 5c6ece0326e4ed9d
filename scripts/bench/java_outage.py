"""How long a Java producer that asks for routes each second gets no acknowledgement when the master is killed.

    python -m scripts.bench.java_outage [--count 10] [--seed 1] [--sides ours-c]

Each side has a new cluster with shipped settings (ours-raft,java-raft: Raft mode). The master gets SIGKILL again and again, at
a random moment of the producer's second. An outage lasts from the last acknowledgement before the kill to the first one after
it. Only then the killed broker is started again, and the set is whole before the next kill. Needs a JDK and
scripts/fetch-peers. The exit code is 1 if our median (in Raft mode, our longest outage) misses its target."""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import threading
import time
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.layout import Mode
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.sides import SIDES, Side, chosen, cluster_of
from scripts.peers.javapeer import JARS, QUICK_START, SOURCES, broker_missing, missing

OUTAGE_MS_TARGET = {Mode.CONTROLLER: 2000, Mode.RAFT: 1500}
"""The target of the median outage; in Raft mode, of the longest outage."""
TOPIC = "outage"
STEADY_S = 3.0
PHASE_S = 1.0  # the producer's period; a kill comes at a random moment of it
NOT_ACKNOWLEDGED_S_MAX = 60.0
PROGRAM = Path(__file__).parent / "java" / "Outage.java"


class JavaProducer:
    """The producer in a separate JVM. `acknowledged_ms` grows while it runs."""

    def __init__(self, namesrv: str, home: Path) -> None:
        path = f"{SOURCES}:{JARS}/*"  # SOURCES has a logging configuration that keeps it silent
        command = ["java", *QUICK_START, f"-Duser.home={home}", "-cp", path, str(PROGRAM), namesrv, TOPIC]
        self.acknowledged_ms: list[int] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, name="acknowledgements")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.acknowledged_ms.append(int(line))

    def wait_after(self, moment_ms: float) -> None:
        """Wait for an acknowledgement after `moment_ms`."""
        deadline = time.monotonic() + NOT_ACKNOWLEDGED_S_MAX
        while not self.acknowledged_ms or self.acknowledged_ms[-1] <= moment_ms:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit(
                    f"the producer got no acknowledgement for {NOT_ACKNOWLEDGED_S_MAX:g} s, or ended"
                )
            time.sleep(0.01)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


def kill_once(cluster: Cluster, producer: JavaProducer, chance: random.Random) -> int:
    """The outage around one SIGKILL, in ms."""
    state = asyncio.run(cluster.wait_whole())
    time.sleep(STEADY_S + PHASE_S * chance.random())
    master = cluster.layout.name_of(state.master_address or "")
    assert master is not None
    producer.wait_after(time.time() * 1000)
    killed_ms = time.time() * 1000
    cluster.kill([master])
    producer.wait_after(time.time() * 1000)  # answers that arrived during the kill were sent before it
    cluster.start([master])
    asyncio.run(cluster.wait_whole())
    moments = producer.acknowledged_ms
    return max(
        after - before for before, after in zip(moments, moments[1:], strict=False) if after >= killed_ms
    )


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", default="ours-c", help=", ".join(SIDES))
    arguments = parser.parse_args()
    why = missing()
    if why is not None:
        raise SystemExit(why)
    sides = chosen(parser, arguments.sides, why or broker_missing())
    print(machine())
    missed = 0
    for side in sides:
        outages = outages_of(side, arguments.count, arguments.seed)
        print(" ".join(map(str, outages)), "ms")
        target_ms = OUTAGE_MS_TARGET[side.mode]
        print(
            f"outage of the Java producer, {side.name}: {spread(outages, 'ms', 0)}, the longest {max(outages)}, "
            f"target {target_ms}",
            flush=True,
        )
        judged = max(outages) if side.mode is Mode.RAFT else statistics.median(outages)
        missed += not side.is_java and judged > target_ms
    print(machine())
    return int(missed > 0)


def outages_of(side: Side, count: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    with cluster_of(side) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole())
        asyncio.run(cluster.create_topic(TOPIC))
        producer = JavaProducer(cluster.layout.namesrv, cluster.directory.parent)
        try:
            return [kill_once(cluster, producer, chance) for _ in range(count)]
        finally:
            producer.end()


if __name__ == "__main__":
    raise SystemExit(main())
