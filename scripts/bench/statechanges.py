"""The cost of a million changes of SyncStateSets for a controller that makes snapshots: its start, its disk, its memory.

    python -m scripts.bench.statechanges [--changes 1000000] [--sets 1000] [--directory DIR]

In a separate process, a controller's Raft member, alone in its group and with a controller's settings, commits that many
alters of that many broker sets of three brokers, a thousand at a time, on a real disk. After each quarter, the blocks of its
files, its memory that no file backs, and the longest turn of the event loop in CPU, including snapshots, are printed. Then the
member is killed as long after a snapshot as possible, and another process starts it. Measured are wall clock and CPU until it
leads with everything applied. The probe of the same run is the CPU to read as many of the same events and apply them to a
state."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, encode
from controller.server import dledger_settings
from controller.settings import ControllerSettings
from controller.statemachine import ReplicasStateMachine
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from mqruntime.collector import GcTuner
from mqruntime.realruntime import real_runtime
from remoting.client import RemotingClient
from scripts.bench.ledger import Quiet, longest_turn
from scripts.bench.measured import machine, own_mib
from scripts.bench.options import bounded, options

BATCH = 1_000
PEERS = {"n0": "127.0.0.1:9"}
QUARTERS = 4


class Leads(Quiet):
    def __init__(self) -> None:
        self.leads = asyncio.Event()

    def role_changed(self, role: Role, term: int) -> None:
        if role is Role.LEADER:
            self.leads.set()


def member(root: Path, state: ReplicasStateMachine, listener: Leads) -> DLedgerNode:
    settings = ControllerSettings.model_validate(
        {
            "controllerDLegerGroup": "bench",
            "controllerDLegerPeers": "n0-127.0.0.1:9",
            "controllerDLegerSelfId": "n0",
        }
    )
    runtime = real_runtime(root)
    return DLedgerNode(
        self_id="n0", peers=PEERS, group="bench", runtime=runtime, state_machine=state, snapshots=state,
        client=RemotingClient(clock=runtime.clock), settings=dledger_settings(settings), listener=listener,
    )  # fmt: skip


def events(sets: int, number: int) -> bytes:
    """The `number`-th change. Its set has two and three members by turns."""
    members = (1, 2) if number // sets % 2 else (1, 2, 3)
    return encode(AlterSyncStateSet(f"broker-{number % sets}", frozenset(members)))


def disk_mib(root: Path) -> float:
    return sum(path.stat().st_blocks for path in root.rglob("*") if path.is_file()) * 512 / (1 << 20)


def leading(root: Path, state: ReplicasStateMachine) -> tuple[DLedgerNode, asyncio.Event]:
    """A member that is not started yet, and an event that is set when the member leads and has applied all entries on its
    disk."""
    listener = Leads()
    return member(root, state, listener), listener.leads


def change(root: Path, sets: int, changes: int, answer: Connection) -> None:
    async def run() -> None:
        GcTuner().start()
        node, leads = leading(root, ReplicasStateMachine())
        await node.start()
        await leads.wait()
        for number in range(sets):
            name = f"broker-{number}"
            await node.propose(
                [encode(ApplyBrokerId("c", name, at, f"10.0.0.{at}:10911", f"10.0.0.{at}:10911;{number}")) for at in (1, 2, 3)]
                + [encode(ElectMaster(name, 1))]
            )  # fmt: skip
        for quarter in range(QUARTERS):
            ended, cpu = asyncio.Event(), time.process_time()
            watched = asyncio.create_task(longest_turn(ended))
            for first in range(quarter * changes // QUARTERS, (quarter + 1) * changes // QUARTERS, BATCH):
                await node.propose([events(sets, number) for number in range(first, first + BATCH)])
            cpu = time.process_time() - cpu
            ended.set()
            measured = disk_mib(root), own_mib(os.getpid()), await watched, cpu
            answer.send((f"{(quarter + 1) * changes // QUARTERS:,} changes", measured))
        number = changes
        while node.applied_index - node.store.snapshot_index < node.settings.snapshot_entries - 2 * BATCH:
            await node.propose([events(sets, at) for at in range(number, number + BATCH)])
            number += BATCH
        answer.send(("killed", (node.applied_index - node.store.snapshot_index,)))
        os._exit(0)

    asyncio.run(run())


def start(root: Path, answer: Connection) -> None:
    async def run() -> None:
        GcTuner().start()
        state = ReplicasStateMachine()
        node, leads = leading(root, state)
        ended = asyncio.Event()
        watched = asyncio.create_task(longest_turn(ended))
        await asyncio.sleep(0)
        wall, cpu = time.perf_counter(), time.process_time()
        await node.start()
        await leads.wait()
        measured = time.perf_counter() - wall, time.process_time() - cpu
        ended.set()
        answer.send(("start", (*measured, await watched, own_mib(os.getpid()), len(state.state.sync_states))))
        os._exit(0)

    asyncio.run(run())


def probe(sets: int, changes: int) -> float:
    bodies = [events(sets, number) for number in range(BATCH)]
    machine = ReplicasStateMachine()
    began = time.process_time()
    for number in range(changes):
        machine.apply(number, bodies[number % BATCH])
    return time.process_time() - began


def answers_of(work: Callable[..., None], *arguments: object) -> list[tuple[str, tuple[float, ...]]]:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=work, args=(*arguments, there))
    process.start()
    there.close()
    found: list[tuple[str, tuple[float, ...]]] = []
    try:
        while True:
            found.append(here.recv())
    except EOFError:
        process.join()
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--changes", type=bounded(4 * BATCH, 100_000_000), default=1_000_000)
    parser.add_argument("--sets", type=bounded(1, 100_000), default=1_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary store goes")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        root = Path(folder)
        for name, values in answers_of(change, root, given.sets, given.changes):
            if name == "killed":
                print(f"killed {values[0]:,} entries behind its snapshot")
            else:
                disk, memory, turn, cpu = values
                print(
                    f"{name:<20} disk {disk:.1f} MiB  memory {memory:.1f} MiB  longest turn {turn:.1f} ms  CPU {cpu:.2f} s"
                )
        for _, (wall, cpu, turn, memory, known) in answers_of(start, root):
            print(f"start                {wall:.2f} s, CPU {cpu:.2f} s  longest turn {turn:.1f} ms", end="  ")
            print(f"memory {memory:.1f} MiB  {known} sets")
        print(f"probe                {probe(given.sets, 50_000):.2f} s of CPU to apply 50,000 events")
    print(machine())


if __name__ == "__main__":
    main()
