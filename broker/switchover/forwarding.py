"""Forwarding by a former master: requests of clients wait until the successor serves, and are then passed on to the successor.

Invariant: each request is served, passed on or rejected once, in the order in which the requests came. The number, bytes and
time of waiting requests are limited. A rejected request was neither stored nor passed on. A request that may have waited while
this process was paused is not passed on, because its client may have used the successor since. Some requests may undo later
requests of the same client. An upstream broker does not detect that, so it gets no such request."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from broker.clients.refusals import REJECTED
from broker.neighbours.naps import LOOK_MS, Naps
from broker.switchover.forwardingstate import (
    SERVING,
    Action,
    ForwardingState,
    Leave,
    Reach,
    Release,
    Stage,
    Successor,
)
from broker.switchover.forwardlink import Carried, ForwardLink
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.log import fields
from mqruntime.network import PLAIN, Network
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.pull import SYS_FLAG_COMMIT_OFFSET
from remoting.peer import Peer
from remoting.plainsends import SendsHandler, commands_of
from remoting.router import BatchHandler, Handler, Reply, Router
from remoting.signing import Signer

if TYPE_CHECKING:
    from nativepath.native import Sends

logger = logging.getLogger("broker.forwarding")

WAIT_MS_MAX = 2_500
"""Shorter than the time that clients wait for an answer."""
WAITING_BYTES_MAX = 64 << 20
RELEASED_MAX, RELEASE_US = 500, 5_000
"""Waiting requests that are released in one turn of the event loop, and the time for that. Tens of thousands may wait."""
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


PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
UNDO = (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ)
"""Passed on late, these may undo later requests of the client to the successor. Our brokers detect that and skip them."""
PASSED_ON = frozenset(
    {*WRITES, *READS, RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
Outcome = Reply | Awaitable[Reply]


@dataclass(slots=True)
class WaitingCommands:
    """The waiting `commands` of one receive: either sends, which `serve` answers, or one other request (`one`), whose task
    waits for its turn."""

    peer: Peer
    commands: list[RemotingCommand]
    deadline_ms: int
    size: int
    nap: int
    """Number of the last pause of the process before the commands came."""
    is_late: bool
    serve: BatchHandler | None = None
    one: tuple[Handler, bool, asyncio.Future[Outcome]] | None = None
    """The handler of the request, whether the request writes, and its turn."""


class Forwarding:
    """`carried_max` limits the requests that wait here, and separately those that wait for the successor's answers.
    `forward_ms` and `readers_wait` are the arguments of ForwardingState. `tasks` run the connections. `signer` signs what this
    broker itself asks successors."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        network: Network = PLAIN,
        *,
        carried_max: int,
        forward_ms: int,
        readers_wait: bool = False,
        signer: Signer | None = None,
    ) -> None:
        self.state = ForwardingState(forward_ms, readers_wait=readers_wait)
        self._network = network
        self._signer = signer
        self.clients: dict[Peer, None] = {}
        """Open connections with requests that may be passed on."""
        self.on_reply: PassBack | None = None
        """Pushes a reply that comes from the successor to its client, which is connected here."""
        self.before_passing: Callable[[Peer, list[RemotingCommand]], None] = lambda peer, commands: None
        """Called with requests as they came, before they are passed on."""
        self.on_passing: Callable[[Peer, list[RemotingCommand]], None] = lambda peer, commands: None
        """Called with requests that are passed on."""
        self.on_passing_to_ours: Callable[[Peer, list[RemotingCommand]], None] = lambda peer, commands: None
        """Called with requests that are passed on to a successor that knows that they are passed on."""
        self.recheck: Callable[[Peer, RemotingCommand], RemotingCommand | None] = lambda peer, command: None
        """Returns the refusal of a request that waited and is served here now; None if its client may send it."""
        self.own_id: Callable[[], int | None] = lambda: None
        """Returns this broker's id, which the successor gets."""
        self._callbacks: list[Callable[[], None]] = []
        self.forwarded = 0
        self.late = 0
        """Number of requests that were not passed on because they may have waited while this process was paused. They were
        rejected; one-way requests were dropped."""
        self.naps = Naps(clock)
        self._clock = clock
        self._tasks = tasks
        self._carried_max = carried_max
        self._link: ForwardLink | None = None
        self._links: list[ForwardLink] = []
        """The present link, and former links whose answers may still come."""
        self._waiting: deque[WaitingCommands] = deque()
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._timer = CoreTimer(clock, tasks, self._tick)
        self._stops = False
        self._drains = False
        """Whether waiting requests are being released, in several turns of the event loop. New ones wait behind them."""

    def on_release(self, callback: Callable[[], None]) -> None:
        """Call `callback` when waiting requests stop waiting, because they are served here, passed on or rejected."""
        self._callbacks.append(callback)

    def guard(self, router: Router) -> None:
        """Route the requests of clients in `router` through this object. Sends need `sends`."""
        for codes, writes in ((WRITES, True), (READS, False)):
            for code in codes:
                router.handlers[code] = partial(self._one, router.handlers[code], writes)

    def guards_all(self, router: Router, *, but: Collection[int]) -> None:
        """Reject all requests in `router` that are not passed on, except the codes in `but`. From now on a task lets waiting
        requests expire."""
        self._tasks.start(self._look(), name="naps")
        for code in router.handlers.keys() - {*WRITES, *READS, *but}:
            router.handlers[code] = _stopped

    def sends(self, serve: BatchHandler) -> BatchHandler:
        """Wrap `serve`, the handler of sends that are served here."""
        return partial(self._sends, serve)

    def plain_sends(self, serve: SendsHandler, otherwise: BatchHandler) -> SendsHandler:
        """Wrap `serve`, the handler of plain sends that are served here. `otherwise` handles sends that waited before."""
        return partial(self._plain_sends, serve, otherwise)

    # -- changes of mastership

    def hand_over(self, hold_ms: int) -> None:
        self._perform(self.state.hand_over(hold_ms, self._clock.monotonic_ms()))

    def called_off(self) -> None:
        self._perform(self.state.called_off())

    def announced(self) -> None:
        self._perform(self.state.announced(self._clock.monotonic_ms()))

    def leads(self, *, is_formed: bool) -> None:
        self._perform(self.state.leads(self._clock.monotonic_ms(), is_formed=is_formed))

    def unsure(self) -> None:
        self._perform(self.state.unsure(self._clock.monotonic_ms()))

    def formed(self) -> None:
        self._perform(self.state.formed())

    def follows(self, address: str, master_epoch: int) -> None:
        self._perform(self.state.follows(Successor(address, master_epoch), self._clock.monotonic_ms()))

    def refuse_waiting(self) -> None:
        """Reject all requests that wait here."""
        self._refuse_until(None)

    async def stop(self) -> None:
        """Reject waiting requests, and wait a moment for the answers to requests that were passed on."""
        self._stops = True
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
        """Reject requests that have waited for WAIT_MS_MAX at `now_ms`. Called every LOOK_MS."""
        self.naps.look()
        self._refuse_until(now_ms)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            self.expire(self._clock.monotonic_ms())

    @property
    def passes_on(self) -> bool:
        """Whether requests of clients are passed on to a successor, or wait for the successor to serve."""
        return self.state.stage in (Stage.AWAITING, Stage.FORWARDING)

    def checks_later(self, code: int) -> bool:
        """Whether requests of this code wait here or are passed on now: they are checked when they are served, here or by
        another master."""
        return code in PASSED_ON and not (self.state.reads_here if code in READS else self.state.writes_here)

    @property
    def listed_as_master(self) -> bool:
        """Whether name servers should still list this broker as master, because its successor has not registered yet."""
        return self.state.stage is Stage.AWAITING

    @property
    def reached(self) -> bool:
        return self.state.stage is Stage.FORWARDING

    # -- requests

    def _sends(self, serve: BatchHandler, peer: Peer, commands: list[RemotingCommand]) -> None:
        stage = self.state.stage
        if peer not in self.clients:
            self._note_client(peer)
        if stage is SERVING and not self._drains:
            serve(peer, commands)
        elif stage is Stage.FORWARDING and not self._drains:
            self._pass_on(peer, commands, is_late=self.naps.is_late(peer))
        elif stage is Stage.REFUSING or self._full(size := _size(commands), len(commands)):
            _refuse(peer, commands)
        else:
            for command in commands:
                if command.body is not None:
                    command.body = bytes(command.body)
            self._wait(peer, commands, size, serve=serve)

    def _plain_sends(self, serve: SendsHandler, otherwise: BatchHandler, peer: Peer, sends: Sends) -> None:
        if self.state.stage is SERVING and peer in self.clients and not self._drains:
            serve(peer, sends)
        else:
            self._sends(otherwise, peer, commands_of(sends))

    def _pass_on(
        self, peer: Peer, commands: list[RemotingCommand], *, is_late: bool, reads: bool = False
    ) -> None:
        link = self._link
        if is_late:
            if not self.late:
                logger.info("not passed on: may have waited while this broker was paused")
            self.late += len(commands)
            _refuse(peer, commands)
        elif link is None or not link.takes_more or (not link.is_ours and commands[0].code in UNDO):
            _refuse(peer, commands)
        else:
            again = [_as_it_came(command) for command in commands] if reads else []
            self.before_passing(peer, commands)
            if link.is_ours:
                self.on_passing_to_ours(peer, commands)
            else:
                commands = _without_commits(commands)
            self.forwarded += len(commands)
            self.on_passing(peer, commands)
            link.pass_on(peer, commands, again)

    def _note_client(self, peer: Peer) -> None:
        self.clients[peer] = None
        peer.on_close(lambda gone: self.clients.pop(gone, None))

    def _one(
        self, serve: Handler, writes: bool, peer: Peer, command: RemotingCommand
    ) -> Reply | Awaitable[Reply]:
        if peer not in self.clients:
            self._note_client(peer)
        if self._is_here(writes) and not self._drains:
            return serve(peer, command)
        if self.state.stage is Stage.FORWARDING and not self._drains:
            self._pass_on(peer, [command], is_late=self.naps.is_late(peer), reads=not writes)
            return None
        if not (self.state.holds or self._drains) or self._full(size := _size([command]), 1):
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        turn: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._wait(peer, [command], size, one=(serve, writes, turn))
        return _in_its_turn(turn)

    def _released(self, waiting: WaitingCommands, handler: Handler, writes: bool) -> Outcome:
        """Serve, pass on or reject one request that waited."""
        peer, (command,) = waiting.peer, waiting.commands
        if self._is_here(writes):
            return self.recheck(peer, command) or handler(peer, command)
        if self.state.stage is Stage.FORWARDING:
            is_late = waiting.is_late or waiting.nap != self.naps.number
            self._pass_on(peer, [command], is_late=is_late, reads=not writes)
            return None
        return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)

    def _is_here(self, writes: bool) -> bool:
        return self.state.writes_here if writes else self.state.reads_here

    # -- waiting requests

    def _full(self, size: int, count: int) -> bool:
        return (
            self._waiting_count + count > self._carried_max or self._waiting_bytes + size > WAITING_BYTES_MAX
        )

    def _wait(
        self,
        peer: Peer,
        commands: list[RemotingCommand],
        size: int,
        *,
        serve: BatchHandler | None = None,
        one: tuple[Handler, bool, asyncio.Future[Outcome]] | None = None,
    ) -> None:
        is_late, deadline_ms = self.naps.is_late(peer), self._clock.monotonic_ms() + WAIT_MS_MAX
        self._append(
            WaitingCommands(peer, commands, deadline_ms, size, self.naps.number, is_late, serve, one)
        )

    def _append(self, waiting: WaitingCommands) -> None:
        self._waiting.append(waiting)
        self._waiting_count += len(waiting.commands)
        self._waiting_bytes += waiting.size

    def _taken(self) -> WaitingCommands:
        waiting = self._waiting.popleft()
        self._waiting_count -= len(waiting.commands)
        self._waiting_bytes -= waiting.size
        return waiting

    def _release(self) -> None:
        """Release all waiting requests as the stage requires. Requests that have to wait longer keep their order."""
        self.naps.look()
        self._release_some()
        for callback in self._callbacks:
            callback()

    def _release_some(self) -> None:
        """Release waiting requests, and the rest in further turns of the event loop."""
        left, end_us = RELEASED_MAX, self._clock.work_us() + RELEASE_US
        for _ in range(len(self._waiting)):
            if not self._waiting:
                return
            if left <= 0 or self._clock.work_us() >= end_us:
                self._drains = True
                asyncio.get_running_loop().call_soon(self._drain)
                return
            waiting = self._taken()
            left -= len(waiting.commands)
            if waiting.one is not None:
                self._release_one(waiting, *waiting.one)
            elif waiting.serve is not None:
                self._release_sends(waiting, waiting.serve)

    def _drain(self) -> None:
        self._drains = False
        if not self.state.holds:  # otherwise they wait for the next release
            self._release_some()

    def _release_one(
        self, waiting: WaitingCommands, handler: Handler, writes: bool, turn: asyncio.Future[Outcome]
    ) -> None:
        if turn.done():
            return  # the request's task has ended
        if self.state.holds and not self._is_here(writes):
            self._append(waiting)
            return
        try:
            turn.set_result(self._released(waiting, handler, writes))
        except Exception as error:  # noqa: BLE001 - any error belongs to the task that waits for the turn
            turn.set_exception(error)

    def _serve_at_last(self, peer: Peer, commands: list[RemotingCommand], serve: BatchHandler) -> None:
        accepted: list[RemotingCommand] = []
        refusals: list[RemotingCommand] = []
        for command in commands:
            refusal = self.recheck(peer, command)
            if refusal is None:
                accepted.append(command)
            elif not command.is_oneway:
                refusals.append(refusal)
        peer.send(refusals)
        if accepted:
            serve(peer, accepted)

    def _release_sends(self, waiting: WaitingCommands, serve: BatchHandler) -> None:
        stage, peer, commands = self.state.stage, waiting.peer, waiting.commands
        if stage is SERVING:
            self._serve_at_last(peer, commands, serve)
        elif stage is Stage.FORWARDING:
            self._pass_on(peer, commands, is_late=waiting.is_late or waiting.nap != self.naps.number)
        elif stage is Stage.REFUSING:
            _refuse(peer, commands)
        else:
            self._append(waiting)

    def _refuse_until(self, now_ms: int | None) -> None:
        """Reject the requests whose deadline has passed at `now_ms`; None: all requests."""
        while self._waiting and (now_ms is None or self._waiting[0].deadline_ms <= now_ms):
            waiting = self._taken()
            if waiting.one is None:
                _refuse(waiting.peer, waiting.commands)
            elif not (turn := waiting.one[2]).done():
                turn.set_result(waiting.commands[0].reply(ResponseCode.SYSTEM_BUSY, REJECTED))

    # -- actions of the state machine

    def _tick(self) -> None:
        self._perform(self.state.tick(self._clock.monotonic_ms()))

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Reach(successor):
                    self._reach(successor)
                case Leave():
                    self._leave()
                case Release():
                    self._release()
        self._timer.due_at(self.state.next_tick_ms)

    def _reach(self, successor: Successor) -> None:
        self._leave()
        logger.info(
            "awaiting successor", extra=fields(successor=successor.address, epoch=successor.master_epoch)
        )
        self._link = ForwardLink(
            successor,
            self._clock,
            self._tasks,
            self._network,
            own_id=self.own_id(),
            carried_max=self._carried_max,
            signer=self._signer,
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
        self._perform(self.state.opened(successor))

    def _closed(self, successor: Successor, unanswered: list[Carried]) -> None:
        self._perform(self.state.closed(successor, self._clock.monotonic_ms()))
        for one in unanswered:
            if one.again is not None and self._stops:
                _refuse(one.peer, [one.again])
            elif one.again is not None:
                self._tasks.start(self._ask_again(one.peer, one.again), name="forward again")

    async def _ask_again(self, peer: Peer, command: RemotingCommand) -> None:
        """Repeat a read, because the connection ended before the answer came."""
        result = self._one(_nobody_here, False, peer, command)
        reply = await result if inspect.isawaitable(result) else result
        if reply is not None:
            peer.send([reply])

    def _asked(self, link: Peer, command: RemotingCommand) -> None:
        """Pass on the successor's reply to a client. The successor sends no other requests."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and self.on_reply is not None:
            self._tasks.start(self._pass_back(self.on_reply, link, command), name="reply passed back")
        else:
            logger.debug("request of the successor not answered", extra=fields(code=command.code))

    async def _pass_back(self, handle: PassBack, link: Peer, command: RemotingCommand) -> None:
        link.send([await handle(command)])


def _stopped(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has stopped, and only forwards")


def _nobody_here(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)


async def _in_its_turn(turn: asyncio.Future[Outcome]) -> Reply:
    try:
        result = await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled() and inspect.iscoroutine(result := turn.result()):
            result.close()
        raise
    return await result if inspect.isawaitable(result) else result


def _as_it_came(command: RemotingCommand) -> RemotingCommand:
    """A copy, because fields are changed before the request is passed on. The client has signed the fields as they came."""
    body = None if command.body is None else bytes(command.body)
    return replace(command, ext=dict(command.ext), body=body)


def _without_commits(commands: list[RemotingCommand]) -> list[RemotingCommand]:
    """Remove the commits of offsets from pulls, which then only ask for messages."""
    for command in commands:
        flags = command.ext.get("sysFlag", "")
        if command.code in PULLS and flags.isascii() and flags.isdigit():
            command.ext = {**command.ext, "sysFlag": str(int(flags) & ~SYS_FLAG_COMMIT_OFFSET)}
    return commands


def _size(commands: list[RemotingCommand]) -> int:
    """The size of bodies and headers; a header may have 1 MiB."""
    bodies = sum(len(command.body) for command in commands if command.body is not None)
    return bodies + sum(len(key) + len(value) for command in commands for key, value in command.ext.items())


def _refuse(peer: Peer, commands: list[RemotingCommand]) -> None:
    peer.send(
        [command.reply(ResponseCode.SYSTEM_BUSY, REJECTED) for command in commands if not command.is_oneway]
    )
