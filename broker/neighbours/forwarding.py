"""What a former master does with what clients still send it: it waits until the successor serves, and is passed on.

Invariant: sends are served, passed on or refused in the order in which they came; each of them once. What waits is bounded in
number, bytes and time; what is refused was neither stored nor passed on."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from broker.clients.refusals import REJECTED
from broker.neighbours.forwardlink import Carried, ForwardLink
from broker.role.passage import HERE, Action, Leave, Passage, Reach, Release, Stage, Successor
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.plainsends import SendsHandler, commands_of
from remoting.router import BatchHandler, Handler, Reply, Router

if TYPE_CHECKING:
    from nativepath.native import Sends

logger = logging.getLogger("broker.forwarding")

WAIT_MS_MAX = 2_500
"""Less than clients wait for an answer."""
WAITING_BYTES_MAX = 64 << 20
LAST_ANSWERS_MS, LAST_LOOK_MS = 500, 20
PassBack = Callable[[RemotingCommand], Awaitable[RemotingCommand]]
WRITES = (
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.END_TRANSACTION,
)
READS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)


@dataclass(slots=True)
class Waiting:
    """Sends of one receive, or one other request, whose task waits for `turn`."""

    deadline_ms: int
    size: int
    count: int
    sends: tuple[Peer, list[RemotingCommand], BatchHandler] | None = None
    turn: asyncio.Future[None] | None = None


class Forwarding:
    """`carried_max` requests may wait for their answers, as many for the successor; `forward_ms` as of Passage; `tasks`
    run what follows."""

    def __init__(self, clock: Clock, tasks: Tasks, *, carried_max: int, forward_ms: int) -> None:
        self.passage = Passage(forward_ms)
        self.clients: dict[Peer, None] = {}
        """Open connections that brought what may be passed on."""
        self.on_reply: PassBack | None = None
        """Pushes a reply of the successor's to its client here."""
        self.on_passing: Callable[[Peer, list[RemotingCommand]], None] = lambda peer, commands: None
        """Hears of requests that are being passed on."""
        self.own_id: Callable[[], int | None] = lambda: None
        """Who this broker is to its successor."""
        self._callbacks: list[Callable[[], None]] = []
        self.forwarded = 0
        self._clock = clock
        self._tasks = tasks
        self._carried_max = carried_max
        self._link: ForwardLink | None = None
        self._links: list[ForwardLink] = []
        """That one, and those left from which answers may come yet."""
        self._waiting: deque[Waiting] = deque()
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._timer = CoreTimer(clock, tasks, self._tick)

    def on_release(self, callback: Callable[[], None]) -> None:
        """`callback` when it is known where requests go: here, to a successor that serves, or nowhere."""
        self._callbacks.append(callback)

    def guard(self, router: Router) -> None:
        """From now on requests of clients in `router` pass here first; sends do by themselves, through `sends`."""
        for codes, writes in ((WRITES, True), (READS, False)):
            for code in codes:
                router.handlers[code] = partial(self._one, router.handlers[code], writes)

    def guards_all(self, router: Router, *, but: Collection[int]) -> None:
        """Everything in `router` that is not passed on is refused from now on, `but` these codes."""
        for code in router.handlers.keys() - {*WRITES, *READS, *but}:
            router.handlers[code] = _stopped

    def sends(self, serve: BatchHandler) -> BatchHandler:
        """`serve`, for sends that are served here."""
        return partial(self._sends, serve)

    def plain_sends(self, serve: SendsHandler, otherwise: BatchHandler) -> SendsHandler:
        """`serve`, for plain sends that are served here; what waits first is `otherwise` served."""
        return partial(self._plain_sends, serve, otherwise)

    # -- what happens to mastership

    def hand_over(self, hold_ms: int) -> None:
        self._perform(self.passage.hand_over(hold_ms, self._clock.monotonic_ms()))

    def called_off(self) -> None:
        self._perform(self.passage.called_off())

    def announced(self) -> None:
        self._perform(self.passage.announced(self._clock.monotonic_ms()))

    def leads(self, *, is_formed: bool) -> None:
        self._perform(self.passage.leads(self._clock.monotonic_ms(), is_formed=is_formed))

    def formed(self) -> None:
        self._perform(self.passage.formed())

    def follows(self, address: str, master_epoch: int) -> None:
        self._perform(self.passage.follows(Successor(address, master_epoch), self._clock.monotonic_ms()))

    def refuse_waiting(self) -> None:
        """Nobody waits here any more."""
        self._refuse_until(None)

    async def stop(self) -> None:
        """Whoever waits is refused; what was passed on has a moment to be answered."""
        self._leave()
        self._timer.cancel()
        self._refuse_until(None)
        deadline_ms = self._clock.monotonic_ms() + LAST_ANSWERS_MS
        while self._links and self._clock.monotonic_ms() < deadline_ms:
            await asyncio.sleep(LAST_LOOK_MS / 1000)
            self._forget_links()
        for link in self._links:
            link.cut()
        await self._tasks.stop()

    def expire(self, now_ms: int) -> None:
        """Refuse what has waited long enough at `now_ms`."""
        self._refuse_until(now_ms)

    @property
    def passes_on(self) -> bool:
        """Whether clients that come here are, or soon will be, served by a successor."""
        return self.passage.stage in (Stage.AWAITING, Stage.OPEN)

    @property
    def stands_in(self) -> bool:
        """Whether name servers had better call this broker the master until its successor has told them otherwise."""
        return self.passage.stage is Stage.AWAITING

    @property
    def reached(self) -> bool:
        return self.passage.stage is Stage.OPEN

    # -- requests

    def _sends(self, serve: BatchHandler, peer: Peer, commands: list[RemotingCommand]) -> None:
        stage = self.passage.stage
        if peer not in self.clients:
            self._note_client(peer)
        if stage is HERE:
            serve(peer, commands)
        elif stage is Stage.OPEN:
            self._pass_on(peer, commands)
        elif stage is Stage.SHUT or self._full(size := _size(commands), len(commands)):
            _refuse(peer, commands)
        else:
            for command in commands:
                if command.body is not None:
                    command.body = bytes(command.body)
            self._wait(Waiting(self._deadline_ms(), size, len(commands), sends=(peer, commands, serve)))

    def _plain_sends(self, serve: SendsHandler, otherwise: BatchHandler, peer: Peer, sends: Sends) -> None:
        if self.passage.stage is HERE and peer in self.clients:
            serve(peer, sends)
        else:
            self._sends(otherwise, peer, commands_of(sends))

    def _pass_on(self, peer: Peer, commands: list[RemotingCommand], *, reads: bool = False) -> None:
        if self._link is not None and self._link.takes_more:
            self.forwarded += len(commands)
            self.on_passing(peer, commands)
            self._link.pass_on(peer, commands, reads=reads)
        else:
            _refuse(peer, commands)

    def _note_client(self, peer: Peer) -> None:
        self.clients[peer] = None
        peer.on_close(lambda gone: self.clients.pop(gone, None))

    def _one(
        self, serve: Handler, writes: bool, peer: Peer, command: RemotingCommand
    ) -> Reply | Awaitable[Reply]:
        if peer not in self.clients:
            self._note_client(peer)
        if self._is_here(writes):
            return serve(peer, command)
        return self._one_elsewhere(serve, writes, peer, command)

    async def _one_elsewhere(
        self, serve: Handler, writes: bool, peer: Peer, command: RemotingCommand
    ) -> Reply:
        passage, size, deadline_ms = self.passage, _size([command]), self._deadline_ms()
        while passage.holds and not self._is_here(writes):
            if self._full(size, 1) or self._clock.monotonic_ms() >= deadline_ms:
                return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait(Waiting(deadline_ms, size, 1, turn=turn))
            await turn
        if self._is_here(writes):
            result = serve(peer, command)
            return await result if inspect.isawaitable(result) else result
        if passage.stage is not Stage.OPEN:
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        self._pass_on(peer, [command], reads=not writes)
        return None

    def _is_here(self, writes: bool) -> bool:
        return self.passage.writes_here if writes else self.passage.reads_here

    # -- what waits

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + WAIT_MS_MAX

    def _full(self, size: int, count: int) -> bool:
        return (
            self._waiting_count + count > self._carried_max or self._waiting_bytes + size > WAITING_BYTES_MAX
        )

    def _wait(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        self._waiting_count += waiting.count
        self._waiting_bytes += waiting.size

    def _taken(self) -> Waiting:
        waiting = self._waiting.popleft()
        self._waiting_count -= waiting.count
        self._waiting_bytes -= waiting.size
        return waiting

    def _release(self) -> None:
        """All that wait go where the stage says now; what is to wait on comes behind nothing that it was before."""
        for _ in range(len(self._waiting)):
            waiting = self._taken()
            if waiting.turn is not None:
                _let_go(waiting.turn)
            elif waiting.sends is not None:
                self._sends(waiting.sends[2], *waiting.sends[:2])
        for callback in self._callbacks:
            callback()

    def _refuse_until(self, now_ms: int | None) -> None:
        """Those whose time is over at `now_ms`, or all; a request with a task of its own refuses itself."""
        while self._waiting and (now_ms is None or self._waiting[0].deadline_ms <= now_ms):
            waiting = self._taken()
            if waiting.turn is not None:
                _let_go(waiting.turn)
            elif waiting.sends is not None:
                _refuse(*waiting.sends[:2])

    # -- consequences

    def _tick(self) -> None:
        self._perform(self.passage.tick(self._clock.monotonic_ms()))

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Reach(successor):
                    self._reach(successor)
                case Leave():
                    self._leave()
                case Release():
                    self._release()
        self._timer.due_at(self.passage.next_tick_ms)

    def _reach(self, successor: Successor) -> None:
        self._leave()
        logger.info(
            "awaiting successor", extra=fields(successor=successor.address, epoch=successor.master_epoch)
        )
        self._link = ForwardLink(
            successor,
            self._clock,
            self._tasks,
            own_id=self.own_id(),
            carried_max=self._carried_max,
            on_opened=partial(self._opened, successor),
            on_closed=partial(self._closed, successor),
            on_request=self._asked,
        )
        self._forget_links()
        self._links.append(self._link)

    def _forget_links(self) -> None:
        self._links = [link for link in self._links if not link.is_over]

    def _leave(self) -> None:
        if self._link is not None:
            self._link.leave()
            self._link = None

    def _opened(self, successor: Successor) -> None:
        logger.info(
            "forwarding begins", extra=fields(successor=successor.address, waiting=self._waiting_count)
        )
        self._perform(self.passage.opened(successor))

    def _closed(self, successor: Successor, unanswered: list[Carried]) -> None:
        self._perform(self.passage.closed(successor, self._clock.monotonic_ms()))
        for one in unanswered:
            if one.again is not None:
                self._tasks.start(self._ask_again(one.peer, one.again), name="forward again")

    async def _ask_again(self, peer: Peer, command: RemotingCommand) -> None:
        """A read whose answer did not come before the connection ended."""
        reply = await self._one_elsewhere(_nobody_here, False, peer, command)
        if reply is not None:
            peer.send([reply])

    def _asked(self, link: Peer, command: RemotingCommand) -> None:
        """The successor has a reply to what a client asked through this broker; it asks for nothing else."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and self.on_reply is not None:
            self._tasks.start(self._pass_back(self.on_reply, link, command), name="reply passed back")
        else:
            logger.debug("request of the successor not answered", extra=fields(code=command.code))

    async def _pass_back(self, handle: PassBack, link: Peer, command: RemotingCommand) -> None:
        link.send([await handle(command)])


def _stopped(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has stopped, and only passes on")


def _nobody_here(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)


def _let_go(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _size(commands: list[RemotingCommand]) -> int:
    """Of bodies and headers; those may have 1 MiB."""
    bodies = sum(len(command.body) for command in commands if command.body is not None)
    return bodies + sum(len(key) + len(value) for command in commands for key, value in command.ext.items())


def _refuse(peer: Peer, commands: list[RemotingCommand]) -> None:
    peer.send(
        [command.reply(ResponseCode.SYSTEM_BUSY, REJECTED) for command in commands if not command.is_oneway]
    )
