"""A send path from received bytes to log and replies, over a log in memory; pure or compiled."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from broker.metrics.totals import Totals
from broker.replication.pending import PendingSends
from broker.replication.writegate import WriteGate
from broker.sends.admission import SendAdmission
from broker.sends.processor import SEND_CODES, SendProcessor
from broker.settings.transactions import TransactionSettings
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics, system_topics
from dledger.node.positions import PositionTracker
from dledger.raft.actions import PersistThenSend
from dledger.raft.entries import NO_INDEX, Block, Entries
from dledger.raft.errors import TooManyProposals
from dledger.storage.entry import BLANK, ENTRY_HEADER_BYTES, header_of
from dledger.storage.entrylog import outermost_positions
from messagestore.log.appender import Appender
from messagestore.log.commitlog import CommitLog
from messagestore.messages import MessageToStore, PlainAppended, PutResult, ReplyForm
from messagestore.record import PREFIX, encode_blank, pack_host
from mqruntime.histogram import Histogram
from nativepath import presence
from raftstore.framing import position_in_body
from raftstore.ledgerlog import LedgerLog
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.command import RESPONSE_BIT, Body, RemotingCommand
from remoting.frame import FrameReader, encode
from tests.support.doubles import ManualClock

SEGMENT_BYTES = 1 << 16
SEGMENTS = 32
MESSAGE_BYTES_MAX = 4_000
ANSWERED_MS = 3_000
LONG_TOPICS = "T" * 127, "T" * 128, "T" * 255, "T" * 256
"""Lengths around the limits of record versions 1 and 2. Such topics may come from another cluster."""


class MemoryLog:
    """The part of CommitLog that an appender uses."""

    def __init__(self) -> None:
        self.content = bytearray(SEGMENT_BYTES * SEGMENTS)
        self.segment_size_bytes = SEGMENT_BYTES
        self.record_bytes_max = SEGMENT_BYTES - PREFIX.size
        self.is_full = False
        self._end = 0

    places = CommitLog.places
    room = CommitLog.room

    @property
    def max_offset(self) -> int:
        return self._end

    def tail(self, size: int) -> tuple[memoryview, int]:
        if self.is_full:
            raise OSError(28, "no room")
        view = memoryview(self.content)
        left = SEGMENT_BYTES - self._end % SEGMENT_BYTES
        if size + PREFIX.size > left:
            view[self._end : self._end + PREFIX.size] = encode_blank(left)
            self._end += left
        start = self._end - self._end % SEGMENT_BYTES
        return view[start : start + SEGMENT_BYTES], self._end - start

    def grow(self, end: int) -> None:
        self._end = end


class LoneNode:
    """The part of a single-member DLedgerNode that its log uses: reserved entries are in the log at once."""

    term = 7
    end = 0
    waits_for_room = False

    def __init__(self) -> None:
        self.settings = SimpleNamespace(data_file_bytes=SEGMENT_BYTES, proposal_bytes_max=SEGMENT_BYTES)
        self.content = bytearray(SEGMENT_BYTES * SEGMENTS)
        self.is_full = False
        self.last_index = NO_INDEX
        self._tracker = PositionTracker(self, NO_INDEX)

    def start_of(self, size: int, end: int) -> int:
        left = SEGMENT_BYTES - end % SEGMENT_BYTES
        return end + left if size + BLANK.size > left else end

    def stretch(self, block: Block, end: int) -> tuple[int, int]:
        return self.start_of(ENTRY_HEADER_BYTES + block.size(1), end), 1

    def end_of(self, index: int) -> int:
        return 0

    def log_end(self) -> int:
        return self._tracker.end

    def reserve(self, sizes: list[int]) -> list[int]:
        if self.is_full:
            raise TooManyProposals("no room")
        self.positions = self._tracker.reserve(sizes)
        return self.positions

    def append_reserved(self, block: Block) -> None:
        assert self._tracker.matches_reservation(block.sizes, outermost_positions(block, position_in_body))
        entries = Entries(self.last_index + 1, (block,))
        self._tracker.took(PersistThenSend(None, None, entries, ()))
        self.last_index = entries.last_index
        for entry, position in zip(entries, self.positions, strict=True):
            assert position_in_body(entry.body) == position, "also those between"
            stored = header_of(entry, position, 0, 0)[0] + entry.body
            self.content[position : position + len(stored)] = stored


class MemoryLedger(LedgerLog):
    """A ledger's log in memory."""

    def __init__(self) -> None:
        self._lone = LoneNode()
        super().__init__(cast(Any, self._lone), hot_segments=2, queue_ends=lambda: b"")
        self.content = self._lone.content

    @property
    def is_full(self) -> bool:
        return self._lone.is_full

    @is_full.setter
    def is_full(self, full: bool) -> None:
        self._lone.is_full = full


class Store:
    """The part of MessageStore that sends use."""

    store_host = pack_host("10.0.0.1", 10911)

    def __init__(
        self,
        log: MemoryLog | MemoryLedger,
        clock: ManualClock,
        next_offsets: dict[tuple[bytes, int], int],
        *,
        crcs: bool,
    ) -> None:
        self.log = log
        self.next_offsets = next_offsets
        self.plain = 0
        self._clock = clock
        self._appender = Appender(
            cast(Any, self.log), MESSAGE_BYTES_MAX, next_offsets, 5, deque(maxlen=0), record_crcs=crcs
        )

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        return self._appender.append(messages, self.store_host, self._clock.now_ms())

    def append_plain(
        self, sends: Any, born_host: bytes, added: bytes, reply: ReplyForm
    ) -> PlainAppended | None:
        now_ms = self._clock.now_ms()
        appended = self._appender.append_plain(sends, born_host, self.store_host, added, reply, now_ms)
        self.plain += appended is not None
        return appended


class Replication:
    accepts_sends = True
    is_slave = False
    acked = stored = 0
    reached = 1 << 62

    def enough_in_sync(self) -> bool:
        return True

    def acked_end(self) -> int:
        return self.acked

    def stored_end(self) -> int:
        return self.stored

    def replicated_end(self) -> int:
        return self.acked

    def followed_end(self) -> int:
        return self.acked

    def reachable(self, end: int) -> bool:
        return end <= self.reached


class Client:
    def __init__(self, address: str) -> None:
        self.remote_address = address
        self.attributes: dict[str, object] = {}
        self.active_at_ms = 0
        self.written: list[bytes] = []

    def send(self, commands: Sequence[RemotingCommand]) -> None:
        self.write([buffer for command in commands for buffer in encode(command)])

    def write(self, buffers: Sequence[Body]) -> None:
        self.written.append(b"".join(map(bytes, buffers)))


class SendBench:
    """If `compiled`, the module handles the receives that it supports; handlers see the others."""

    def __init__(
        self,
        *,
        compiled: bool,
        log: type[MemoryLog | MemoryLedger] = MemoryLog,
        crcs: bool = False,
        address: str = "10.0.0.9:5000",
    ) -> None:
        self.clock = ManualClock()
        self.store = Store(log(), self.clock, {}, crcs=crcs)
        self.replication = Replication()
        self.pending = PendingSends(60)
        topics = Topics(
            self.clock,
            system_topics("DefaultCluster", "broker-a", auto_create=True, queue_nums=8),
            lambda: None,
        )
        topics.ensure("orders", 4)
        topics.ensure("others", 2)
        for name in LONG_TOPICS:
            topics.ensure(name, 4)
        groups = SubscriptionGroups(self.clock, auto_create=False, on_change=lambda: None)
        groups.put(SubscriptionGroupConfig("CG", retry_max_times=2))
        self.totals = Totals()
        self.client = Client(address)
        self.reader = FrameReader()
        for _ in range(7):
            self.reader._grow()  # so that each receive is read at once
        self.settings = TransactionSettings()
        self.halves: list[object] = []
        self.processor = SendProcessor(
            log=self.store,
            admission=SendAdmission(
                log=self.store,
                topics=topics,
                groups=groups,
                clock=self.clock,
                random=random.Random(1),
                cluster_name="DefaultCluster",
                delay_levels=18,
                settings=self.settings,
                open_halves=lambda: len(self.halves),
            ),
            half_stored=lambda message, appended: self.halves.append((message, appended)),
            gate=WriteGate(self.replication, self.replication, self.pending, self.clock, wait_ms=ANSWERED_MS),
            totals=self.totals,
        )
        self._compiled = compiled

    def receive(self, data: bytes) -> None:
        while data and self.reader.failure is None:
            room = self.reader.buffer()
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            self._filled(len(part))

    def _filled(self, count: int) -> None:
        client = cast(Any, self.client)
        if self._compiled:
            assert presence.native is not None
            sends = self.reader.filled_with_sends(count, presence.native.read_sends)
            if sends is not None:
                self.processor.handle_plain(client, sends)
                return
        commands = self.reader.filled(count)
        ours = [each for each in commands if each.code in SEND_CODES and not each.flag & RESPONSE_BIT]
        if ours:
            self.processor.handle(client, ours)

    def state(self) -> Any:
        """Everything that must be equal, without the unwritten zeros of the log."""
        end = self.store.log.max_offset
        assert self.store.log.content.count(0, end) == len(self.store.log.content) - end
        shown = {name: _shown(histogram) for name, histogram in self.totals.sizes.items()}
        return (
            bytes(self.store.log.content[:end]),
            self.store.next_offsets,
            b"".join(self.client.written),
            len(self.pending),
            self.pending.first_end,
            self.processor.stored,
            self.processor._admission.unique_keys_given,
            self.totals.stored,
            shown,
            str(self.reader.failure),
            self.reader.has_partial_frame,
        )


def _shown(histogram: Histogram) -> Any:
    return {name: getattr(histogram, name) for name in ("counts", "sum", "count") if hasattr(histogram, name)}
