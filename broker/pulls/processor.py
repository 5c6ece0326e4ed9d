"""Processor of pulls: it reads a queue below the confirm offset, or holds the request until a message comes. Upstream:
PullMessageProcessor.

Invariant: every reply with SUCCESS (0), PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) or PULL_OFFSET_MOVED (21) has the next
offset and the range of the queue. A body consists of the stored records, as in the log. Only a master answers, unless
slaveReadEnable is set."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol

from broker.clients.refusals import REJECTED, ClientRefused
from broker.clients.renewal import SubscriptionRenewal
from broker.clients.requesters import is_passed_on
from broker.clients.unsupportedrequests import UnsupportedRequests
from broker.metrics.latencies import Call, Latencies
from broker.metrics.totals import Totals
from broker.pulls.admission import PullAdmission
from broker.pulls.arrivals import Arrivals, Listed
from broker.pulls.direction import MASTER_ID, Direction, PullRouting
from broker.pulls.foundframe import frame_of
from broker.pulls.held import PER_CONNECTION_MAX, HeldPull, HeldPulls
from broker.pulls.request import PullRequest
from broker.tables.consumeroffsets import ConsumerOffsets
from messagestore.errors import OffsetOutOfRange, QueueDamaged, RecordDamaged
from messagestore.messages import GetResult, GetStatus, PropertyFilter, QueueGrew, TagFilter
from mqruntime.clock import Clock
from mqruntime.inslices import InSlices
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.pull import (
    SYS_FLAG_COMMIT_OFFSET,
    SYS_FLAG_SUSPEND,
    PullMessageHeader,
    PullMessageResponseHeader,
)
from remoting.peer import Peer

logger = logging.getLogger(__name__)

CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
"""The codes of the statuses, except the two statuses of an empty queue: PULL_NOT_FOUND for offset 0, PULL_OFFSET_MOVED for any
other offset."""


UNKNOWN_SUBSCRIPTION = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)
Handled = RemotingCommand | Awaitable[RemotingCommand | None] | None
ALL_OFFSETS = 1 << 63
TOO_MANY_HELD = f"{PER_CONNECTION_MAX} pulls of this connection wait already"


class Queues(Listed, Protocol):
    """The part of the message store for pulls."""

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        tag_filter: TagFilter | None = None,
    ) -> GetResult: ...

    def get_matching(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult: ...  # fmt: skip

    async def read_matching(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult: ...  # fmt: skip

    async def load(self, result: GetResult) -> None: ...

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool: ...

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None: ...

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...


class Polling(Protocol):
    """The settings that limit the time for which a pull is held."""

    long_polling_enable: bool
    short_polling_time_mills: int


class PullProcessor:
    """Serves PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) of all connections."""

    def __init__(
        self,
        *,
        store: Queues,
        admission: PullAdmission,
        direction: PullRouting,
        offsets: ConsumerOffsets,
        renewal: SubscriptionRenewal,
        held: HeldPulls,
        clock: Clock,
        polling: Polling,
        tasks: Tasks,
        unsupported: UnsupportedRequests,
        totals: Totals | None = None,
        latencies: Latencies | None = None,
        elsewhere: Callable[[Peer, RemotingCommand], Handled] | None = None,
        recheck: Callable[[Peer, RemotingCommand], RemotingCommand | None] = lambda peer, command: None,
    ) -> None:
        """When this broker serves no readers any more, `elsewhere` answers a pull or passes it on. `recheck` returns the
        refusal of a pull that waited; None if its client may still send it."""
        self._store = store
        self._admission = admission
        self._direction = direction
        self._offsets = offsets
        self._renewal = renewal
        self._held = held
        self._clock = clock
        self._polling = polling
        self._tasks = tasks
        self._unsupported = unsupported
        self._totals = totals
        self._latencies = latencies
        self._elsewhere = elsewhere or self.handle
        self._recheck = recheck
        self._in_slices = InSlices(tasks, clock, name="held pulls")
        self._waking = InSlices(tasks, clock, name="held pulls")
        self._grown: OrderedDict[tuple[str, int], int] = OrderedDict()
        """The ends of the queues whose pulls must be woken."""
        self.found = 0

    def handle(self, peer: Peer, command: RemotingCommand) -> Handled:
        """Answer a pull, or hold it if the queue has no message yet and the client waits."""
        return self._handle(peer, command, peer.active_at_ms)

    def _handle(
        self, peer: Peer, command: RemotingCommand, arrived_ms: int, *, asked: bool = False
    ) -> Handled:
        """Handle a pull. `asked` is True if the client was already asked for its subscriptions."""
        header = PullMessageHeader.from_ext(command.ext)
        try:
            request = self._admission.request(peer, header, command, arrived_ms)
        except ClientRefused as refused:
            if not asked and refused.code in UNKNOWN_SUBSCRIPTION:
                asking = self._renewal.ask_first(peer, header.consumer_group)
                if asking is not None:
                    return self._after_asking(peer, command, arrived_ms, asking)
            if refused.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
                self._renewal.ask(peer, header.consumer_group)
            self._unsupported.refused(peer, command, refused)
            return refused.reply_to(command)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        queue, passed_on = (group, topic, queue_id), is_passed_on(peer)
        moved_to = self._offsets.pulled(*queue, header.queue_offset, is_passed_on=passed_on)
        if moved_to is not None:
            return self._moved(command, topic, queue_id, moved_to)
        if header.sys_flag & SYS_FLAG_COMMIT_OFFSET:
            self._offsets.commit(*queue, header.commit_offset, is_passed_on=passed_on)
        place = request.topic, request.queue_id, request.offset, request.count_max
        if not self._store.is_at_hand(*place):
            return self._bring_and_answer(peer, request)
        result = self._read(request)
        if (
            result.status is not GetStatus.FOUND
            and header.sys_flag & SYS_FLAG_SUSPEND
            and header.suspend_timeout_millis > 0
            and not self._held.is_full(request)
            and self._code(result, request) == ResponseCode.PULL_NOT_FOUND
        ):
            if self._held.holds_all_of(peer):
                return command.reply(ResponseCode.SYSTEM_BUSY, TOO_MANY_HELD)
            polling = self._polling
            wait_ms = (
                header.suspend_timeout_millis
                if polling.long_polling_enable
                else polling.short_polling_time_mills
            )
            if not peer.attributes.get("holds_pulls"):
                peer.attributes["holds_pulls"] = True
                peer.on_close(self._held.release_of)
            request.held = True
            command.ext, command.body = {}, None  # not needed for the answer
            self._held.hold(HeldPull(peer, request, self._clock.monotonic_ms() + wait_ms))
            return None
        return self._answer(peer, request, result)

    async def _after_asking(
        self, peer: Peer, command: RemotingCommand, arrived_ms: int, asking: asyncio.Task[None]
    ) -> RemotingCommand | None:
        """Answer a pull after its client was asked for its subscriptions. The role and the client's rights may have changed
        meanwhile. None if there is no answer now: the pull is held, or the connection has ended."""
        await asyncio.wait([asking])
        if peer.closed:
            return None
        if self._admission.serves_reads:
            refusal = self._recheck(peer, command)
            handled = refusal or self._handle(peer, command, arrived_ms, asked=True)
        else:
            handled = self._elsewhere(peer, command)
        return await handled if inspect.isawaitable(handled) else handled

    def _moved(self, command: RemotingCommand, topic: str, queue_id: int, offset: int) -> RemotingCommand:
        """The answer after an administrator moved the group in this queue: the client continues at `offset`."""
        reply = self._continued_at(topic, queue_id, offset)
        return command.reply(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", reply)

    def _continued_at(self, topic: str, queue_id: int, offset: int) -> PullMessageResponseHeader:
        """The header of an answer without messages, whose client continues at `offset`."""
        store = self._store
        bounds = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        return PullMessageResponseHeader(MASTER_ID, offset, *bounds)

    def moved(self, group: str, topic: str, queue_ids: Iterable[int]) -> None:
        """Answer pulls that wait in queues in which an administrator moved `group`; many pulls are answered in slices."""
        self._in_slices.do(self._moved_pulls(group, topic, list(queue_ids)))

    def arrived(self, grown: list[QueueGrew]) -> None:
        """Answer the pulls that waited for queues that grew; many pulls are answered in slices. Messages that come to a queue
        before all of its pulls had their turn are handled together."""
        for topic, queue_id, next_offset in grown:
            if self._held.is_waited_for((topic, queue_id)):
                self._grown[topic, queue_id] = next_offset
        if self._grown and not self._waking.goes_on:
            self._waking.do(self._woken())

    def expire(self, now_ms: int) -> None:
        """Answer the held pulls whose time is over; many pulls are answered in slices."""
        self._in_slices.do(self._answered(self._held.release_expired(now_ms)))

    def ask_again(self) -> None:
        """Answer all held pulls, in slices, as if their time were over. Another broker serves their next pulls."""
        self._in_slices.do(self._answered(self._held.release_all()))

    def check_again(self) -> None:
        """Answer all held pulls without messages, in slices, because their users may have lost a right: their next pulls are
        checked. They get no message that comes before their turn."""
        self._in_slices.do(self._without_messages(self._held.release_all()))

    def release_all(self) -> None:
        """Reject all held pulls, in slices, because this broker may not answer readers any more. All are rejected, even if the
        broker may answer again before the last pull's turn."""
        self._in_slices.do(self._sent_away(self._held.release_all()))

    async def drained(self) -> None:
        """Wait until all pulls that are answered in slices are answered."""
        await self._in_slices.ended()
        await self._waking.ended()

    def _moved_pulls(self, group: str, topic: str, queue_ids: list[int]) -> Iterator[HeldPull]:
        for queue_id in queue_ids:
            for pull in self._held.waiting((topic, queue_id), ALL_OFFSETS):
                request = pull.request
                if request.group == group and self._held.holds(pull):
                    passed_on = is_passed_on(pull.peer)
                    offset = self._offsets.pulled(
                        group, topic, queue_id, request.offset, is_passed_on=passed_on
                    )
                    if offset is not None and self._held.release(pull):
                        answer = self._moved(request.command, topic, queue_id, offset)
                        self._observe(request, answer.code)
                        pull.peer.send([answer])
                yield pull

    def _woken(self) -> Iterator[HeldPull]:
        """Answer the pulls of the queues that grew. If several pulls wait for a queue, there is no read for pulls whose tags
        did not come, and only one read for all pulls with one SQL92 expression that does not match. For a single pull a read
        costs no more than a check of the tags. A queue that grows meanwhile gets another turn after the other queues."""
        while self._grown:
            (topic, queue_id), next_offset = self._grown.popitem(last=False)
            waiting = self._held.waiting((topic, queue_id), next_offset)
            came = Arrivals(self._store, topic, queue_id, next_offset) if len(waiting) > 1 else None
            for pull in waiting:
                if self._held.holds(pull):
                    self._wake(pull, next_offset, came)
                yield pull

    def _wake(self, pull: HeldPull, next_offset: int, came: Arrivals | None) -> None:
        request = pull.request
        goes_on = None if came is None else came.passed_over(request)
        if goes_on is None:
            refused = self._forbidden(request)
            if refused is not None:
                if self._held.release(pull):
                    self._refuse(pull.peer, request, refused.code, refused.remark)
                return
            result = self._read(request)
            if result.status is not GetStatus.NO_MATCHED_MESSAGE or result.cold:
                if self._held.release(pull):
                    self._answer_late(pull.peer, request, result)
                return
            goes_on = result.next_begin_offset
            if came is not None:
                came.found_nothing(request, goes_on)
        if request.offset < goes_on < next_offset:  # a read checks a limited number
            self._grown.setdefault(request.queue, next_offset)
        request.offset, request.moved = goes_on, True

    def _answered(self, pulls: Iterator[HeldPull | None]) -> Iterator[HeldPull | None]:
        for pull in pulls:
            if pull is not None and not pull.peer.closed:
                refused = self._forbidden(pull.request)
                if refused is not None:
                    self._refuse(pull.peer, pull.request, refused.code, refused.remark)
                else:
                    self._answer_late(pull.peer, pull.request, self._read(pull.request))
            yield pull

    def _without_messages(self, pulls: Iterator[HeldPull]) -> Iterator[HeldPull]:
        for pull in pulls:
            if not pull.peer.closed:
                request = pull.request
                header = self._continued_at(request.topic, request.queue_id, request.offset)
                answer = request.command.reply(
                    ResponseCode.PULL_NOT_FOUND, GetStatus.OFFSET_OVERFLOW_ONE.value, header
                )
                self._observe(request, answer.code)
                pull.peer.send([answer])
            yield pull

    def _sent_away(self, pulls: Iterator[HeldPull]) -> Iterator[HeldPull]:
        for pull in pulls:
            if not pull.peer.closed:
                self._refuse(pull.peer, pull.request, ResponseCode.SYSTEM_BUSY, REJECTED)
            yield pull

    def _forbidden(self, request: PullRequest) -> ClientRefused | None:
        """The reason to reject a pull that waited: its topic or group was closed or deleted meanwhile. None without a
        reason."""
        try:
            self._admission.check_still_permitted(request)
        except ClientRefused as refused:
            return refused
        return None

    def _read(self, request: PullRequest) -> GetResult:
        if request.matching is not None:
            return self._store.get_matching(
                request.topic,
                request.queue_id,
                request.offset,
                request.count_max,
                request.bytes_max,
                request.matching,
            )
        return self._store.get(
            request.topic,
            request.queue_id,
            request.offset,
            request.count_max,
            request.bytes_max,
            request.filter,
        )

    def _answer_late(self, peer: Peer, request: PullRequest, result: GetResult) -> None:
        answer = self._answer(peer, request, result)
        if isinstance(answer, RemotingCommand):
            self._observe(request, answer.code)
            peer.send([answer])
        elif answer is not None:
            self._tasks.start(answer, name=f"cold pull of {peer.remote_address}")

    def _answer(
        self, peer: Peer, request: PullRequest, result: GetResult
    ) -> RemotingCommand | Coroutine[Any, Any, None] | None:
        if result.cold and result.status is not GetStatus.FOUND and request.matching is not None:
            return self._match_and_answer(peer, request, request.matching)
        code = _code(result, request)
        said = self._direction.answer(code, request.group, request.offset, result)
        if result.status is not GetStatus.FOUND:
            header = PullMessageResponseHeader(
                said.broker_id, said.next_offset, result.min_offset, result.max_offset
            )
            return request.command.reply(said.code, result.status.value, header)
        self.found += result.count
        if self._totals is not None:
            self._totals.pull_found(request.topic, request.group, result.count, result.size_bytes)
        if result.cold:
            return self._load_and_write(peer, request, said, result)
        self._write(peer, request, said, result)
        return None

    def _code(self, result: GetResult, request: PullRequest) -> ResponseCode:
        code = _code(result, request)
        return self._direction.answer(code, request.group, request.offset, result).code

    async def _bring_and_answer(self, peer: Peer, request: PullRequest) -> None:
        """Answer a pull after reading entries that are not in the page cache, without blocking other tasks. The role may have
        changed meanwhile."""
        await self._store.bring(request.topic, request.queue_id, request.offset, request.count_max)
        if self._admission.serves_reads:
            self._answer_late(peer, request, self._read(request))
        else:
            self._refuse(peer, request, ResponseCode.SYSTEM_BUSY, REJECTED)

    async def _match_and_answer(self, peer: Peer, request: PullRequest, wanted: PropertyFilter) -> None:
        """Like `_bring_and_answer`, for a filter that needs properties from the disk."""
        place = request.topic, request.queue_id, request.offset
        try:
            result = await self._store.read_matching(*place, request.count_max, request.bytes_max, wanted)
        except (RecordDamaged, OSError) as error:
            self._cannot_be_read(peer, request, error)
            return
        if self._admission.serves_reads:
            self._answer_late(peer, request, result)
        else:
            self._refuse(peer, request, ResponseCode.SYSTEM_BUSY, REJECTED)

    async def _load_and_write(
        self, peer: Peer, request: PullRequest, said: Direction, result: GetResult
    ) -> None:
        try:
            await self._store.load(result)
        except OffsetOutOfRange:  # the range was deleted or cut meanwhile: the answer has the next offset
            self._answer_late(peer, request, self._read(request))
            return
        except (RecordDamaged, QueueDamaged, OSError) as error:
            self._cannot_be_read(peer, request, error)
            return
        self._write(peer, request, said, result)

    def _cannot_be_read(self, peer: Peer, request: PullRequest, error: Exception) -> None:
        """Answer a pull whose part of the disk cannot be read. The pull may run in a task, whose errors nobody answers."""
        if isinstance(error, OSError):
            place = f"{request.topic} {request.queue_id} {request.offset}"
            logger.error("pull not answered", extra=fields(at=place, why=error))
        why = f"OSError: {error}" if isinstance(error, OSError) else str(error)
        self._refuse(peer, request, ResponseCode.SYSTEM_ERROR, why)

    def _refuse(self, peer: Peer, request: PullRequest, code: ResponseCode, why: str) -> None:
        self._observe(request, code)
        peer.send([request.command.reply(code, why)])

    def _write(self, peer: Peer, request: PullRequest, said: Direction, result: GetResult) -> None:
        assert said.code == ResponseCode.SUCCESS, "a result with messages has code 0"
        self._observe(request, said.code)
        peer.write(frame_of(request.command.opaque, said, result))

    def _observe(self, request: PullRequest, code: int) -> None:
        if self._latencies is not None:
            call = Call(request.command.code, code, request.held)
            self._latencies.observe(call, request.arrived_ms)


def _code(result: GetResult, request: PullRequest) -> ResponseCode:
    code = CODES.get(result.status)
    if code is None:
        return ResponseCode.PULL_NOT_FOUND if request.offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    if code == ResponseCode.PULL_NOT_FOUND and request.moved:
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    return code
