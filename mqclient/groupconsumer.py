"""The messages that one member of a consumer group gets: taken one by one or in batches, finished in any order, handed back if
they fail. Upstream: DefaultMQPushConsumer, ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.

Invariant: each message is acknowledged, handed back, or given to some member again. With `ordered`, a queue has at most one
message in the application's hands, in this member or another one. Each `await` may be cancelled; what was taken and not
finished is given to a member again."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from mqclient.consumer import CALL_TIMEOUT_MS, PullConsumer
from mqclient.errors import (
    LockFailed,
    PullFailed,
    RouteUnknown,
    SubscriptionFailed,
    SubscriptionStopped,
    in_short,
)
from mqclient.groupmember import GroupMember
from mqclient.queuelocks import RENEW_MS, QueueLocks
from mqclient.queuepuller import QueuePuller, StartPosition
from mqclient.received import ReceivedMessage
from mqclient.route import MessageQueue
from mqclient.routetable import TopicRoutes
from mqclient.selectors import RETRY_PREFIX, Selector
from mqclient.together import together
from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.allocation import STRATEGIES
from remoting.bodies.heartbeats import ConsumerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.messages import ConsumerSendMsgBackHeader

logger = logging.getLogger("mqclient")

COMMIT_MS = 5_000
LOCK_MS = 500
"""A queue that is read in order is asked for so often, while another member holds it."""
SUSPEND_MS = 1_000
"""A message that failed in a queue that is read in order comes again after this time."""
AGAIN_MS = 1_000
"""A message that could not be handed back to a broker comes again here after this time."""
DEAD_LETTER = -1
"""The delay level with which a message goes to the dead letters at once."""
BROKER_DECIDES = 0
TROUBLE_MS = 30_000
"""The same trouble with a queue is logged once in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a group is read; see Client.subscribe. Raises ValueError."""

    ordered: bool = False
    broadcast: bool = False
    start: StartPosition
    strategy: str
    max_messages: int
    max_bytes: int
    max_reconsume_times: int | None
    grace_s: float

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        if self.ordered and self.broadcast:
            raise ValueError("ordered and broadcast exclude each other: choose one")
        if min(self.max_messages, self.max_bytes) < 1:
            raise ValueError("max_messages and max_bytes are at least 1")


class GroupConsumer:
    """Made by `Client.subscribe`; used with `async with`."""

    def __init__(
        self,
        group: str,
        selectors: dict[str, Selector],
        *,
        options: ConsumerOptions,
        client_id: str,
        consumer: PullConsumer,
        locks: QueueLocks,
        routes: TopicRoutes,
        client: RemotingClient,
        clock: Clock,
        opened: Callable[[GroupConsumer], None],
        closed: Callable[[GroupConsumer], None],
    ) -> None:
        self.group = group
        self.options = options
        self.selectors = dict(selectors)
        if not options.broadcast:
            self.selectors[RETRY_PREFIX + group] = Selector()
        self._consumer = consumer
        self._locks = locks if options.ordered else None
        self._routes = routes
        self._client = client
        self._clock = clock
        self._opened = opened
        self._closed = closed
        self.version = clock.now_ms()
        data = ConsumerData(
            group,
            message_model="BROADCASTING" if options.broadcast else "CLUSTERING",
            consume_from_where=options.start.consume_from_where,
            subscription_data_set=[
                selector.data(topic, self.version) for topic, selector in self.selectors.items()
            ],
        )
        self.subscription_data = data.subscription_data_set
        self.member = GroupMember(
            client_id,
            data,
            STRATEGIES[options.strategy],
            self._take_share,
            routes=routes,
            client=client,
            clock=clock,
        )
        self.pullers: dict[MessageQueue, QueuePuller] = {}
        self._leaving: dict[QueuePuller, None] = {}
        """Pullers of queues that other members read next, with messages still in the application's hands."""
        self._turn: OrderedDict[QueuePuller, None] = OrderedDict()
        """Pullers in the order in which messages are taken from them."""
        self._failures: dict[QueuePuller, tuple[int, int]] = {}
        """Of pullers in order: the offset of the message that failed last, and how often."""
        self._paused: set[MessageQueue] = set()
        self._all_paused = False
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._settled = asyncio.Event()
        """Set whenever a message is finished."""
        self._in_hands: dict[ReceivedMessage, QueuePuller | None] = {}
        self._yielded: ReceivedMessage | None = None
        self._direct: list[tuple[ReceivedMessage, asyncio.Future[bool]]] = []
        self._answers: dict[ReceivedMessage, asyncio.Future[bool]] = {}
        self._failure: SubscriptionFailed | None = None
        self._troubled_ms: dict[MessageQueue, int] = {}
        self._error: BaseException | None = None
        """An error that ended a task, which is a defect of this client."""
        self._is_open = self._is_stopped = False
        self._loops: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        """Tasks that let queues go."""

    # -- the application's side

    async def __aenter__(self) -> Self:
        """Raises GroupTaken if another subscription of the group is open in this client."""
        if self._is_stopped:
            raise RuntimeError(f"this subscription of group {self.group} has ended; make another one")
        self._opened(self)
        self._is_open = True
        self._begin(self._loops, self.member.run(), f"group {self.group}")
        self._begin(self._loops, self._commit_each(COMMIT_MS), f"commits of {self.group}")
        if self._locks is not None:
            self._begin(self._loops, self._keep_locks(self._locks), f"locks of {self.group}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the message of an `async for` that ended: acknowledged if the block ended without an error, handed back if it
        raised one, and given to a member again if it was cancelled. Then leave the group."""
        yielded, self._yielded = self._yielded, None
        if yielded is not None and error is None:
            self.acknowledge(yielded)
        elif yielded is not None and isinstance(error, Exception):
            await self.hand_back(yielded)
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Acknowledge the last message of this iteration, and take the next one."""
        if self._yielded is not None:
            self.acknowledge(self._yielded)
            self._yielded = None
        try:
            self._yielded = await self.take()
        except SubscriptionStopped:
            raise StopAsyncIteration from None
        return self._yielded

    async def take(self) -> ReceivedMessage:
        """Wait for the next message. It is in the caller's hands until `acknowledge` or `hand_back`.

        Raises: SubscriptionStopped after `stop`; SubscriptionFailed if brokers refuse this group for good; RuntimeError outside
        `async with`."""
        if not (self._is_open or self._is_stopped):
            raise RuntimeError(f"use the subscription of group {self.group} within `async with`")
        while True:
            if self._error is not None:
                raise self._error
            if self._is_stopped:
                raise SubscriptionStopped(self.group)
            if (message := self._next()) is not None:
                return message
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            self._arrived.clear()
            await self._arrived.wait()

    async def take_batch(self, max_messages: int, *, wait_s: float = 1.0) -> list[ReceivedMessage]:
        """Up to `max_messages`, as soon as there are so many, or those that came within `wait_s`. The first one is waited for
        as long as it takes. With `ordered`, the batch has at most one message of each queue. Raises as `take`."""
        if max_messages < 1:
            raise ValueError(f"max_messages is at least 1, not {max_messages}")
        batch = [await self.take()]
        try:
            with suppress(TimeoutError, SubscriptionStopped):
                async with asyncio.timeout(wait_s):
                    while len(batch) < max_messages:
                        batch.append(await self.take())
        except BaseException:
            for message in batch:
                self._give_again(message)
            raise
        return batch

    def acknowledge(self, *messages: ReceivedMessage) -> None:
        """These messages are finished. They are not given to any member again, once that is committed: every 5 s, and at the
        end. A message that is no longer in hand is ignored."""
        for message in messages:
            puller = self._release(message, is_success=True)
            if puller is None:
                continue
            if puller.progress is not None:
                puller.progress.finish(message.stored)
            self._failures.pop(puller, None)
            self._freed(puller)

    async def hand_back(self, message: ReceivedMessage, *, delay_level: int = BROKER_DECIDES) -> None:
        """This message failed. The group gets it again later: after 10 s, 30 s, 1 min, ... by the level (upstream's
        `messageDelayLevel`), or by default by the number of attempts, and as a dead letter in topic `%DLQ%group` after
        `max_reconsume_times`. `DEAD_LETTER` makes it one now.

        With `ordered` it is the next message of its queue again, after a second. With `broadcast` it is dropped. If no broker
        takes it, this member gets it again."""
        puller = self._in_hands.get(message)
        if puller is None:
            self._release(message, is_success=False)
            return
        if self.options.broadcast:
            extra = fields(group=self.group, queue=message.queue, offset=message.offset)
            logger.warning("message dropped", extra=extra)
            self.acknowledge(message)
            return
        if (
            self.options.ordered
            and delay_level != DEAD_LETTER
            and not self._failed_too_often(message, puller)
        ):
            self._suspend(message, puller)
            return
        is_taken = False
        try:
            is_taken = await self._sent_back(message, DEAD_LETTER if self.options.ordered else delay_level)
            if not is_taken and not self.options.ordered:
                await asyncio.sleep(AGAIN_MS / 1000)
        finally:
            if is_taken:
                self.acknowledge(message)
            elif self.options.ordered:
                self._suspend(message, puller)
            else:
                self._give_again(message)

    async def run(
        self, handle: Callable[[ReceivedMessage], Awaitable[object]], *, concurrency: int = 1
    ) -> None:
        """Call `handle` for each message until `stop`, up to `concurrency` at the same time. A message is acknowledged if
        `handle` returns, and handed back if it raises. Raises SubscriptionFailed."""
        if concurrency < 1:
            raise ValueError(f"concurrency is at least 1, not {concurrency}")
        async with asyncio.TaskGroup() as workers:
            for number in range(concurrency):
                workers.create_task(self._work(handle), name=f"{self.group} worker {number}")

    def stop(self) -> None:
        """Take no more messages: `async for` and `run` end after those in hand."""
        self._is_stopped = True
        self._arrived.set()

    def pause(self, *queues: MessageQueue) -> None:
        """Take no messages from these queues, or from any, until `resume`. Messages in hand are not affected."""
        self._paused.update(queues)
        self._all_paused = self._all_paused or not queues

    def resume(self, *queues: MessageQueue) -> None:
        """Take messages from these queues again, or from all."""
        self._paused = self._paused.difference(queues) if queues else set()
        self._all_paused = self._all_paused and bool(queues)
        self._arrived.set()

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member reads now."""
        return frozenset(self.pullers)

    async def commit(self) -> None:
        """Commit now what is finished."""
        await together([puller.commit_in_time() for puller in [*self.pullers.values(), *self._leaving]])

    async def close(self) -> None:
        """Stop, wait up to `grace_s` for messages in hand, commit, and leave the group."""
        try:
            await self._leave()
        finally:
            self._closed(self)

    async def _leave(self) -> None:
        self.stop()
        loops = [*self._loops]
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, *self._endings, return_exceptions=True)
        pullers = [*self.pullers.values()]
        await together([puller.end() for puller in pullers])
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.grace_s):
                while self._in_hands:
                    self._settled.clear()
                    await self._settled.wait()
        await self.commit()
        held = {puller.queue for puller in [*pullers, *self._leaving]}
        if self._locks is not None and held:
            with suppress(LockFailed):
                await self._locks.unlock(held)
        await asyncio.gather(*self._endings, return_exceptions=True)
        self.pullers.clear()
        await self.member.leave()

    # -- what pullers say

    def arrived(self, puller: QueuePuller) -> None:
        """Messages of this puller wait to be taken."""
        self._turn.setdefault(puller)
        self._arrived.set()

    async def room(self, puller: QueuePuller) -> None:
        """Returns as soon as the puller may take in more messages: while there is room for the subscription as a whole, or the
        puller has none."""
        while not self._may_read(puller):
            self._has_room.clear()
            await self._has_room.wait()

    def trouble(self, puller: QueuePuller, error: PullFailed, *, is_lasting: bool) -> None:
        """A pull failed. The route may be another one, and a broker may not know this member."""
        self.member.rebalance_soon()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._troubled_ms.get(puller.queue, now_ms - TROUBLE_MS) >= TROUBLE_MS:
            self._troubled_ms[puller.queue] = now_ms
            logger.warning("pull failed", extra=fields(group=self.group, queue=puller.queue, why=error))
        if is_lasting:
            self._failure = SubscriptionFailed(self.group, str(error), error.code)
            self._arrived.set()

    def recovered(self, puller: QueuePuller) -> None:
        """A pull succeeded after others had failed, perhaps at a new master."""
        self._troubled_ms.pop(puller.queue, None)
        self.member.rebalance_soon()

    def failed(self, task: asyncio.Task[None]) -> None:
        """A task has ended, perhaps by an error that is a defect of this client. The application gets the error."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("consumer failed", extra=fields(group=self.group, why=repr(error)), exc_info=error)
            self._error = error
            self._arrived.set()

    # -- what brokers say

    async def moved(self, offsets: dict[MessageQueue, int]) -> None:
        """An administrator moved the group to these offsets."""
        pullers = [*self.pullers.values(), *self._leaving]
        await together([puller.move(offsets[puller.queue]) for puller in pullers if puller.queue in offsets])
        self._has_room.set()

    async def consume_directly(self, message: ReceivedMessage, timeout_s: float) -> bool | None:
        """Give the message to the application now, as the next one. Returns whether it acknowledged it; None if it did not
        finish it in time."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._direct.append((message, answer))
        self._arrived.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._direct = [each for each in self._direct if each[1] is not answer]

    # -- shares

    async def _take_share(self, share: set[MessageQueue]) -> None:
        revoked = [puller for queue, puller in self.pullers.items() if queue not in share]
        for puller in revoked:
            del self.pullers[puller.queue]
            self._turn.pop(puller, None)
            self._failures.pop(puller, None)
        for queue in sorted(share - self.pullers.keys()):
            self.pullers[queue] = puller = self._puller_of(queue)
            puller.begin()
            if puller.progress is not None and puller.progress.waits:
                self.arrived(puller)
        if revoked:
            logger.info(
                "queues given up",
                extra=fields(group=self.group, queues=[str(each.queue) for each in revoked]),
            )
            await together([self._give_up(puller) for puller in revoked])
        self._has_room.set()

    def _puller_of(self, queue: MessageQueue) -> QueuePuller:
        """A new puller; or the former one, if the queue came back while its message is still in the application's hands."""
        for puller in self._leaving:
            if puller.queue == queue:
                del self._leaving[puller]
                return puller
        return QueuePuller(
            queue,
            self.selectors[queue.topic],
            self.options.start,
            self,
            consumer=self._consumer,
            locks=self._locks,
            clock=self._clock,
            commits=not self.options.broadcast,
        )

    async def _give_up(self, puller: QueuePuller) -> None:
        """Another member reads the queue next. With `ordered` it gets the lock once no message is in hand here."""
        await puller.end()
        if self._locks is not None and puller.in_hands:
            self._leaving[puller] = None
        else:
            await self._let_go(puller)

    async def _let_go(self, puller: QueuePuller) -> None:
        await puller.commit_in_time()
        if self._locks is not None and puller.queue not in self.pullers:
            with suppress(LockFailed):
                await self._locks.unlock([puller.queue])

    # -- messages

    def _next(self) -> ReceivedMessage | None:
        """The next message, from each puller in turn; None if there is none now."""
        if self._direct:
            message, answer = self._direct.pop(0)
            self._in_hands[message], self._answers[message] = None, answer
            return message
        for _ in range(len(self._turn)):
            puller, _ = self._turn.popitem(last=False)
            progress = puller.progress
            if progress is None or not progress.waits:
                continue
            self._turn[puller] = None  # behind the others
            if self._all_paused or puller.queue in self._paused or not puller.may_be_taken:
                continue
            stored = progress.take()
            puller.last_taken_ms = self._clock.monotonic_ms()
            failed_at, failures = self._failures.get(puller, (-1, 0))
            attempt = stored.reconsume_times + 1 + (failures if failed_at == stored.queue_offset else 0)
            message = ReceivedMessage(stored, puller.queue, attempt)
            self._in_hands[message] = puller
            puller.in_hands += 1
            return message
        return None

    def _may_read(self, puller: QueuePuller) -> bool:
        if puller.progress is None or not puller.progress.count:
            return True
        found = [each.progress for each in self.pullers.values() if each.progress is not None]
        return (
            sum(progress.count for progress in found) < self.options.max_messages
            and sum(progress.size_bytes for progress in found) < self.options.max_bytes
        )

    def _release(self, message: ReceivedMessage, *, is_success: bool) -> QueuePuller | None:
        """The message is no longer in hand. Returns its puller, unless an administrator had it given."""
        puller = self._in_hands.pop(message, None)
        if puller is not None:
            puller.in_hands -= 1
        answer = self._answers.pop(message, None)
        if answer is not None and not answer.done():
            answer.set_result(is_success)
        self._settled.set()
        return puller

    def _freed(self, puller: QueuePuller) -> None:
        """A message of the puller was finished or given back."""
        self._has_room.set()
        progress = puller.progress
        if puller in self._leaving and not puller.in_hands:
            del self._leaving[puller]
            self._begin(self._endings, self._let_go(puller), f"let go {puller.queue}")
        elif progress is not None and progress.waits and self.pullers.get(puller.queue) is puller:
            self.arrived(puller)

    def _failed_too_often(self, message: ReceivedMessage, puller: QueuePuller) -> bool:
        """Count a failure in order. Returns whether the message is to be a dead letter."""
        failed_at, failures = self._failures.get(puller, (-1, 0))
        failures = failures + 1 if failed_at == message.offset else 1
        self._failures[puller] = message.offset, failures
        return self.options.max_reconsume_times is not None and failures > self.options.max_reconsume_times

    def _suspend(self, message: ReceivedMessage, puller: QueuePuller) -> None:
        """Give the message of an ordered queue again after SUSPEND_MS, and no other one before it."""
        puller.suspended_until_ms = self._clock.monotonic_ms() + SUSPEND_MS
        self._give_again(message)
        asyncio.get_running_loop().call_later(SUSPEND_MS / 1000, self._freed, puller)

    def _give_again(self, message: ReceivedMessage) -> None:
        """Give the message to this member again."""
        puller = self._release(message, is_success=False)
        if puller is None:
            return
        if puller.progress is not None:
            puller.progress.give_back(message.stored)
        self._freed(puller)

    async def _sent_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Whether the broker took the message back (CONSUMER_SEND_MSG_BACK, 36)."""
        stored, name = message.stored, message.queue.broker_name
        header = ConsumerSendMsgBackHeader(
            stored.physical_offset,
            self.group,
            delay_level,
            origin_msg_id=stored.message_id,
            origin_topic=stored.topic,
            max_reconsume_times=self.options.max_reconsume_times,
        )
        try:
            address = (await self._routes.get(stored.topic)).master(name)
            if address is None:
                raise RouteUnknown(stored.topic, f"broker set {name} has no master at the moment")
            request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            reply = await self._client.call(address, request, CALL_TIMEOUT_MS)
        except (RouteUnknown, RemotingError) as error:
            why = str(error)
        else:
            if reply.code == ResponseCode.SUCCESS:
                return True
            why = f"{address} answered {reply.code} {in_short(reply.remark)}"
        self._routes.renew(stored.topic)
        extra = fields(group=self.group, queue=message.queue, offset=message.offset, why=why)
        logger.warning("message not handed back", extra=extra)
        return False

    # -- loops

    async def _work(self, handle: Callable[[ReceivedMessage], Awaitable[object]]) -> None:
        while True:
            try:
                message = await self.take()
            except SubscriptionStopped:
                return
            try:
                await handle(message)
            except asyncio.CancelledError:
                self._give_again(message)
                raise
            except Exception as error:
                extra = fields(group=self.group, queue=message.queue, offset=message.offset, why=repr(error))
                logger.warning("message failed", extra=extra, exc_info=error)
                await self.hand_back(message)
            else:
                self.acknowledge(message)

    async def _commit_each(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.commit()

    async def _keep_locks(self, locks: QueueLocks) -> None:
        renewed_ms = self._clock.monotonic_ms() - RENEW_MS
        while True:
            now_ms = self._clock.monotonic_ms()
            queues = [*self.pullers, *(puller.queue for puller in self._leaving)]
            if now_ms - renewed_ms >= RENEW_MS:
                renewed_ms = now_ms
            else:
                queues = [queue for queue in queues if not locks.holds(queue)]
            if queues:
                with suppress(LockFailed):
                    await locks.lock(queues)
                self._arrived.set()
            await asyncio.sleep(LOCK_MS / 1000)

    def _begin(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self.failed)
