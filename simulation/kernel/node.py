"""One simulated server: a host, its disk, its clock and the process that runs on it, if one does.

Invariant: at most one process of a node is alive, and only that process uses the node's disk. Of a killed process, only what it
has written to the disk remains."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from mqruntime.network import PLAIN
from mqruntime.runtime import App, RestartWanted, Runtime
from mqruntime.serve import is_bug
from simulation.kernel.disk import SimulatedDirectory, SimulatedDisk, SimulatedSmallFiles, SimulatedStoreLock
from simulation.kernel.network import SimulatedNetwork
from simulation.kernel.process import Process
from simulation.kernel.trace import Trace

EPOCH_MS = 1_750_000_000_000  # the wall clock's reading when a world begins
SKEW_MS_MAX = 500


class SimulatedClock:
    """Virtual time as one node reads it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def now_ms(self) -> int:
        return EPOCH_MS + self._node.loop.now_us // 1000 + self._node.skew_ms

    def monotonic_ms(self) -> int:
        return self._node.loop.now_us // 1000

    def work_us(self) -> int:
        process = self._node.process
        return self._node.loop.now_us + (0 if process is None else process.worked_us)


class Node:
    """Start, kill, pause and stop one server. `skew_ms` is how far its wall clock is off, and may be set."""

    def __init__(self, seed: int, network: SimulatedNetwork, trace: Trace, name: str, host: str) -> None:
        self.seed = seed
        self.network = network
        self.loop = network.loop
        self.name = name
        self.host = host
        self.disk = SimulatedDisk(name, seed, network.loop, trace)
        self.app: App | None = None
        self.failure: BaseException | None = None  # why its last process ended by itself
        self.serving = False  # between start and the end of the process
        self.leaving = False  # from the beginning of a graceful end to the end of the process
        self.left_behind: list[str] = []  # tasks that outlived the last graceful stop: a leak
        self.incarnation = 0
        self.boots = 0  # power cuts so far
        self.process: Process | None = None
        self.skew_ms = random.Random(f"{seed}/skew/{name}").randint(-SKEW_MS_MAX, SKEW_MS_MAX)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def is_stirred(self) -> bool:
        """Whether its process ran anything in the turn of the loop that has just ended; for checkers."""
        return self.process in self.loop.stirred

    def runtime(self) -> Runtime:
        """The Runtime (clock, files, network) of the node's process. If none runs, a new process is made."""
        process = self._process()
        return Runtime(
            clock=SimulatedClock(self),
            random=random.Random(f"{self.seed}/{self.name}/{self.incarnation}"),
            files=SimulatedSmallFiles(self.disk, process),
            segments=SimulatedDirectory(self.disk, process),
            lock=SimulatedStoreLock(self.disk, process),
            boot_id=f"{self.name}/{self.boots}",
            network=PLAIN,
        )

    def start(self, make_app: Callable[[Runtime], App]) -> None:
        """Take the store lock, make the app and start it in a new process. A fatal error ends that process like a crash, and
        is kept in `failure`. An error that only a bug can raise fails the world."""
        assert not self.serving, f"{self.name} already serves"
        self.serving, self.leaving = True, False
        runtime = self.runtime()
        process = self._process()
        self.failure = None

        async def serve() -> None:
            try:
                runtime.lock.acquire()
                self.app = make_app(runtime)
                await self.app.start()
                failure = await self.app.wait_failed()
                if isinstance(failure, RestartWanted):
                    await self.app.stop()
                    self.kill()  # its supervisor starts it again
                    return
            except Exception as error:  # noqa: BLE001 - kept, and raised below when it is a bug
                failure = error
            self.failure = failure
            self.kill()
            if is_bug(failure):
                what = f"{process.name} failed by a bug"
                self.loop.call_exception_handler({"message": what, "exception": failure})

        self._serving_task = self.spawn(serve(), process)

    def spawn(self, coroutine: object, process: Process | None = None) -> asyncio.Task[None]:
        """Run a coroutine as a task of the node's process."""
        process = process or self._process()
        name = f"{self.name}.{self.incarnation}"
        return self.loop.create_task(coroutine, name=name, context=process.context.copy())  # type: ignore[arg-type]

    def kill(self, *, power_cut: bool = False) -> None:
        """End the process between two steps, so that no `finally` block runs. The kernel closes its sockets or, with
        `power_cut`, they fall silent until the next start. The disk keeps the data that such a crash leaves."""
        process = self.process
        self.boots += power_cut
        if process is None or not process.alive:
            if power_cut:
                self.disk.process_died(process or Process(self.name, self.host), power_cut=True)
            return
        process.alive = False
        process.held.clear()
        self.app = None
        self.serving = False
        self.network.process_died(process, silent=power_cut)
        self.disk.process_died(process, power_cut=power_cut)

    async def stop(self) -> None:
        """End the process gracefully, and return once it has exited."""
        await self.leave()

    def leave(self) -> asyncio.Task[None]:
        """Begin a graceful end within the process, as mqruntime.serve does. A start under way is cancelled, app.stop() runs,
        and the process exits, even if the last sync failed."""
        assert self.running and self.app is not None, f"{self.name} does not run"
        process, app, serving = self._process(), self.app, self._serving_task
        self.leaving = True

        async def end() -> None:
            serving.cancel()
            await asyncio.wait([serving])
            try:
                await app.stop()
            except OSError as error:
                self.failure = error
            left = [task for task in process.pending() if task is not asyncio.current_task()]
            self.left_behind = [task.get_name() for task in left]
            self.kill()

        return self.spawn(end())

    def pause(self, ms: int) -> None:
        """The process runs nothing for `ms` (SIGSTOP, a long garbage collection), while its kernel and peers continue."""
        process = self._process()
        assert process.alive, f"{self.name} does not run"
        self.loop.pause(process, self.loop.now_us + ms * 1000)

    def _process(self) -> Process:
        if self.process is None or not self.process.alive:
            self.incarnation += 1
            self.process = Process(f"{self.name}.{self.incarnation}", self.host)
            self.loop.processes.append(self.process)
            self.network.host_is_back(self.host)
        return self.process
