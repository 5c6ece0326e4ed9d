"""One run of a resend: reads the committed rows of a topic and sends them, queue by queue, in order.

Invariant: a record is sent only after the ledger on disk says that it may be sent, and the ledger records as acknowledged only
what the target has acknowledged. A message is counted as a possible duplicate before it is sent again. So a resend that is
killed anywhere, any number of times, continues without a gap, and the target holds no more duplicates than are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from mqclient.message import OutgoingMessage, encode_properties
from sparkreplay.durable import replace_durably
from sparkreplay.errors import ReplayError
from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.records.walk import Stretch
from sparkreplay.resend.errors import ResendFailed
from sparkreplay.resend.lane import Lane, Parcel, Sender
from sparkreplay.resend.ledger import Ledger, SourceProgress, Tracker
from sparkreplay.resend.rate import RateLimit
from sparkreplay.resend.rewrite import SENT_FLAGS, QueueMessage, rows_of, sent_properties

WINDOW_BYTES_MIN = 1 << 20
WINDOW_BYTES_MAX = 64 << 20
LEDGER_INTERVAL_S = 1.0
UNSENT_BYTES_MAX = 32 << 20
PROPERTIES_BYTES_MAX = 32767
SURELY_FITS_BYTES = 16 << 10
"""A record of this size has room for the added properties, which name a topic and a broker set."""
AGAIN_MESSAGES = 200
"""This many messages are counted at a time before they are sent again. So after a kill the count is too high by at most this
number."""


@dataclass(frozen=True)
class WorkerShare:
    """The queues of one worker: those whose id modulo `count` is `number`."""

    number: int = 0
    count: int = 1

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.count == 1:
            return batch
        mine = batch.column("queue_id").to_numpy() % self.count == self.number
        return batch.filter(pa.array(mine))


ALL = WorkerShare()


@dataclass(frozen=True)
class ResendLimits:
    """Rates, and how many seconds a message that is not accepted is retried."""

    messages: RateLimit
    bytes: RateLimit
    not_taken_s_max: float = 120.0

    @property
    def none(self) -> bool:
        return self.messages.per_second is self.bytes.per_second is None


@dataclass
class ResendCounts:
    """Counts of one run, and of earlier runs with the same ledger. `maybe_twice` counts repeated sends: after each, the target
    may hold one more copy of a message."""

    acknowledged: int = 0
    bytes: int = 0
    acknowledged_before: int = 0
    maybe_twice: int = 0
    maybe_twice_before: int = 0


@dataclass
class Source:
    """One broker set's share of the run."""

    broker_name: str
    tracker: Tracker
    may_be_sent_below: int
    """An earlier run may have sent records that end at or below this offset, without recording an acknowledgement."""
    attempted_below: int
    lanes: dict[int, Lane] = field(default_factory=dict)

    @property
    def progress(self) -> SourceProgress:
        return self.tracker.progress


class Run:
    """One run. `send_all` does the work, and `counts` may be read meanwhile."""

    def __init__(
        self,
        read: ReadPlan,
        ledger: Ledger,
        ledger_path: Path,
        *,
        topic: str,
        sender_of: Callable[[int], Sender],
        limits: ResendLimits,
        share: WorkerShare = ALL,
        on_progress: Callable[[int, int], None] = lambda size, rows: None,
    ) -> None:
        """`on_progress(bytes of log read, messages acknowledged)` gets the increments from time to time."""
        self.counts = ResendCounts(
            acknowledged_before=ledger.acknowledged, maybe_twice_before=ledger.maybe_twice
        )
        self._on_progress = on_progress
        self._reported = 0
        self._read = read
        self._ledger = ledger
        self._ledger_path = ledger_path
        self._topic = topic
        self._sender_of = sender_of
        self._limits = limits
        self._share = share
        self._sources = {
            name: Source(name, Tracker(progress), progress.sent_below, progress.sent_below)
            for name, progress in ledger.sources.items()
        }
        self._window_bytes = WINDOW_BYTES_MIN
        self._written_at = 0.0
        self._noted = ResendCounts()  # the part of `counts` that is in the ledger
        self._again_left = 0  # AGAIN_MESSAGES that are not yet in this run's count
        self._unsent_bytes = 0
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def send_all(self) -> None:
        """Send everything. Raises ResendFailed, and errors of reading. The ledger is written at the end in any case."""
        try:
            async with asyncio.TaskGroup() as tasks:
                notes = tasks.create_task(self._note_regularly(), name="ledger")
                for stretch in self._read.stretches:
                    await self._feed(stretch, tasks)
                for lane in self._lanes():
                    lane.finish()
                if self._tasks:
                    await asyncio.wait(self._tasks)
                notes.cancel()
        except ExceptionGroup as group:
            raise first_of(group) from group
        finally:
            self._again_left = 0
            for source in self._sources.values():  # rows without an attempt were not sent
                source.progress.sent_below = source.attempted_below
            self._note()

    def _lanes(self) -> list[Lane]:
        return [lane for source in self._sources.values() for lane in source.lanes.values()]

    async def _feed(self, stretch: Stretch, tasks: asyncio.TaskGroup) -> None:
        """Pass the rows of a stretch to the lanes, in the log's order."""
        source = self._sources[self._read.sources[stretch.source].store.broker_name]
        position = stretch.start
        for batch in read_stretch(self._read, stretch):
            for row in rows_of(self._share.of(batch)):
                if source.progress.is_acked(row.queue_id, row.end):
                    continue
                if row.end > source.progress.sent_below:
                    self._allow(source, row.end)
                while self._unsent_bytes > UNSENT_BYTES_MAX:
                    self._room.clear()
                    await self._room.wait()
                self._unsent_bytes += len(row.body)
                source.tracker.handed(row.queue_id, row.physical_offset, row.end)
                lane = source.lanes.get(row.queue_id) or self._open_lane(source, row.queue_id, tasks)
                await lane.put(Parcel(row, self._message(row, source.broker_name)))
            end = batch.column("physical_offset")[-1].as_py()
            self._report_progress(end - position)
            position = end
            await asyncio.sleep(0)
        self._report_progress(stretch.end - position)
        if not stretch.at_bound:
            source.tracker.passed(stretch.end)

    def _count_again(self, may_be_there: bool) -> None:
        """Count the next row in `maybe_twice`, durably before the row is sent."""
        if not may_be_there:
            return
        if not self._again_left:
            self._again_left = AGAIN_MESSAGES
            self._note()
        self._again_left -= 1
        self.counts.maybe_twice += 1

    def _unknown(self, messages: int) -> None:
        """A request ended without a reply, and will be sent again."""
        self.counts.maybe_twice += messages
        self._note()

    def _report_progress(self, size: int) -> None:
        self._on_progress(size, self.counts.acknowledged - self._reported)
        self._reported = self.counts.acknowledged

    def _open_lane(self, source: Source, queue_id: int, tasks: asyncio.TaskGroup) -> Lane:
        def attempted(parcels: list[Parcel]) -> None:
            for parcel in parcels:
                self._count_again(parcel.row.end <= source.may_be_sent_below)
            source.attempted_below = max(source.attempted_below, parcels[-1].row.end)

        lane = Lane(
            f"{source.broker_name} {self._topic}/{queue_id}",
            self._sender_of(queue_id),
            wait_for_rate=self._wait_for_rate,
            on_attempt=attempted,
            on_acked=partial(self._acked, source, queue_id),
            on_unknown=self._unknown,
            not_taken_s_max=self._limits.not_taken_s_max,
        )
        source.lanes[queue_id] = lane
        self._tasks.append(tasks.create_task(lane.run(), name=f"resend {lane.origin}"))
        return lane

    def _message(self, row: QueueMessage, broker_name: str) -> OutgoingMessage:
        properties = sent_properties(row, broker_name, self._topic)
        place = f"{broker_name} {self._topic}/{row.queue_id}: the message at physical offset {row.physical_offset}"
        if not row.text:
            raise ResendFailed(
                place,
                "its properties are not UTF-8 and cannot be sent as they are, end before it or begin behind it",
            )
        if (
            row.end - row.physical_offset > SURELY_FITS_BYTES
            and (size := len(encode_properties(properties).encode())) > PROPERTIES_BYTES_MAX
        ):
            raise ResendFailed(
                place,
                f"its properties would be {size} bytes long with where it came from, more than a record holds",
            )
        return OutgoingMessage(
            row.body, properties, row.flag, born_timestamp_ms=row.born_ms, sys_flag=row.sys_flag & SENT_FLAGS
        )

    async def _wait_for_rate(self, messages: int, size: int) -> None:
        if self._limits.none:
            return
        now_s = asyncio.get_running_loop().time()
        wait_s = max(self._limits.messages.wait_s(messages, now_s), self._limits.bytes.wait_s(size, now_s))
        if wait_s:
            await asyncio.sleep(wait_s)

    def _acked(self, source: Source, queue_id: int, parcels: list[Parcel]) -> None:
        source.tracker.acked(queue_id, len(parcels))
        size = sum(len(parcel.row.body) for parcel in parcels)
        self.counts.acknowledged += len(parcels)
        self.counts.bytes += size
        self._unsent_bytes -= size
        self._room.set()

    def _allow(self, source: Source, end: int) -> None:
        """Raise the bound of records that may be sent by about one interval's worth."""
        now_s = asyncio.get_running_loop().time()
        faster = now_s - self._written_at < LEDGER_INTERVAL_S
        wanted = self._window_bytes * 2 if faster else self._window_bytes // 2
        self._window_bytes = min(max(wanted, WINDOW_BYTES_MIN), WINDOW_BYTES_MAX)
        source.progress.sent_below = end + self._window_bytes
        self._note()

    async def _note_regularly(self) -> None:
        while True:
            await asyncio.sleep(LEDGER_INTERVAL_S)
            self._again_left = 0  # else a much later kill would still count them
            self._note()

    def _note(self) -> None:
        """Write the ledger with the current state."""
        for source in self._sources.values():
            source.tracker.settle()
        again = self.counts.maybe_twice + self._again_left
        self._ledger.acknowledged += self.counts.acknowledged - self._noted.acknowledged
        self._ledger.maybe_twice += again - self._noted.maybe_twice
        self._noted = ResendCounts(acknowledged=self.counts.acknowledged, maybe_twice=again)
        replace_durably(self._ledger_path, self._ledger.encode())
        self._written_at = asyncio.get_running_loop().time()


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The failure to report if there are several: the first one with an explanation."""
    leaves: list[Exception] = []
    for error in group.exceptions:
        leaves.append(first_of(error) if isinstance(error, ExceptionGroup) else error)
    return next((error for error in leaves if isinstance(error, ReplayError)), leaves[0])
