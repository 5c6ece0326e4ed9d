"""One stream over the logs of one or more broker sets: where it begins, where a batch ends, and the plan of a batch.

Invariant: the rows of a batch depend only on the batch's start and end offset. Values that are remembered between calls only
save work. So a driver that was killed at any moment continues from the offsets that Spark kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from sparkreplay.errors import BrokerSetMissing, DataLost, OffsetUnreadable, ReplicaBehind, SegmentGone
from sparkreplay.read.abovebound import records_above
from sparkreplay.read.index import indexed_end
from sparkreplay.read.options import ReadOptions
from sparkreplay.read.plan import plan
from sparkreplay.read.reader import ReadPlan, SourcePlan, selection_of, split_bytes_of
from sparkreplay.store.hold import LogHold, hold_on, new_holder
from sparkreplay.store.replicas import rank
from sparkreplay.store.snapshot import StoreSnapshot
from sparkreplay.stream.admission import UNLIMITED, Admission, BatchCut, cut, shares
from sparkreplay.stream.losses import messages_lost
from sparkreplay.stream.position import SetOffset, StreamOffset, first_offset, require_same_log

LOOKS_MAX = 3
"""Attempts to list segments. Retention may delete a listed segment at any time, and a long stream will meet that."""
logger = logging.getLogger("sparkreplay")

Replicas = Mapping[str, list[StoreSnapshot]]
"""The stores of each broker set, at least one."""


class LogStream:
    """`look` opens the stores that the options name, and `begin` returns the beginning of a new query in each set."""

    def __init__(
        self,
        options: ReadOptions,
        look: Callable[[], Replicas],
        begin: Callable[[Mapping[str, StoreSnapshot]], Mapping[str, int]],
        clock_s: Callable[[], float],
    ) -> None:
        self.options = options
        self.look = look
        self.begin = begin
        self.clock_s = clock_s
        self.begun: StreamOffset | None = None
        self.frozen: dict[str, int] | None = None
        self.waiting_since_s = clock_s()
        self.seen: Replicas | None = None
        self.cuts: dict[str, tuple[SetOffset, BatchCut]] = {}
        self.warned: set[tuple[str, int]] = set()
        self.holder = new_holder()
        self.holds: dict[str, LogHold] = {}
        self.idle_looks: dict[str, int] = {}

    def initial(self) -> StreamOffset:
        """The beginning of a new query. Spark asks for it several times, and it is the same until the first batch. A set whose
        log is empty is left out unless offsets are requested. The set joins the stream later, at the beginning that its log
        then has.

        Raises the errors of opening the stores and reading the options."""
        if self.begun is None:
            stores = {name: best_of(replicas) for name, replicas in self.look_again().items()}
            begin = self.begin(stores)
            sets = {
                name: first_offset(begin[name], store)
                for name, store in stores.items()
                if store.segments or self.options.starting.names_offsets
            }
            self.begun = StreamOffset(sets, initial=True)
        return self.begun

    def freeze(self) -> None:
        """Ignore anything committed from now on (Trigger.AvailableNow)."""
        self.look_again()
        self.frozen = self.bounds()

    def bounds(self) -> dict[str, int]:
        """The committed end of each set, as last seen."""
        return {name: best_of(replicas).bound for name, replicas in self.last_seen().items()}

    def latest(self, start: StreamOffset, admission: Admission = UNLIMITED) -> StreamOffset:
        """The end of the batch that begins at `start`. It is `start` itself while there is nothing to read, or less than the
        options require.

        Raises ForeignLog and LogTruncated, and, unless failOnDataLoss is false, DataLost and BrokerSetMissing."""
        for _ in range(LOOKS_MAX - 1):
            with suppress(SegmentGone):  # the next call of `look` reports lost data
                return self.latest_of(self.look_again(), start, admission)
        return self.latest_of(self.look_again(), start, admission)

    def latest_of(self, seen: Replicas, start: StreamOffset, admission: Admission) -> StreamOffset:
        stores = {
            name: best_of(replicas, start.sets[name].offset if name in start.sets else None)
            for name, replicas in seen.items()
        }
        for name in start.sets.keys() - stores.keys():
            self.miss(name, start.sets[name].offset, stores)
        at = {name: self.position(name, store, start.sets.get(name)) for name, store in stores.items()}
        ends = {name: self.end_of(name, store) for name, store in stores.items()}
        for name, store in stores.items():
            self.hold(name, store, at[name].offset)
        self.warn_of_replicas_behind(stores, at)
        self.report_above_bound(stores, at, ends)
        pending = {name: ends[name] - at[name].offset for name in stores if ends[name] > at[name].offset}
        cuts = self.cuts_within(admission, stores, at, ends, pending)
        if self.too_few(admission, pending, cuts):
            return start
        moved = {
            name: at[name].moved_to(found.offset, stores[name])
            for name, found in cuts.items()
            if found.offset > at[name].offset
        }
        if not moved:
            return start
        self.waiting_since_s = self.clock_s()
        self.cuts.clear()
        return StreamOffset({**start.sets, **moved})

    def cuts_within(
        self,
        admission: Admission,
        stores: Mapping[str, StoreSnapshot],
        at: Mapping[str, SetOffset],
        ends: Mapping[str, int],
        pending: Mapping[str, int],
    ) -> dict[str, BatchCut]:
        """The cut of each set that has pending bytes. Each set has its share of the limits."""
        bytes_of = shares(admission.max_bytes, pending) if admission.max_bytes else {}
        messages_of = shares(admission.max_messages, pending) if admission.max_messages else {}
        for name in pending:
            before = self.cuts.get(name)
            self.cuts[name] = (
                at[name],
                cut(
                    stores[name],
                    at[name].offset,
                    ends[name],
                    max_bytes=bytes_of.get(name),
                    max_messages=messages_of.get(name),
                    count=admission.counts,
                    walked=before[1] if admission.counts and before and before[0] == at[name] else None,
                ),
            )
        return {name: self.cuts[name][1] for name in pending}

    def too_few(self, admission: Admission, pending: Mapping[str, int], cuts: Mapping[str, BatchCut]) -> bool:
        """Whether to wait for more messages. A batch that reaches its byte limit does not wait, and neither does the last
        batch (AvailableNow)."""
        if admission.min_messages is None or self.frozen is not None:
            return False
        if admission.max_bytes is not None and sum(pending.values()) > admission.max_bytes:
            return False
        counted = sum(found.messages or 0 for found in cuts.values())
        return (
            counted < admission.min_messages and self.clock_s() - self.waiting_since_s < admission.max_delay_s
        )

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[ReadPlan]:
        """One plan per stretch of (start, end]. The rows are the same at any time and from any replica.

        Raises OffsetUnreadable, ForeignLog, LogTruncated and ReplicaBehind, and, unless failOnDataLoss is false, DataLost and
        BrokerSetMissing."""
        replicas = self.last_seen()
        parts: list[tuple[StoreSnapshot, int, str]] = []
        for name, to in sorted(end.sets.items()):
            begin = start.begin_of(name, to)
            if begin == to.offset:
                continue
            if begin > to.offset:
                raise OffsetUnreadable(
                    end.to_json(), f"of {name} the batch that ends there begins at {begin}"
                )
            if name not in replicas:
                self.miss(name, begin, replicas, to.offset)
                continue
            store = best_of(replicas[name], begin, to.offset)
            if name in start.sets:
                require_same_log(name, start.sets[name], store)
            require_same_log(name, to, store)
            if store.bound < to.offset:
                raise ReplicaBehind(name, store.root, store.bound, to.offset)
            begin = self.first_held(name, store, begin, to.offset)
            self.hold(name, store, begin)
            parts.append((replace(store, bound=to.offset), begin, name))
        split_bytes = split_bytes_of(self.options, sum(store.bound - begin for store, begin, _ in parts))
        return [
            replace(one, holds=tuple(hold for held, hold in self.holds.items() if held == name))
            for store, begin, name in parts
            for one in stretch_plans(self.options, store, begin, split_bytes)
        ]

    def hold(self, name: str, store: StoreSnapshot, offset: int) -> None:
        """Lease the log of this set from `offset` on."""
        if not self.options.hold_log:
            return
        before, files = self.holds.get(name), store.files
        if before is None or (before.root, before.offset) != (files.root, offset):
            self.holds[name] = hold_on(store, self.holder, offset)
            if before is not None and before.root != files.root:
                before.release()
        else:
            before.renew()

    def look_again(self) -> Replicas:
        self.seen = self.look()
        return self.seen

    def last_seen(self) -> Replicas:
        return self.look_again() if self.seen is None else self.seen

    def end_of(self, name: str, store: StoreSnapshot) -> int:
        if self.frozen is None:
            return store.bound
        return min(store.bound, self.frozen.get(name, 0))

    def position(self, name: str, store: StoreSnapshot, before: SetOffset | None) -> SetOffset:
        """The beginning of the next batch in a set. A set that is new to the stream begins with its log."""
        if before is None:
            return first_offset(store.min_offset, store)
        require_same_log(name, before, store)
        return replace(before, offset=self.first_held(name, store, before.offset, store.min_offset))

    def first_held(self, name: str, store: StoreSnapshot, offset: int, end: int) -> int:
        """Return `offset`. If retention has deleted the log there, report the loss and return the log's beginning."""
        gone_to = min(store.min_offset, end)
        if gone_to <= offset:
            return offset
        if (name, offset) not in self.warned:
            lost = messages_lost(store.files, offset, gone_to)
            self.lose(name, offset, DataLost(name, store.root, offset, gone_to, lost))
        return gone_to

    def warn_of_replicas_behind(
        self, stores: Mapping[str, StoreSnapshot], at: Mapping[str, SetOffset]
    ) -> None:
        """Warn of replicas that lag, because waiting for one looks like a log without new messages."""
        for name, store in stores.items():
            if store.bound < at[name].offset and (store.root, at[name].offset) not in self.warned:
                self.warned.add((store.root, at[name].offset))
                logger.warning(
                    "broker set %s was read up to %d, but %s is committed up to %d only: nothing is read before it is further; "
                    "if it is another log that starts over, it needs a new query",
                    name,
                    at[name].offset,
                    store.root,
                    store.bound,
                )

    def report_above_bound(
        self, stores: Mapping[str, StoreSnapshot], at: Mapping[str, SetOffset], ends: Mapping[str, int]
    ) -> None:
        """Log a warning if a store's bound stays behind although its log grows, because to a stream that looks like a log
        without new messages. The check is made the 1st, 2nd, 4th, 8th ... time in a row that there is nothing to read."""
        for name, store in stores.items():
            looks = 0 if ends[name] > at[name].offset else self.idle_looks.get(name, 0) + 1
            self.idle_looks[name] = looks
            if looks & (looks - 1) or not looks or (store.root, store.bound) in self.warned:
                continue
            above = records_above(store)
            if above is not None and above.is_stale:
                self.warned.add((store.root, store.bound))
                logger.warning("broker set %s: %s", name, above)

    def miss(self, name: str, offset: int, present: Iterable[str], end: int | None = None) -> None:
        self.lose(name, offset, BrokerSetMissing(name, offset, sorted(present), end))

    def lose(self, name: str, offset: int, loss: DataLost | BrokerSetMissing) -> None:
        if self.options.fail_on_data_loss:
            raise loss
        if (name, offset) not in self.warned:
            self.warned.add((name, offset))
            logger.warning("failOnDataLoss=false: %s", loss)


def best_of(replicas: list[StoreSnapshot], start: int | None = None, end: int = 0) -> StoreSnapshot:
    """The replica with which the stream continues from `start`: the newest replica that still holds `start` and is committed
    up to `end`."""
    return max(
        replicas,
        key=lambda store: (start is None or store.min_offset <= start, store.bound >= end, rank(store)),
    )


def stretch_plans(options: ReadOptions, store: StoreSnapshot, start: int, split_bytes: int) -> list[ReadPlan]:
    """Plans from `start` up to the store's bound. Unlike the bound of a batch read, this bound is a record boundary, and the
    worker checks that it is.

    Each plan names only its own segment, because it is sent to the worker with the stretch."""
    end = store.bound
    index_end = indexed_end(store, end) if options.use_index else None
    source = SourcePlan(store, selection_of(options, store), start, end, index_end)
    return [
        ReadPlan(
            options.columns,
            (replace(source, store=replace(store, segments=(stretch.segment,))),),
            (replace(stretch, at_bound=False),),
            options.fail_on_data_loss,
        )
        for stretch in plan(store, start, end, split_bytes)
    ]
