"""Charges the CPU time of handled and refused requests as virtual time of the process that handles them.

Invariant: other work takes no virtual time. While the charging is on, a process that has handled requests does nothing else
until their charged time is over. Its clock's `work_us` grows while they are handled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from remoting.command import RemotingCommand
from remoting.dispatch import RequestDispatcher
from remoting.peer import Peer
from simulation.kernel.loop import SimulatedLoop
from simulation.kernel.process import PROCESS

deliver, handle, refuse = RequestDispatcher.deliver, RequestDispatcher._handle, RequestDispatcher._is_refused


@contextmanager
def charged(loop: SimulatedLoop, request_us: int) -> Iterator[None]:
    """In this context, each request but a send costs that much, in every process."""

    def work() -> None:
        if (process := PROCESS.get()) is not None:
            process.worked_us += request_us

    def handled(
        self: RequestDispatcher, peer: Peer, request: RemotingCommand, replies: list[RemotingCommand]
    ) -> None:
        work()
        handle(self, peer, request, replies)

    def refused(
        self: RequestDispatcher, peer: Peer, request: RemotingCommand, replies: list[RemotingCommand]
    ) -> bool:
        is_refused = refuse(self, peer, request, replies)
        if is_refused:
            work()
        return is_refused

    def delivered(self: RequestDispatcher, peer: Peer, commands: list[RemotingCommand]) -> int:
        process = PROCESS.get()
        if process is None:
            return deliver(self, peer, commands)
        before_us = process.worked_us
        count = deliver(self, peer, commands)
        if (cost_us := process.worked_us - before_us) and process.alive:
            loop.pause(process, max(loop.now_us, process.resumes_at_us) + cost_us)
        return count

    with (
        patch.object(RequestDispatcher, "_handle", handled),
        patch.object(RequestDispatcher, "_is_refused", refused),
        patch.object(RequestDispatcher, "deliver", delivered),
    ):
        yield
