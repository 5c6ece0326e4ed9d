"""Reads queues by pulling from their masters. The consumer stores no position.

Invariant: every call is a read or an idempotent write, so it may be repeated. The messages of one pull are in queue order, and
none is below the requested offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum

from mqclient.errors import PullFailed, RouteUnknown, in_short
from mqclient.message import RecordMalformed, StoredMessage, decode_messages
from mqclient.route import MASTER_ID, MessageQueue
from mqclient.routetable import TopicRoutes
from mqruntime.clock import Clock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.header import Header
from remoting.headers.offsets import (
    GetMaxOffsetHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from remoting.headers.pull import (
    SYS_FLAG_COMMIT_OFFSET,
    SYS_FLAG_SUBSCRIPTION,
    SYS_FLAG_SUSPEND,
    PullMessageHeader,
    PullMessageResponseHeader,
)

ALL_TAGS = "*"
CALL_TIMEOUT_MS = 3000
RETRY_MS = 50
MESSAGES_MAX = 32


class PullStatus(IntEnum):
    """The reason why a pull has messages or has none."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


PULL_CODES = frozenset(PullStatus)

NEVER_SERVED = frozenset(
    {
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }
)
"""Codes of pulls to which another master or a retry would reply the same."""
READS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
)
"""Requests that a slave also answers."""
SLAVE_AFTER_MS = 1_500
NO_READERS = (
    "the broker set has no master at the moment, and its slave refuses reads (set slaveReadEnable=true)"
)


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. The next pull begins at `next_offset`. `max_offset` is one beyond the last readable message."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage]


class PullConsumer:
    """Reads as `group` the queues that the caller chooses. If a broker set has had no master for SLAVE_AFTER_MS, a slave is
    read, as Java's consumers do. Under controllers the next master is usually elected before that. In a pair without
    controllers the slave has the messages that are available."""

    def __init__(self, group: str, *, routes: TopicRoutes, client: RemotingClient, clock: Clock) -> None:
        self.group = group
        self._routes = routes
        self._client = client
        self._clock = clock
        self._masterless: dict[str, int] = {}
        """By broker set: since when it has no master, ms."""
        self._turn = 0
        self._suggested: dict[MessageQueue, int] = {}
        """By queue: the id of the broker that is to be asked next."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of the topic, in order. Raises `RouteUnknown`."""
        return list((await self._routes.get(topic)).read_queues)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = "*",
        sql: str | None = None,
        max_messages: int = MESSAGES_MAX,
        suspend_ms: int = 0,
        commit: int = 0,
    ) -> PullResult:
        """Pull messages of `queue` from `offset` on. The broker waits `suspend_ms` for the first message. With `commit` it also
        commits that offset for the group, if a master is asked.

        `tags` is `A||B`, or `*` or "" for every message, tagged or not, as in upstream's FilterAPI. The broker compares only
        hashes of tags, so messages whose tags merely have an equal hash are dropped here. The SQL92 expression `sql` selects
        messages instead of `tags`, if the broker supports it (`enablePropertyFilter`). Raises `PullFailed`, and ValueError if
        `tags` contains no tag."""
        wanted = _tags(tags) if sql is None else None
        header = PullMessageHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=SYS_FLAG_SUBSCRIPTION | (SYS_FLAG_SUSPEND if suspend_ms else 0),
            commit_offset=commit,
            suspend_timeout_millis=suspend_ms,
            sub_version=0,
            subscription=(tags or ALL_TAGS) if sql is None else sql,
            expression_type="TAG" if sql is None else "SQL92",
            broker_name=queue.broker_name,
        )
        address, is_master = await self._reader_of(queue)
        if commit and is_master:
            header.sys_flag |= SYS_FLAG_COMMIT_OFFSET
        reply = await self._ask_at(
            address, queue, RequestCode.PULL_MESSAGE, header, CALL_TIMEOUT_MS + suspend_ms
        )
        if reply.code == ResponseCode.SYSTEM_BUSY and queue.broker_name in self._masterless:
            raise PullFailed(str(queue), NO_READERS, reply.code)
        if reply.code not in PULL_CODES:
            self._suggested.pop(queue, None)
            raise _refused(queue, reply)
        if reply.code == PullStatus.OFFSET_ILLEGAL and queue.broker_name in self._masterless:
            raise PullFailed(
                str(queue), "its slave does not have that offset, and may be behind; there is no master"
            )
        try:
            where = PullMessageResponseHeader.from_ext(reply.ext)
            self._suggested[queue] = where.suggest_which_broker_id
            messages = decode_messages(reply.body or b"") if reply.code == PullStatus.FOUND else []
        except (HeaderError, RecordMalformed) as error:
            raise PullFailed(str(queue), f"unreadable answer: {error}") from error
        if wanted is not None:
            messages = [message for message in messages if message.properties.get("TAGS", "") in wanted]
        return PullResult(
            PullStatus(reply.code), where.next_begin_offset, where.min_offset, where.max_offset, messages
        )

    async def read(
        self, queue: MessageQueue, start: int, end: int, *, patience_ms: int = 10_000
    ) -> AsyncIterator[StoredMessage]:
        """Yield every message with `start` <= queue offset < `end` in order, even if the master changes. If a reply does not
        advance the offset, its messages are ignored, because the next reply returns them again.

        Raises `PullFailed` after `patience_ms` without progress. `PullFailed` is raised at once if the broker does not know
        the group, and with code 21 if the offset is outside the queue (messages below its minimum were removed) or an
        administrator moved the group."""
        progress_ms = self._clock.monotonic_ms()
        while start < end:
            asked_ms = self._clock.monotonic_ms()
            try:
                result = await self.pull(queue, start, suspend_ms=1000)
            except PullFailed as error:
                over = self._clock.monotonic_ms() - progress_ms > patience_ms or self._routes.closed
                if over or error.code in NEVER_SERVED:
                    raise
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            moves_on = result.next_offset > start
            for message in result.messages:
                if moves_on and start <= message.queue_offset < end:
                    yield message
            if result.status is PullStatus.OFFSET_ILLEGAL:
                why = f"offset {start} is outside [{result.min_offset}, {result.max_offset})"
                if result.min_offset <= start <= result.max_offset:
                    why = f"group {self.group} was moved: the broker returned next offset {result.next_offset}, not {start}"
                raise PullFailed(str(queue), why, int(result.status))
            if moves_on:
                start, progress_ms = result.next_offset, self._clock.monotonic_ms()
            elif self._clock.monotonic_ms() - progress_ms > patience_ms:
                raise PullFailed(str(queue), f"nothing to read at {start} for {patience_ms} ms, wanted {end}")
            elif (
                result.messages or self._clock.monotonic_ms() - asked_ms < RETRY_MS
            ):  # the broker does not suspend pulls
                await asyncio.sleep(RETRY_MS / 1000)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One beyond the last readable message. Raises `PullFailed`."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(queue.topic, queue.queue_id)
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first remaining message. Raises `PullFailed`."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueHeader(queue.topic, queue.queue_id))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at this time (ms since 1970) or later. Raises `PullFailed`."""
        header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(self, queue: MessageQueue, *, zero_if_none: bool = False) -> int | None:
        """The group's committed offset; None if nothing was committed. With `zero_if_none`, brokers return 0 for a group
        without one while the queue's first message is still in memory, as to Java's consumers. Raises `PullFailed`."""
        header = QueryConsumerOffsetHeader(
            self.group, queue.topic, queue.queue_id, set_zero_if_not_found=None if zero_if_none else False
        )
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except PullFailed as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset. Raises `PullFailed`."""
        header = UpdateConsumerOffsetHeader(self.group, queue.topic, queue.queue_id, offset)
        reply = await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, CALL_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise _refused(queue, reply)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        reply = await self._ask(queue, code, header, CALL_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise _refused(queue, reply)
        try:
            return OffsetResponseHeader.from_ext(reply.ext).offset
        except HeaderError as error:
            raise PullFailed(str(queue), f"unreadable answer: {error}") from error

    async def _ask(
        self, queue: MessageQueue, code: RequestCode, header: Header, timeout_ms: int
    ) -> RemotingCommand:
        return await self._ask_at(await self._address(queue, code), queue, code, header, timeout_ms)

    async def _ask_at(
        self, address: str, queue: MessageQueue, code: RequestCode, header: Header, timeout_ms: int
    ) -> RemotingCommand:
        try:
            reply = await self._client.call(address, RemotingCommand.request(code, header), timeout_ms)
        except RemotingError as error:
            self._turn += 1
            self._suggested.pop(queue, None)
            self._routes.renew(queue.topic)
            raise PullFailed(str(queue), str(error)) from error
        if reply.code in (
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ):
            self._routes.renew(queue.topic)  # it may no longer be the master
        return reply

    async def _reader_of(self, queue: MessageQueue) -> tuple[str, bool]:
        """The address to pull from, and whether it is the master's. A broker suggests another one of its set to a reader that
        is far behind. Raises `PullFailed`."""
        suggested = self._suggested.get(queue, MASTER_ID)
        if suggested != MASTER_ID:
            try:
                members = (await self._routes.get(queue.topic)).addresses.get(queue.broker_name, {})
            except RouteUnknown as error:
                raise PullFailed(str(queue), str(error)) from error
            if suggested in members:
                return members[suggested], False
        address = await self._address(queue, RequestCode.PULL_MESSAGE)
        return address, queue.broker_name not in self._masterless

    async def _address(self, queue: MessageQueue, code: RequestCode) -> str:
        """The address to send the request to. Raises `PullFailed`."""
        name = queue.broker_name
        while True:
            try:
                route = await self._routes.get(queue.topic)
            except RouteUnknown as error:
                raise PullFailed(str(queue), str(error)) from error
            if (master := route.master(name)) is not None:
                self._masterless.pop(name, None)
                return master
            self._routes.renew(queue.topic)
            slaves = route.slaves(name) if code in READS else []
            if not slaves or self._routes.closed:
                raise PullFailed(str(queue), "the broker set has no master at the moment")
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._masterless.setdefault(name, now_ms) >= SLAVE_AFTER_MS:
                return slaves[self._turn % len(slaves)]
            await asyncio.sleep(RETRY_MS / 1000)


def _tags(subscription: str) -> frozenset[str] | None:
    """The tags in the expression; None if it selects all messages. Raises ValueError if it contains no tag."""
    if subscription in ("", ALL_TAGS):
        return None
    named = frozenset(tag.strip() for tag in subscription.split("||")) - {""}
    if not named:
        raise ValueError(f"tags {subscription!r} name no tag")
    return named


def _refused(queue: MessageQueue, reply: RemotingCommand) -> PullFailed:
    return PullFailed(str(queue), f"the broker answered {reply.code} {in_short(reply.remark)}", reply.code)
