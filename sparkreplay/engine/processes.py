"""Runs work in processes of this machine and not in threads, which Python's global lock would run one at a time.

Invariant: no worker outlives the call. If the calling process dies, a worker ends after its current number. Only the caller
handles interrupts."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from sparkreplay.errors import EngineFailed, ReplayError

Work = Callable[[int], Any]
PRELOADED = ["sparkreplay.engine.preloaded"]


def run_in_processes(
    work: Work, numbers: Sequence[int], done: Callable[[int, Any], None], workers: int
) -> None:
    """Call `done(number, result)` whenever a number is finished. Raises the ReplayError or OSError of `work`, and EngineFailed
    if a worker dies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    pickled = pickle.dumps(work)
    todo = deque(numbers)
    links: dict[Connection, Any] = {}
    try:
        with interrupts_held():
            for _ in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, pickled), daemon=True)
                process.start()
                theirs.close()
                links[ours] = process
        for link in links:
            link.send(todo.popleft() if todo else None)
        left = len(numbers)
        while left:
            for ready in wait(list(links)):
                assert isinstance(ready, Connection)
                number, result = received(ready)
                ready.send(todo.popleft() if todo else None)
                left -= 1
                done(number, result)
    finally:
        for link, process in links.items():
            link.close()
            process.terminate()
        for process in links.values():
            process.join()


def received(link: Connection) -> tuple[int, Any]:
    """A worker's result. Raises its error."""
    try:
        number, result, failure = link.recv()
    except (EOFError, ConnectionError):
        raise EngineFailed(
            "a worker process died (killed, or out of memory); run the command again, with fewer --workers"
        ) from None
    if isinstance(failure, BaseException):
        raise failure
    if failure is not None:
        raise RuntimeError(f"a worker failed:\n{failure}")
    return number, result


def serve(link: Connection, pickled: bytes) -> None:
    """A worker's loop: it receives a number and sends the result, until it receives None or the other end is closed."""
    work = pickle.loads(pickled)  # noqa: S301 - comes from the process that started this one
    try:
        while (number := link.recv()) is not None:
            answer: tuple[int, Any, BaseException | str | None]
            try:
                answer = (number, work(number), None)
            except (ReplayError, OSError) as error:
                answer = (number, None, error)
            except Exception:
                answer = (number, None, traceback.format_exc())
            link.send(answer)
        link.recv()  # raises EOFError if the other end closes
    except (EOFError, ConnectionError):
        return


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Processes started in this block ignore interrupts. An interrupt of the caller is deferred to the end of the block."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
