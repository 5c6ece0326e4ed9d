"""The options for one store: conditions on its rows, and checks that the requested messages are there.

Invariant: with failOnDataLoss, no message requested by offset is left out silently. Without it, missing messages are logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sparkreplay.errors import MessagesGone, OptionError
from sparkreplay.read.offsets import Edge, PerQueue, QueueValue
from sparkreplay.read.options import ReadOptions
from sparkreplay.read.plan import plan
from sparkreplay.read.queueends import Queue, first_of, last_of, newest_stored_ms, stored_since
from sparkreplay.records.rowfilter import Between, Condition, QueueWindows, TopicMatches
from sparkreplay.records.walk import Stretch
from sparkreplay.store.snapshot import StoreSnapshot

logger = logging.getLogger("sparkreplay")


def of_broker(named: PerQueue, broker_name: str) -> dict[Queue, int]:
    return {
        (queue.topic, queue.queue_id): queue.value
        for queue in named
        if queue.broker_name in (None, broker_name)
    }


def require_brokers(options: ReadOptions, broker_names: Sequence[str]) -> None:
    """Raise OptionError if JSON names a broker set that is not read, or if it names none although several are read."""
    for option, edge in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        for queue in edge.per_queue:
            require_broker(option, queue, broker_names)


def require_broker(option: str, queue: QueueValue, broker_names: Sequence[str]) -> None:
    if queue.broker_name is None and len(broker_names) > 1:
        raise OptionError(
            option,
            f"{queue.topic}/{queue.queue_id} may be a queue of each of {', '.join(broker_names)}: "
            'name the broker set, {"topic": {"broker": {"queue": n}}}',
        )
    if queue.broker_name is not None and queue.broker_name not in broker_names:
        raise OptionError(
            option, f"names broker set {queue.broker_name}; those of path are {', '.join(broker_names)}"
        )


def conditions(options: ReadOptions, broker_name: str) -> tuple[Condition, ...]:
    """Conditions on a row, besides topic names, queue ids and transactions."""
    found: list[Condition] = []
    start, end = options.starting, options.ending
    if start.timestamp is not None:
        found.append(Between("store_timestamp", low=start.timestamp))
    if end.timestamp is not None:
        found.append(Between("store_timestamp", high=end.timestamp - 1))
    if options.topic_pattern is not None:
        found.append(TopicMatches(options.topic_pattern))
    for field, low, high in (
        ("queue_offset", start.queue_offsets, end.queue_offsets),
        ("store_timestamp", start.queue_timestamps, end.queue_timestamps),
    ):
        lows, highs = of_broker(low, broker_name), of_broker(high, broker_name)
        queues = sorted(lows.keys() | highs.keys())
        if queues:
            limits = tuple((queue, (lows.get(queue), highs.get(queue))) for queue in queues)
            found.append(QueueWindows(field, limits))
    return tuple(found)


def require_present(
    options: ReadOptions, store: StoreSnapshot, stretches: Sequence[Stretch], start: int
) -> None:
    """Check that the requested messages are in the planned part, which begins at `start`. Raises MessagesGone if messages at
    requested offsets were deleted or are not there yet (without failOnDataLoss this is only logged), and OptionError if no
    message is as new as a requested time."""
    starts = of_broker(options.starting.queue_offsets, store.broker_name)
    ends = of_broker(options.ending.queue_offsets, store.broker_name)
    check_ranges(starts, ends)
    beyond = beyond_the_end(store, stretches, start, {**starts, **ends})
    for why in [*deleted(store, stretches, starts), *beyond]:
        lose(options, store.root, why)
    if options.unmatched_start_fails:
        require_times(options.starting, store, stretches)


def check_ranges(starts: dict[Queue, int], ends: dict[Queue, int]) -> None:
    for (topic, queue_id), start in starts.items():
        end = ends.get((topic, queue_id), start)
        if start > end:
            raise OptionError(
                "endingOffsets", f"{topic}/{queue_id} ends at {end}, before it starts, at {start}"
            )


def lose(options: ReadOptions, path: str, why: str) -> None:
    if options.fail_on_data_loss:
        raise MessagesGone(path, why)
    logger.warning("%s: %s; the read continues with what is left (failOnDataLoss=false)", path, why)


def deleted(store: StoreSnapshot, stretches: Sequence[Stretch], starts: dict[Queue, int]) -> list[str]:
    """A text for each queue in which retention deleted messages from the requested offset on, or may have done so. Empty if the
    log begins at 0, because then nothing was deleted."""
    if not store.min_offset or not starts:
        return []
    first = first_of(store.files, stretches, frozenset(starts))
    return [
        f"the log begins at {store.min_offset}, and offsets {start} to {found.queue_offset - 1} of queue "
        f"{topic}/{queue_id} were deleted"
        if (found := first.get((topic, queue_id))) is not None
        else f"the log begins at {store.min_offset} and holds nothing of queue {topic}/{queue_id}, "
        f"so whether its offset {start} was deleted is unknown (-2 reads what is there)"
        for (topic, queue_id), start in starts.items()
        if (found := first.get((topic, queue_id))) is None or found.queue_offset > start
    ]


def beyond_the_end(
    store: StoreSnapshot, stretches: Sequence[Stretch], start: int, asked: dict[Queue, int]
) -> list[str]:
    """A text for each queue that ends before the offset requested for it, perhaps even before the planned part."""
    asked = {queue: offset for queue, offset in asked.items() if offset > 0}
    if not asked:
        return []
    last = last_of(store.files, list(reversed(stretches)), frozenset(asked))
    if len(last) < len(asked):
        before = plan(store, store.min_offset, start)
        last |= last_of(store.files, list(reversed(before)), frozenset(asked) - last.keys())
    ends = {queue: seen.queue_offset + 1 for queue, seen in last.items()}
    return [
        f"queue {topic}/{queue_id} ends at {ends.get((topic, queue_id), 0)}, before offset {offset}"
        for (topic, queue_id), offset in asked.items()
        if ends.get((topic, queue_id), 0) < offset
    ]


def require_times(starting: Edge, store: StoreSnapshot, stretches: Sequence[Stretch]) -> None:
    """Raise OptionError if no message was stored at the starting time or later, unless the strategy is `latest`. Clocks may
    have gone back, so only a walk of the whole log proves that there is no such message. If there is one, it is usually found
    at the log's end."""
    backwards = list(reversed(stretches))
    cure = "give an earlier time, or startingOffsetsByTimestampStrategy=latest to read nothing there"
    if starting.timestamp is not None:
        newest = newest_stored_ms(store.files, backwards, starting.timestamp)
        if newest is None or newest < starting.timestamp:
            raise OptionError(
                "startingTimestamp",
                f"nothing in {store.root} was stored at {starting.timestamp} or later, the newest record at {newest}; {cure}",
            )
    asked = of_broker(starting.queue_timestamps, store.broker_name)
    reached = stored_since(store.files, backwards, asked) if asked else set()
    for queue, timestamp in asked.items():
        if queue not in reached:
            raise OptionError(
                "startingOffsetsByTimestamp",
                f"nothing of queue {queue[0]}/{queue[1]} in {store.root} was stored at {timestamp} or later; {cure}",
            )
