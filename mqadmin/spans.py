"""Spans of queues' messages, given by offset or by store time, for printMsg and consumeMessage."""

from __future__ import annotations

from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.times import read_time
from mqclient.consumer import PullConsumer
from mqclient.route import MessageQueue
from remoting.codes import RequestCode
from remoting.errors import HeaderError
from remoting.headers.offsets import OffsetResponseHeader, SearchOffsetHeader


class WantedSpan(NamedTuple):
    """The wanted part of each queue: from an offset on, or from one moment to another, both included, in ms. None means no
    bound."""

    first: int | None
    begin_ms: int | None
    end_ms: int | None


def span_of(
    client: AdminClient, begin: tuple[str, str | None], end: tuple[str, str | None], first: int | None = None
) -> WantedSpan:
    """The span in two options. Raises `UsageWanted`."""
    now_ms = client.clock.now_ms()
    (begin_option, begin_text), (end_option, end_text) = begin, end
    return WantedSpan(
        first,
        None if begin_text is None else read_time(begin_option, begin_text, now_ms),
        None if end_text is None else read_time(end_option, end_text, now_ms),
    )


async def bounds_of(
    client: AdminClient, broker: str, consumer: PullConsumer, queue: MessageQueue, span: WantedSpan
) -> tuple[int, int]:
    """The offsets where the span begins and ends in a queue of `broker`."""
    start, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
    if span.begin_ms is not None:
        start = max(start, await _offset_at(client, broker, queue, span.begin_ms))
    if span.end_ms is not None:
        end = min(end, await _offset_at(client, broker, queue, span.end_ms + 1))
    return (start if span.first is None else span.first), end


async def _offset_at(client: AdminClient, broker: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """The first message of a queue stored at or after a moment: SEARCH_OFFSET_BY_TIMESTAMP (29)."""
    header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, "LOWER")
    reply = await client.ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    try:
        return OffsetResponseHeader.from_ext(reply.ext).offset
    except HeaderError as error:
        raise AdminError(f"{broker} answered without an offset: {error}") from error
