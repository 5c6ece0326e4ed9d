"""The connection over which a former master passes on requests of clients to its successor.

Invariant: a request that writes is sent at most once. The answer is returned unchanged, under the client's own opaque. If the
connection ends before the answer to a write, the outcome of the write is unknown. Then the client's connection is closed, as if
the master had died. After `leave` a link closes by itself within LEFT_MS_MAX, because a successor that lost power does not
close it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.switchover.forwardingstate import Successor
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.network import Link, Network
from mqruntime.tasks import Tasks
from remoting.client import CLIENT_LIMITS
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE_BIT, Body, RemotingCommand
from remoting.deadlines import Deadlines
from remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX, encode
from remoting.headers.group import AwaitMasterHeader
from remoting.peer import Peer
from remoting.signing import Signer

logger = logging.getLogger("broker.forwarding")

CONNECT_TIMEOUT_MS = 1_000
AGAIN_MS = 50
AWAIT_MS = 1_000
AWAIT_TIMEOUT_MS = AWAIT_MS + 500
LEFT_MS_MAX = 35_000
"""Time for a former successor's answers. Longer than the 30 s for which the successor holds a pull at most."""
UNSENT_BYTES_MAX = 32 << 20
SERVES = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
"""Codes with which a master answers AWAIT_MASTER. An upstream broker does not know that request; it rejects requests by itself
if it is no master."""

FRAME_HEAD_BYTES_MAX = 8 + HEADER_BYTES_MAX
"""Limit of a frame's head. For a longer head the successor would close the connection, which all clients share."""
TOO_LONG = "it is too long to be passed on to the master; ask the master itself"


@dataclass(slots=True)
class Carried:
    """A request that was passed on: its client, the client's opaque, and for a read the request as it came (`again`)."""

    peer: Peer
    opaque: int
    again: RemotingCommand | None


class ForwardLink:
    """A link to one successor, reconnected until `leave`. Calls `on_opened()` when the successor serves, and
    `on_closed(unanswered reads)` when the open connection has ended. `on_request` gets the successor's requests."""

    def __init__(
        self,
        successor: Successor,
        clock: Clock,
        tasks: Tasks,
        network: Network,
        *,
        own_id: int | None,
        carried_max: int,
        signer: Signer | None,
        on_opened: Callable[[], None],
        on_closed: Callable[[list[Carried]], None],
        on_request: Callable[[Peer, RemotingCommand], None],
    ) -> None:
        self.successor = successor
        self._clock = clock
        self._tasks = tasks
        self._network = network
        self._own_id = own_id
        self._carried_max = carried_max
        self._signer = signer
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._on_request = on_request
        self._deadlines = Deadlines(clock)
        self._opaques = itertools.count(1)
        self._carried: dict[int, Carried] = {}
        self._connection: Peer | None = None
        self._open = False
        self.is_ours = False
        """Whether the successor knows that requests on this link are forwarded; an upstream broker does not."""
        self._left = False
        self._awaited: tuple[int, asyncio.Future[RemotingCommand]] | None = None
        self._gone = asyncio.Event()
        self._running = tasks.start(self._run(), name=f"forward to {successor.address}")

    # -- requests

    @property
    def takes_more(self) -> bool:
        """Whether one more request may be passed on now."""
        connection = self._connection
        return (
            self._open
            and connection is not None
            and len(self._carried) < self._carried_max
            and connection.unsent_bytes < UNSENT_BYTES_MAX
        )

    def pass_on(
        self, peer: Peer, commands: Sequence[RemotingCommand], again: Sequence[RemotingCommand] = ()
    ) -> None:
        """Send requests of `peer` in one write, and return the answers later. Copies the bodies of the requests. `again` are
        reads as they came, to be repeated if the connection ends before the answers."""
        assert self._connection is not None, "takes_more was checked"
        buffers: list[Body] = []
        for number, command in enumerate(commands):
            if command.body is not None:
                command.body = bytes(command.body)
            opaque = next(self._opaques)
            if not command.is_oneway:
                self._carried[opaque] = Carried(peer, command.opaque, again[number] if again else None)
            theirs, command.opaque = command.opaque, opaque
            frame = encode(command)
            command.opaque = theirs
            if len(frame[0]) > FRAME_HEAD_BYTES_MAX or sum(map(len, frame)) > FRAME_BYTES_MAX:
                self._carried.pop(opaque, None)
                refuse_too_long(peer, command)
                continue
            buffers += frame
        self._connection.write(buffers)

    @property
    def is_over(self) -> bool:
        """Whether the link was left and no answer can come any more."""
        return self._left and self._connection is None

    def leave(self) -> None:
        """Pass on no more requests. Outstanding answers may still come."""
        was_left = self._left
        self._left, self._open = True, False
        self._running.cancel()
        self._close_when_empty()
        if self._carried and not was_left:
            self._tasks.start(self._ends_at_last(), name=f"answers of {self.successor.address}")

    def cut(self) -> None:
        """Close the connection, so that no more answers come."""
        self.leave()
        if self._connection is not None:
            self._connection.cut("forwarding ends")

    async def _ends_at_last(self) -> None:
        await asyncio.sleep(LEFT_MS_MAX / 1000)
        if self._connection is not None:
            self._connection.cut("a former successor does not answer")

    # -- connecting

    async def _run(self) -> None:
        while True:
            if await self._connected() and await self._serves():
                self._open = True
                self._on_opened()
                await self._gone.wait()
            elif self._connection is not None:
                self._connection.close()
            await asyncio.sleep(AGAIN_MS / 1000)

    async def _connected(self) -> bool:
        if self._connection is not None and not self._connection.closed:
            return True
        host, _, port = self.successor.address.rpartition(":")
        self._gone.clear()
        try:
            self._connection = await self._network.connect(
                self._protocol, host.strip("[]"), int(port), CONNECT_TIMEOUT_MS, Link.REMOTING
            )
        except (OSError, TimeoutError, ValueError) as error:
            said = fields(successor=self.successor.address, why=str(error) or "timeout")
            logger.debug("successor not reached", extra=said)
            return False
        return True

    async def _serves(self) -> bool:
        """Whether the successor reports in time that it serves."""
        header = AwaitMasterHeader(self.successor.master_epoch, AWAIT_MS, self._own_id)
        question = RemotingCommand.request(RequestCode.AWAIT_MASTER, header)
        if self._signer is not None:
            self._signer.sign(question)
        question.opaque = next(self._opaques)
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._awaited = question.opaque, answer
        assert self._connection is not None
        self._connection.send([question])
        try:
            async with asyncio.timeout(AWAIT_TIMEOUT_MS / 1000):
                code = (await answer).code
                self.is_ours = code == ResponseCode.SUCCESS
                return code in SERVES
        except TimeoutError:
            return False

    def _protocol(self) -> Peer:
        return Peer(self, CLIENT_LIMITS, self._clock, self._deadlines)

    # -- events of the connection

    def opened(self, peer: Peer) -> None:
        """Nothing to do: `_connected` has stored the connection."""

    def received(self, peer: Peer, commands: list[RemotingCommand]) -> int:
        answers: dict[Peer, list[RemotingCommand]] = {}
        for command in commands:
            if not command.flag & RESPONSE_BIT:
                if command.body is not None:
                    command.body = bytes(command.body)
                self._on_request(peer, command)
                continue
            if self._awaited is not None and command.opaque == self._awaited[0]:
                if not self._awaited[1].done():
                    self._awaited[1].set_result(command)
                continue
            carried = self._carried.pop(command.opaque, None)
            if carried is None:
                continue
            command.opaque = carried.opaque
            if command.body is not None:
                command.body = bytes(command.body)
            answers.setdefault(carried.peer, []).append(command)
        for client, its_answers in answers.items():
            client.send(its_answers)
        if self._left:
            self._close_when_empty()
        return len(commands)

    def gone(self, peer: Peer) -> None:
        if peer is not self._connection:
            return
        was_open, self._open, self._connection = self._open, False, None
        carried, self._carried = list(self._carried.values()), {}
        for one in carried:
            if one.again is None:
                one.peer.cut(
                    "its request was passed on, and the connection to the master ended before the answer"
                )
        self._gone.set()
        if was_open or carried:
            self._on_closed([one for one in carried if one.again is not None and not one.peer.closed])

    def _close_when_empty(self) -> None:
        if not self._carried and self._connection is not None:
            self._connection.close()


def refuse_too_long(peer: Peer, command: RemotingCommand) -> None:
    """Reject a request whose frame is longer than the limit, because of the new opaque or another encoding."""
    if not command.is_oneway:
        peer.send([command.reply(ResponseCode.SYSTEM_ERROR, TOO_LONG)])
