"""The handlers of request codes, and observers of their results.

Invariant: a code has one handler. An observer is notified of each request once, when the request's handler has finished. It is
not notified if the handler was cancelled."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Generator
from typing import TYPE_CHECKING, Any, Protocol

from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.plainsends import SendsHandler

if TYPE_CHECKING:
    from nativepath.native import Sends

Reply = RemotingCommand | None
Handler = Callable[[Peer, RemotingCommand], Reply | Awaitable[Reply]]
BatchHandler = Callable[[Peer, list[RemotingCommand]], None]

Outcome = Reply | Exception
"""A handler's result: its reply, None if it sends no reply now, or the exception that it raised."""
Watch = Callable[[Peer, RemotingCommand], Callable[[Outcome], None]]
"""Called before a request's handler; its return value is called with the handler's outcome."""


class RequestAdmission(Protocol):
    """Decides which requests reach their handlers."""

    def refusal(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """The reply that refuses a request; None if it is accepted."""
        ...

    def admits_sends(self, peer: Peer, sends: Sends) -> bool:
        """Whether all of these plain sends are accepted. If not, `refusal` is called for each."""
        ...


class Router:
    """Request code -> handler. One router may serve several servers and clients.

    `on_fatal` gets the failed assertion of a handler: a bug, which should end the process.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None] | None = None) -> None:
        self.on_fatal = on_fatal
        self.handlers: dict[int, Handler] = {}
        self.batch_handlers: dict[int, BatchHandler] = {}
        self.sends_handler: SendsHandler | None = None
        """Handles receives that are only plain sends, if they can be read as such, and sends the replies itself."""
        self.admission: RequestAdmission | None = None
        """Is asked before each handler, and for codes without one. Without it every request is accepted."""
        self.on_unserved: Callable[[Peer, RemotingCommand], str] = lambda peer, request: ""
        """Called for each request without a handler. The request is answered with code 3, and the returned text is added to
        the remark."""

    def add(self, code: int, handler: Handler) -> None:
        """`handler` answers requests of `code`.

        The handler returns the reply, or None if it sends no reply or sends one later with `peer.send`. It may return an
        awaitable of either, which then runs in a task. An exception is answered with code 1. The request's body is bytes.
        """
        self._assert_free(code)
        self.handlers[int(code)] = handler

    def add_batch(self, codes: Collection[int], handler: BatchHandler) -> None:
        """`handler` gets consecutive requests with these `codes` of one receive together, and sends the replies itself.

        Their bodies are memoryviews of the receive buffer, valid only until `handler` returns: copy what must stay.
        """
        for code in codes:
            self._assert_free(code)
            self.batch_handlers[int(code)] = handler

    def watch(self, code: int, watch: Watch) -> None:
        """Show requests of `code` to `watch` from now on. Raises KeyError for a code without a handler."""
        self.handlers[code] = _watched(self.handlers[code], watch)

    def _assert_free(self, code: int) -> None:
        assert code not in self.handlers and code not in self.batch_handlers, f"two handlers for code {code}"


def _watched(handler: Handler, watch: Watch) -> Handler:
    def handle(peer: Peer, request: RemotingCommand) -> Reply | Awaitable[Reply]:
        report = watch(peer, request)
        try:
            result = handler(peer, request)
        except Exception as error:
            report(error)
            raise
        if inspect.isawaitable(result):
            return _ObservedReply(result, report)
        report(result)
        return result

    return handle


class _ObservedReply:
    """An awaited reply whose outcome is passed to the observer. If it is never awaited, it must be closed, like a coroutine."""

    def __init__(self, result: Awaitable[Reply], report: Callable[[Outcome], None]) -> None:
        self._result = result
        self._report = report

    def __await__(self) -> Generator[Any, Any, Reply]:
        try:
            reply = yield from self._result.__await__()
        except Exception as error:
            self._report(error)
            raise
        self._report(reply)
        return reply

    def close(self) -> None:
        if inspect.iscoroutine(self._result):
            self._result.close()
