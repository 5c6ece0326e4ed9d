"""How long a snapshot of a large state holds the event loop of a member: when it is made, sent and installed, and read at a
start.

    python -m scripts.bench.snapshots [--mib 64] [--sets 600] [--brokers 1000] [--runs 3] [--directory DIR]

In a separate process, two of three members take a snapshot of a state of that many MiB, twice, so that their logs begin later.
The third member, whose disk was lost, gets the newest snapshot while entries keep coming. Then it is stopped and started from
its disk. All members run in one loop, on a real disk and over loopback. Measured is the longest turn of the loop in CPU, with
the work of all members together. The probe of the same run is a CRC-32 of as many bytes in one call. The second measurement is
the longest slice, made for turns of 10 ms, when the controllers' state with that many broker sets of that many brokers is
written, read and freed. It does not include the garbage collector, which scans all objects when their number has doubled
(`mqruntime.collector`): 208 ms for 600 x 1000. The exit code is 1 if a median is above 20 ms."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from zlib import crc32

from controller.formerstate import let_go
from controller.state import Replica, Replicas, ReplicasState, SyncState
from controller.statemachine import ReplicasStateMachine
from dledger import DLedger, DLedgerSettings
from dledger.raft.errors import NotLeader
from dledger.storage.snapshot import Origin
from localcluster.ports import lease_any
from mqruntime.collector import GcTuner
from mqruntime.realruntime import real_runtime
from scripts.bench.ledger import longest_turn
from scripts.bench.measured import machine, spread
from scripts.bench.options import bounded, options

TURN_MS_MAX = 20
PIECE_BYTES = 64 << 10
ENTRIES = 1_000
"""The number of entries after a snapshot until the next snapshot."""
LOOK_AGAIN_S = 0.01
PROBE = "CRC-32 in one go"


class Pieces:
    """A state machine that stores the bodies that are pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def apply(self, index: int, body: bytes) -> object:
        if len(body) == PIECE_BYTES:
            self.pieces.append(body)
        return None

    def snapshot_save(self) -> Iterator[bytes]:
        yield from self.pieces

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        pieces: list[bytes] = []
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            pieces.append(bytes(view[start : start + PIECE_BYTES]))
            yield
        self.pieces = pieces


class Group:
    """Three members. Each can be started."""

    def __init__(self, root: Path, mib: int) -> None:
        self.lease = lease_any(root, 3)
        self.peers = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(self.lease.ports)}
        self.root = root
        self.count = (mib << 20) // PIECE_BYTES
        self.settings = replace(
            DLedgerSettings(),
            snapshot_entries=self.count + ENTRIES,
            snapshot_bytes=1 << 40,
            snapshot_margin_entries=0,
        )
        self.members: dict[str, DLedger] = {}

    async def start(self, name: str) -> DLedger:
        state = Pieces()
        member = DLedger(
            self_id=name, peers=self.peers, group="bench", runtime=real_runtime(self.root / name),
            state_machine=state, snapshots=state, settings=self.settings,
        )  # fmt: skip
        await member.start()
        self.members[name] = member
        return member

    async def append(self, *bodies: bytes) -> None:
        """Append entries, and return once all are committed."""
        while True:
            for member in self.members.values():
                with suppress(NotLeader):
                    await member.append(*bodies)
                    return
            await asyncio.sleep(LOOK_AGAIN_S)

    async def append_until(self, reached: Callable[[], bool]) -> None:
        """Append entries until the event is set."""
        while not reached():
            await self.append(*[b"entry"] * 10)
            await asyncio.sleep(LOOK_AGAIN_S)


async def measured(work: Awaitable[object]) -> float:
    ended = asyncio.Event()
    watched = asyncio.create_task(longest_turn(ended))
    await asyncio.sleep(0)
    await work
    ended.set()
    return await watched


def controllers_state(sets: int, brokers: int) -> ReplicasState:
    state = ReplicasState()
    for number in range(sets):
        name = f"broker-{number}"
        by_id = {at: Replica(f"10.0.0.1:{at}", f"10.0.0.1:{at};1700000000000") for at in range(brokers)}
        state.replicas[name] = Replicas("DefaultCluster", by_id, brokers)
        state.sync_states[name] = SyncState(1, 1, frozenset(by_id), 1)
    return state


def longest_slice(slices: Iterator[object]) -> float:
    """The longest slice, in ms of CPU."""
    longest, began = 0.0, time.thread_time()
    for _ in slices:
        longest, began = max(longest, time.thread_time() - began), time.thread_time()
    return max(longest, time.thread_time() - began) * 1000


def measure_controllers(sets: int, brokers: int, answer: Connection) -> None:
    gc.disable()
    machine = ReplicasStateMachine()
    machine.state = controllers_state(sets, brokers)
    data = b"".join(machine.snapshot_save())
    answer.send(("controllers: written", longest_slice(machine.snapshot_save())))
    former = list[ReplicasState]()
    machine.on_loaded(former.append)
    answer.send(("controllers: read", longest_slice(machine.snapshot_load(data))))
    answer.send(("controllers: let go", longest_slice(let_go(former[0]).__await__())))


def measure(root: Path, mib: int, answer: Connection) -> None:
    async def run() -> None:
        GcTuner().start()
        group = Group(root, mib)
        await asyncio.gather(*map(group.start, group.peers))
        await group.append(b"the group is there")
        await group.members.pop("n2").stop()
        shutil.rmtree(root / "n2")
        for _ in range(group.count):
            await group.append(os.urandom(PIECE_BYTES))
        held = group.members
        first = await measured(
            group.append_until(lambda: all(each.snapshots.last_index > 0 for each in held.values()))
        )
        last = max(each.snapshots.last_index for each in held.values())
        again = await measured(
            group.append_until(lambda: all(each.snapshots.last_index > last for each in held.values()))
        )
        answer.send(("made", max(first, again)))

        async def install() -> None:
            third = await group.start("n2")
            await group.append_until(lambda: third.snapshots.written[Origin.INSTALLED] > 0)

        answer.send(("sent and installed", await measured(install())))
        await group.members.pop("n2").stop()
        answer.send(("read at a start", await measured(group.start("n2"))))
        state = bytes(mib << 20)
        began = time.thread_time()
        crc32(state)
        answer.send((PROBE, (time.thread_time() - began) * 1000))
        os._exit(0)

    asyncio.run(run())


def answers_of(work: Callable[..., None], *given: object) -> list[tuple[str, float]]:
    """The answers of `work`, which runs in a separate process."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=work, args=(*given, theirs))
    child.start()
    theirs.close()
    answers: list[tuple[str, float]] = []
    with suppress(EOFError):
        while True:
            answers.append(ours.recv())
    child.join()
    if child.exitcode:
        raise SystemExit("a member failed; the lines above say why")
    return answers


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--mib", type=bounded(1, 200), default=64)
    parser.add_argument("--sets", type=bounded(1, 100_000), default=600)
    parser.add_argument("--brokers", type=bounded(1, 3_000), default=1_000)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--directory")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    found: dict[str, list[float]] = {}
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            for what, value in answers_of(measure, Path(folder), arguments.mib):
                found.setdefault(what, []).append(value)
        for what, value in answers_of(measure_controllers, arguments.sets, arguments.brokers):
            found.setdefault(what, []).append(value)
    for what, values in found.items():
        size = f"{arguments.sets} x {arguments.brokers}" if "controllers" in what else f"{arguments.mib} MiB"
        print(f"{size}  {what:20} {spread(values, 'ms')}")
    print(machine())
    slow = [
        what for what, values in found.items() if what != PROBE and statistics.median(values) > TURN_MS_MAX
    ]
    if slow:
        raise SystemExit(f"held the loop for more than {TURN_MS_MAX} ms: {', '.join(slow)}")


if __name__ == "__main__":
    main()
