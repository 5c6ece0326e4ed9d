"""Who answers which request code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from remoting.command import RemotingCommand

if TYPE_CHECKING:
    from remoting.peer import Peer

Handler = Callable[["Peer", RemotingCommand], RemotingCommand | None | Awaitable[RemotingCommand | None]]
BatchHandler = Callable[["Peer", list[RemotingCommand]], None]


class Router:
    """Request code -> handler. One router may serve several servers and clients.

    `on_fatal` gets the failed assertion of a handler: a bug, which should end the process.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None] | None = None) -> None:
        self.on_fatal = on_fatal
        self.handlers: dict[int, Handler] = {}
        self.batch_handlers: dict[int, BatchHandler] = {}

    def add(self, code: int, handler: Handler) -> None:
        """`handler` answers requests of `code`.

        It returns the reply, or None when nothing is to be said now (it may `peer.send` later), or an
        awaitable of either, which then runs in a task. What it raises is answered with code 1. The body it
        sees is bytes.
        """
        self._assert_free(code)
        self.handlers[int(code)] = handler

    def add_batch(self, codes: Collection[int], handler: BatchHandler) -> None:
        """`handler` gets all consecutive whole requests of `codes` one receive brought, and answers itself.

        Their bodies are memoryviews of the receive buffer, valid only until `handler` returns: copy what
        stays.
        """
        for code in codes:
            self._assert_free(code)
            self.batch_handlers[int(code)] = handler

    def _assert_free(self, code: int) -> None:
        assert code not in self.handlers and code not in self.batch_handlers, f"two handlers for code {code}"
