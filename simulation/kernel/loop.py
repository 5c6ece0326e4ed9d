"""An asyncio event loop on virtual time.

Invariant: time advances only when no callback is ready, and then directly to the next timer. The order of callbacks depends
only on the seed, and not on a wall clock, thread, object address or hash seed.

As in asyncio, `call_soon` callbacks of one process run first in, first out, and a stream's bytes, end and loss come in
order (one pump per direction, see transport.py). The seed decides the order of timers of equal deadline, of processes that are
ready at the same instant and, in half of the seeds, of tasks of one process that became ready in the same step."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeVar, TypeVarTuple

from simulation.kernel.process import PROCESS, Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MICROSECONDS = 1_000_000
CALLBACKS_AT_ONE_INSTANT_MAX = 500_000
CANCELLED_TIMERS_MIN = 100
EXECUTOR_DELAY_US_MAX = 500


class SimulationError(Exception):
    """An error that only a bug (of the code under test, or of the test) can cause."""


class Deadlock(SimulationError):
    """No callback is ready and no timer is set, yet something is awaited."""


class Livelock(SimulationError):
    """Callbacks schedule further callbacks without end, so virtual time does not advance."""


class Network(Protocol):
    """The object that serves create_server and create_connection."""

    def listen(self, factory: Any, host: Any, port: Any, options: dict[str, Any]) -> Any: ...

    async def connect(self, factory: Any, host: Any, port: Any, options: dict[str, Any]) -> Any: ...


class SimulatedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that a set of tasks (TaskGroup, asyncio.wait) has one order per seed."""

    _hash = 0

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedHandle(asyncio.Handle):
    """asyncio's handle without its debug bookkeeping, because a world makes a thousand handles for each second."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: SimulatedLoop, context: Context | None
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False


class SimulatedTimer(asyncio.TimerHandle):
    """A timer at `when_us` of virtual time, also without debug bookkeeping."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: Any,
        loop: SimulatedLoop,
        context: Context | None,
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._when = when_us / MICROSECONDS
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            if self._scheduled:
                self._loop.timer_cancelled()  # type: ignore[attr-defined]


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop. `network` is set before anything connects. A contextvar names the process of a callback."""

    network: Network
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now_us = 0
        self.unhandled: list[dict[str, Any]] = []
        self.after_step: list[Callable[[], None]] = []
        self.stirred: set[Process | None] = set()
        """The processes that ran anything in the turn that has just ended. The memory of other processes is unchanged."""
        self.outside = Process("outside", "10.255.255.254")  # the test itself; not in any context
        self.processes: list[Process] = [self.outside]
        self._random = random.Random(f"{seed}/loop")
        self._chance = self._random.random
        self._shuffles_tasks = self._random.random() < 0.5
        self._timers: list[tuple[int, float, int, asyncio.TimerHandle]] = []
        self._timers_cancelled = 0
        self._numbers = itertools.count(1)
        self._at_this_instant = 0
        self._buried = False
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]  # no frame for each

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """There is no debug mode. Every future, task and handle asks, so the answer must be fast."""

    # -- time and callbacks

    def time(self) -> float:
        return self.now_us / MICROSECONDS

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._at_us(round(when * MICROSECONDS), callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._at_us(self.now_us + round(delay * MICROSECONDS), callback, args, context)

    def call_at_us(
        self, when_us: int, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`call_at` in whole microseconds of virtual time."""
        return self._at_us(when_us, callback, args, context)

    def _at_us(
        self, when_us: int, callback: Callable[..., object], args: Any, context: Context | None
    ) -> asyncio.TimerHandle:
        handle = SimulatedTimer(when_us, callback, args, self, context)
        if not self._buried:
            due_us = when_us if when_us > self.now_us else self.now_us
            heappush(self._timers, (due_us, self._chance(), next(self._numbers), handle))
        return handle

    def timer_cancelled(self) -> None:
        """Remove cancelled timers once they are many."""
        self._timers_cancelled += 1
        if self._timers_cancelled > CANCELLED_TIMERS_MIN and self._timers_cancelled > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if not entry[3]._cancelled]
            heapify(self._timers)
            self._timers_cancelled = 0

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimulatedHandle(callback, args, self, context)
        if not self._buried:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        timers, now_us = self._timers, self.now_us
        while timers and timers[0][0] <= now_us:
            timer = heappop(timers)[3]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timers_cancelled -= 1
            else:
                ready.append(timer)
        count = len(ready)
        self._at_this_instant += count
        if self._at_this_instant > CALLBACKS_AT_ONE_INSTANT_MAX:
            raise Livelock(f"time does not advance beyond {self.now_us} us\n{self.stacks()}")
        if count > 1:
            self._permute()
        stirred = self.stirred
        stirred.clear()
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context: Context = handle._context  # type: ignore[attr-defined]
            process = context.get(PROCESS)
            if process is None or (process.alive and not process.paused):
                stirred.add(process)
                try:
                    context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio's handles do
                    message = f"Exception in callback {handle!r}"
                    self.call_exception_handler({"message": message, "exception": error, "handle": handle})
            elif process.alive:
                process.held.append(handle)
        if self.unhandled:
            raise self._unhandled()
        for check in self.after_step:
            check()

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set\n{self.stacks()}")
        if timers[0][0] > self.now_us:
            self.now_us = timers[0][0]
            self._at_this_instant = 0

    def _permute(self) -> None:
        """Order processes by the seed, and the tasks of one process among the places that tasks hold."""
        groups: dict[Process | None, list[asyncio.Handle]] = {}
        for handle in self._ready:
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process in groups:
                groups[process].append(handle)
            else:
                groups[process] = [handle]
        order = list(groups.values())
        if len(order) > 1:
            self._shuffle(order)
        elif not self._shuffles_tasks:
            return
        if self._shuffles_tasks:
            for group in order:
                if len(group) > 1:
                    self._shuffle_tasks(group)
        self._ready.clear()
        for group in order:
            self._ready.extend(group)

    def _shuffle_tasks(self, group: list[asyncio.Handle]) -> None:
        places = [at for at, handle in enumerate(group) if _is_task_step(handle)]
        if len(places) > 1:
            steps = [group[at] for at in places]
            self._shuffle(steps)
            for at, step in zip(places, steps, strict=True):
                group[at] = step

    def _shuffle(self, items: list[Any]) -> None:
        """The same as Random.shuffle, with the same draws, but faster."""
        bits = self._random.getrandbits
        for at in range(len(items) - 1, 0, -1):
            size = (at + 1).bit_length()
            other = bits(size)
            while other > at:
                other = bits(size)
            items[at], items[other] = items[other], items[at]

    # -- tasks

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        number = next(self._numbers)
        SimulatedTask._hash = number  # Task.__init__ already hashes the new task
        task = SimulatedTask(coro, loop=self, name=str(name or f"task {number}"), context=context)
        task._hash = number
        process = PROCESS.get() if context is None else context.get(PROCESS)
        (process or self.outside).adopt(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run `func` at once in this thread. Its outcome arrives later, at a time that follows from the seed."""
        future: asyncio.Future[T] = self.create_future()
        delay_us = 1 + int(self._random.random() * EXECUTOR_DELAY_US_MAX)
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to the awaiter of the future
            self.call_at_us(self.now_us + delay_us, _settle, future.set_exception, future, error)
        else:
            self.call_at_us(self.now_us + delay_us, _settle, future.set_result, future, result)
        return future

    def pause(self, process: Process, until_us: int) -> None:
        """Hold the callbacks of a process until then. If two pauses overlap, the one that ends later counts."""
        if not process.paused:
            process.paused, process.paused_at_us = True, self.now_us
        process.resumes_at_us = max(process.resumes_at_us, until_us)
        self.call_at_us(until_us, self._resume, process, context=Context())

    def _resume(self, process: Process) -> None:
        if process.resumes_at_us <= self.now_us:
            if process.paused:
                process.pauses.append((process.paused_at_us, self.now_us))
            process.paused = False
            self._ready.extend(process.held)  # in the order they were due
            process.held.clear()

    def timers_by_process(self) -> Counter[Process | None]:
        """How many timers are set and not cancelled."""
        return Counter(
            timer._context.get(PROCESS)  # type: ignore[attr-defined]
            for _, _, _, timer in self._timers
            if not timer._cancelled
        )

    def stacks(self) -> str:
        """The position of every task that has not ended, one line each."""
        lines = []
        for process in self.processes:
            for task in process.pending():
                state = "" if process.alive else " (killed)"
                lines.append(f"  {process.name}{state}: {task.get_name()} at {_where(task.get_coro())}")
        return "\n".join(lines) or "  no task is pending"

    # -- network

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:  # type: ignore[override]
        return self.network.listen(protocol_factory, host, port, options)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:  # type: ignore[override]
        return await self.network.connect(protocol_factory, host, port, options)

    # -- calls that do nothing in a loop without sockets

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        raise AssertionError("there is no second thread")

    # -- failures and the end

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._buried:
            self.unhandled.append(context)

    def _unhandled(self) -> SimulationError:
        context = self.unhandled[0]
        self.unhandled = []
        error = SimulationError(
            f"at {self.now_us} us: {context.get('message')}: {context.get('exception')!r}"
        )
        error.__cause__ = context.get("exception")
        return error

    def lost_exceptions(self) -> list[BaseException]:
        """The exceptions that ended tasks of living processes and were never retrieved."""
        return [
            error
            for process in self.processes
            if process.alive
            for task in process.tasks
            if task.done() and task._log_traceback and (error := task.exception()) is not None  # type: ignore[attr-defined]
        ]

    def close(self) -> None:
        """Bury every process, then close; nothing runs on this loop afterwards."""
        if self.is_closed():
            return
        self._buried = True
        self._ready.clear()
        self._timers.clear()
        asyncio.events._set_running_loop(self)
        try:
            for process in self.processes:
                process.bury()
        finally:
            asyncio.events._set_running_loop(None)
        super().close()


def _is_task_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def _where(coroutine: Any) -> str:
    """The lines at which a suspended coroutine waits, from the outermost to the innermost frame."""
    lines = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines.append(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(lines)


def _settle(setter: Callable[[Any], None], future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        setter(outcome)
