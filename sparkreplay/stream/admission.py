"""The size of a stream's batch: the limits in the options, the share of each broker set in them, and where exactly a batch
ends.

Invariant: a cut (the end of a batch in one store) is a record boundary. It is reached by walking records from a known boundary:
the start of the batch or of a segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkreplay.errors import OptionError
from sparkreplay.read.offsets import whole_number
from sparkreplay.read.options import size
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.snapshot import StoreSnapshot

MAX_TRIGGER_DELAY = "15m"
TIME_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Admission:
    """The limits of one batch; None means no limit. Every record of the log counts as a message, also records that are filtered
    out later."""

    max_bytes: int | None = None
    max_messages: int | None = None
    min_messages: int | None = None
    max_delay_s: float = 900.0
    """How long a batch with fewer than `min_messages` waits for more."""

    @property
    def counts(self) -> bool:
        return self.max_messages is not None or self.min_messages is not None


UNLIMITED = Admission()


def read_admission(given: Mapping[str, str]) -> Admission:
    """The limits in the options of STREAM_OPTIONS, whose names are in lower case. Raises OptionError."""
    found = Admission(
        max_bytes=size("maxBytesPerTrigger", given["maxbytespertrigger"])
        if "maxbytespertrigger" in given
        else None,
        max_messages=positive("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger")),
        min_messages=positive("minOffsetsPerTrigger", given.get("minoffsetspertrigger")),
        max_delay_s=duration_s("maxTriggerDelay", given.get("maxtriggerdelay", MAX_TRIGGER_DELAY)),
    )
    if found.min_messages and found.max_messages and found.min_messages > found.max_messages:
        raise OptionError("minOffsetsPerTrigger", "is above maxOffsetsPerTrigger")
    return found


def positive(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = whole_number(option, text)
    if found == 0:
        raise OptionError(option, "is 0; leave it out for no limit")
    return found


def duration_s(option: str, text: str) -> float:
    unit = text.lstrip("0123456789")
    if unit not in TIME_UNITS_S or unit == text:
        raise OptionError(option, f"{text!r} is no time; write for example 500ms, 30s, 15m, 1h")
    return whole_number(option, text.removesuffix(unit)) * TIME_UNITS_S[unit]


def shares(limit: int, pending: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among broker sets in proportion to their pending bytes. Each set that has pending bytes gets at least
    1."""
    total = sum(pending.values())
    return {name: max(1, limit * part // total) for name, part in pending.items() if part}


@dataclass(frozen=True)
class BatchCut:
    """Where a batch may end in one store, and the number of messages before that place (None: not counted)."""

    offset: int
    messages: int | None


def cut(
    store: StoreSnapshot,
    start: int,
    end: int,
    *,
    max_bytes: int | None,
    max_messages: int | None,
    count: bool = False,
    walked: BatchCut | None = None,
) -> BatchCut:
    """The last record boundary of (start, end] that the limits allow. At least one record is included, if a whole record is
    there.

    `walked` is an earlier cut for the same start. The walk continues from it if the limits allow that."""
    upto = end if max_bytes is None else min(end, start + max_bytes)
    at = BatchCut(start, 0)
    if not count and max_messages is None:
        at = BatchCut(max(start, beginning_of_segment(store, upto)), None)
    elif walked is not None and walked.offset <= upto and within(walked.messages, max_messages):
        at = walked
    found = walk_on(store, at, upto, max_messages)
    if found.offset == start and upto < end:
        found = walk_on(store, at, end, 1)
    return found


def within(messages: int | None, limit: int | None) -> bool:
    return messages is not None and (limit is None or messages <= limit)


def beginning_of_segment(store: StoreSnapshot, offset: int) -> int:
    """The greatest beginning of a segment that is at or below `offset`. It is a boundary that needs no walk."""
    return max((part.start_offset for part in store.segments if part.start_offset <= offset), default=0)


def walk_on(store: StoreSnapshot, at: BatchCut, upto: int, max_messages: int | None) -> BatchCut:
    """Walk records from the boundary `at` to the last boundary at or below `upto`, or to the end of the `max_messages`-th
    record.

    Raises LogCorrupted if records end before `upto`."""
    offset, messages = at.offset, at.messages or 0
    for segment in store.segments:
        if segment.end_offset <= offset:
            continue
        if segment.start_offset >= upto or offset == upto:
            break
        end = min(upto, segment.end_offset)
        stretch = Stretch(segment, offset, end, at_bound=end < segment.end_offset)
        for chunk in chunks_of(store.files, stretch):
            if max_messages is not None and messages + len(chunk.positions) > max_messages:
                offset = int(chunk.offsets[max_messages - messages]) - segment.framing.lead_bytes
                return BatchCut(offset, None if at.messages is None else max_messages)
            messages += len(chunk.positions)
            offset = chunk.end_offset
        if not stretch.at_bound:
            offset = segment.end_offset
    return BatchCut(offset, None if at.messages is None else messages)
