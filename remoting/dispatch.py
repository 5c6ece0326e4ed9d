"""Passes received commands to handlers, and the handlers' replies back to the peer.

Invariant: a one-way request never gets a reply; every other request gets exactly one, unless its handler sends replies by
itself. A task is started only for a handler that returns an awaitable, and the dispatcher owns the task until it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from mqruntime.log import fields
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RESPONSE_BIT, RemotingCommand
from remoting.errors import BodyError, HeaderError
from remoting.fastjson import FastJsonError
from remoting.peer import Peer
from remoting.plainsends import commands_of
from remoting.router import BatchHandler, Handler, Reply, Router

if TYPE_CHECKING:
    from nativepath.native import Sends

logger = logging.getLogger(__name__)

OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
REPLIES_BYTES_MAX = 256 << 10
"""Replies that have so many bytes are sent before more requests are handled: only then it shows whether the peer reads them."""
REFUSALS = (HeaderError, BodyError, FastJsonError)  # the sender's fault, so not worth a traceback


class RequestDispatcher:
    """The requests of one server or client, at most `running_max` of them waiting for their answers in
    tasks.
    """

    def __init__(self, router: Router, running_max: int) -> None:
        self._router = router
        self._running: dict[asyncio.Task[None], tuple[Peer, Awaitable[Reply]]] = {}
        self._running_max = running_max

    def deliver(self, peer: Peer, commands: list[RemotingCommand]) -> int:
        """Handle commands that were received together, until the peer's turn is over or the replies are long, and return how
        many were handled. Replies that are ready at once are sent in one write."""
        batch_handlers = self._router.batch_handlers
        replies: list[RemotingCommand] = []
        at, end, counted, size = 0, len(commands), 0, 0
        while at < end and not peer.closed and not (at and peer.had_its_turn):
            if counted < len(replies):
                size += sum(len(each.body or b"") for each in replies[counted:])
                counted = len(replies)
                if size >= REPLIES_BYTES_MAX:
                    break
            command = commands[at]
            if command.unread:
                _answer_unread(peer, command, replies)
                at += 1
                continue
            if command.flag & RESPONSE_BIT:
                peer.resolve(_with_own_body(command))
                at += 1
                continue
            if self._is_refused(peer, command, replies):
                at += 1
                continue
            batch_handler = batch_handlers.get(command.code)
            if batch_handler is None:
                self._handle(peer, _with_own_body(command), replies)
                at += 1
                continue
            batch = [command]
            at += 1
            while at < end and _belongs(commands[at], batch_handlers, batch_handler):
                if not self._is_refused(peer, commands[at], replies):
                    batch.append(commands[at])
                at += 1
            self._handle_batch(peer, batch, batch_handler, replies)
        if replies:
            peer.send(replies)
        return at

    @property
    def takes_sends(self) -> bool:
        return self._router.sends_handler is not None

    def deliver_sends(self, peer: Peer, sends: Sends) -> None:
        """Handles a receive of plain sends alone."""
        assert self._router.sends_handler is not None
        admission = self._router.admission
        if admission is not None and not admission.admits_sends(peer, sends):
            self._deliver_all(peer, commands_of(sends))
            return
        try:
            self._router.sends_handler(peer, sends)
        except Exception as error:  # noqa: BLE001 - as in _handle
            replies = [self._failure(each, error) for each in commands_of(sends) if not each.is_oneway]
            peer.send(replies)

    def _is_refused(self, peer: Peer, request: RemotingCommand, replies: list[RemotingCommand]) -> bool:
        admission = self._router.admission
        refusal = None if admission is None else admission.refusal(peer, request)
        if refusal is not None and not request.is_oneway:
            replies.append(refusal)
        return refusal is not None

    def _deliver_all(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        """Handle all commands of a receive, whether or not the peer's turn is over."""
        while commands and not peer.closed:
            commands = commands[self.deliver(peer, commands) :]

    async def stop(self) -> None:
        """Cancels the handlers still running and waits for their ends."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _handle(self, peer: Peer, request: RemotingCommand, replies: list[RemotingCommand]) -> None:
        handler: Handler | None = self._router.handlers.get(request.code)
        if handler is None:
            more = self._router.on_unserved(peer, request)
            reply: Reply = request.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported{more}"
            )
        else:
            try:
                result = handler(peer, request)
            except Exception as error:  # noqa: BLE001 - any error is reported to the peer, and the server continues
                reply = self._failure(request, error)
            else:
                if result is None or isinstance(result, RemotingCommand):
                    reply = result
                else:
                    reply = self._run(peer, request, result)
        if reply is not None and not request.flag & ONEWAY_BIT:
            replies.append(reply)

    def _handle_batch(
        self,
        peer: Peer,
        requests: list[RemotingCommand],
        handler: BatchHandler,
        replies: list[RemotingCommand],
    ) -> None:
        try:
            handler(peer, requests)
        except Exception as error:  # noqa: BLE001 - as above
            replies += [self._failure(request, error) for request in requests if not request.is_oneway]

    def _run(self, peer: Peer, request: RemotingCommand, result: Awaitable[Reply]) -> Reply:
        """Start and own the task that waits for `result`. If too many tasks wait already, return the reply that says so."""
        if len(self._running) >= self._running_max:
            _close(result)
            return request.reply(ResponseCode.SYSTEM_BUSY, OVERLOADED)
        task = asyncio.get_running_loop().create_task(
            self._answer(peer, request, result), name=f"request {request.code} of {peer.remote_address}"
        )
        self._running[task] = peer, result
        peer.began()
        task.add_done_callback(self._ended)
        return None

    async def _answer(self, peer: Peer, request: RemotingCommand, result: Awaitable[Reply]) -> None:
        try:
            reply = await result
        except Exception as error:  # noqa: BLE001 - as in _handle
            reply = self._failure(request, error)
        if reply is not None and not request.is_oneway:
            peer.send([reply])

    def _failure(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """The reply with code 1 and the error's description. An error that is not the sender's fault is logged here, once."""
        if isinstance(error, REFUSALS):
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        said = {"code": request.code, "opaque": request.opaque}
        if isinstance(error, OSError):  # for example a full disk; not a bug
            logger.error("handler failed", extra=fields(**said, why=error))
        else:
            logger.error("handler failed", extra=fields(**said), exc_info=error)
        if isinstance(error, AssertionError) and self._router.on_fatal is not None:
            self._router.on_fatal(error)
        return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        peer, result = self._running.pop(task)
        peer.ended()
        if task.cancelled():
            _close(result)  # its coroutine may not have begun


def _close(result: Awaitable[Reply]) -> None:
    """Close a result that no task awaits."""
    if (close := getattr(result, "close", None)) is not None:
        close()


def _belongs(
    command: RemotingCommand, batch_handlers: dict[int, BatchHandler], handler: BatchHandler
) -> bool:
    wanted = not command.flag & RESPONSE_BIT and not command.unread
    return wanted and batch_handlers.get(command.code) is handler


def _answer_unread(peer: Peer, command: RemotingCommand, replies: list[RemotingCommand]) -> None:
    """Reject one request whose header is too big. Other requests of the connection are served."""
    why = f"{command.unread}; send less in it"
    if command.flag & RESPONSE_BIT:
        peer.resolve(RemotingCommand(ResponseCode.SYSTEM_ERROR, command.opaque, RESPONSE_BIT, why))
    elif not command.is_oneway:
        is_send = command.code in SENDS  # the greatest legal properties (32,767 bytes) fit
        code = ResponseCode.MESSAGE_ILLEGAL if is_send else ResponseCode.SYSTEM_ERROR
        replies.append(command.reply(code, why))


def _with_own_body(command: RemotingCommand) -> RemotingCommand:
    if command.body is not None:
        command.body = bytes(command.body)
    return command
