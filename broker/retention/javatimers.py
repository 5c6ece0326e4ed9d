"""Timer messages that a Java broker left undelivered. This broker does not deliver them, so it does not start on such a store.

Upstream (TimerMessageStore, 5.3.3): a timer message is stored in queue 0 of the topic rmq_sys_wheel_timer. The files `timerlog`
have a unit for each message, with the second in which the message is due. `config/timercheck` has the second up to which
messages were delivered, and the queue offset up to which messages have units.

Invariant: nothing is written, and undecidable cases count as not delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from struct import Struct
from typing import NamedTuple

from messagestore.errors import StoreError
from messagestore.queues.consumequeue import ENTRY
from mqruntime.runtime import Runtime
from mqruntime.segments import SegmentDirectory

TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_LOG = "timerlog"
CHECK_FILE = "config/timercheck"
QUEUES = "consumequeue"
CHECK = Struct(
    ">"  # offset field
    "q"  #  0 read_time_ms         the first second that is not delivered
    "q"  #  8 log_flushed          of timerlog
    "q"  # 16 queue_offset         of the first timer message without a unit
    "q"  # 24 master_queue_offset  the same of the master
)
UNIT = Struct(
    ">"  # offset field
    "i"  #  0 size             52
    "q"  #  4 previous
    "i"  # 12 magic            1, +2 for a stop on a long way, +4 for a deletion
    "q"  # 16 write_time_ms
    "i"  # 24 delay_ms         due at write_time_ms + delay_ms
    "q"  # 28 physical_offset  of the message
    "i"  # 36 message_size
    "i"  # 40 topic_hash
    "q"  # 44 reserved
)
DELETES, MAGIC_MAX = 4, 15
UNIT_LASTS_MS = 8 * 24 * 3_600_000
"""No unit is due later than this after it was written; the wheel covers seven days."""
STEP_UNITS = 4_096


class TimersUndelivered(StoreError):
    """A Java broker left the store with timer messages that are not delivered yet."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this store has timer messages of a Java broker that are not delivered: {why}. Timers are not built here. Start "
            "the Java broker on it again, let nobody send timer messages and wait until these are delivered, or abandon them "
            f"with abandonTimers=true; mqreplay reads them in the topic {TIMER_TOPIC}"
        )
        self.why = why


class Check(NamedTuple):
    """The content of timercheck. Without the file the values are zero, so no message counts as delivered."""

    read_time_ms: int = 0
    queue_offset: int = 0


async def refuse_timers(runtime: Runtime) -> None:
    """Check a store before it is changed. Raises TimersUndelivered, OSError."""
    check = decode_check(await runtime.files.read(CHECK_FILE))
    due = await _due(runtime.segments, check)
    if due is not None:
        due_ms, offset = due
        raise TimersUndelivered(
            f"{TIMER_LOG} has one that is due at {due_ms} ms, at {offset} of the log, and {CHECK_FILE} says delivered up to "
            f"{check.read_time_ms} ms"
        )
    if await _listed(runtime.segments, check.queue_offset):
        raise TimersUndelivered(
            f"{QUEUES}/{TIMER_TOPIC}/0 lists one at queue offset {check.queue_offset}, up to which {CHECK_FILE} says that the "
            "wheel has them"
        )


def decode_check(data: bytes | None) -> Check:
    """Decode timercheck. A file that is too short counts as missing."""
    if data is None or len(data) < CHECK.size:
        return Check()
    read_time_ms, _, queue_offset, master_queue_offset = CHECK.unpack_from(data)
    return Check(read_time_ms, max(0, min(queue_offset, master_queue_offset)))


async def _due(segments: SegmentDirectory, check: Check) -> tuple[int, int] | None:
    """The due time in ms of the newest undelivered unit, and the offset of its message; None if there is no such unit."""
    folder = segments.subdirectory(TIMER_LOG)
    for name, size in reversed(folder.names()):
        newest_ms, found = 0, None
        async for magic, write_time_ms, due_ms, offset in _units(folder, name, size):
            newest_ms = max(newest_ms, write_time_ms)
            if due_ms >= check.read_time_ms and not magic & DELETES:
                found = due_ms, offset
        if found is not None or 0 < newest_ms < check.read_time_ms - UNIT_LASTS_MS:
            return found
    return None


async def _units(folder: SegmentDirectory, name: str, size: int) -> AsyncIterator[tuple[int, int, int, int]]:
    """(magic, write time, due time, offset of the message) of each unit of one file."""
    file = folder.open(name)
    try:
        for start in range(0, size - UNIT.size + 1, STEP_UNITS * UNIT.size):
            stop = min(start + STEP_UNITS * UNIT.size, size)
            content = await file.read_cold(start, stop)
            whole = len(content) - len(content) % UNIT.size
            for unit_size, _, magic, write_ms, delay_ms, offset, *_ in UNIT.iter_unpack(content[:whole]):
                if unit_size != UNIT.size or not 0 <= magic <= MAGIC_MAX:
                    return
                yield magic, write_ms, write_ms + delay_ms, offset
            await asyncio.sleep(0)
    finally:
        file.close()


async def _listed(segments: SegmentDirectory, queue_offset: int) -> bool:
    """Whether the consume queue of timer messages has an entry at this queue offset."""
    folder = segments.subdirectory(QUEUES).subdirectory(TIMER_TOPIC).subdirectory("0")
    at = queue_offset * ENTRY.size
    for name, size in folder.names():
        if name.isdigit() and int(name) <= at < int(name) + size - ENTRY.size + 1:
            file = folder.open(name)
            try:
                within = at - int(name)
                phy, entry_size, _ = ENTRY.unpack(await file.read_cold(within, within + ENTRY.size))
            finally:
                file.close()
            return bool(phy >= 0 and entry_size > 0)
    return False
