"""Fuzzing targets: decoders of bytes from disks. Each has a valid example, and the errors that damaged bytes may raise.

Invariant: each target checks what it decoded: encoding and decoding it again must give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from broker.resync import storeaside
from broker.resync.storeaside import StoreAsideUnreadable
from broker.retention import javatimers
from broker.role import identity, startnumber
from broker.tables import journal
from broker.tables.accesstables import Acls, Users
from broker.tables.consumerfilters import ConsumerFilters
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.delayoffsets import DelayOffsets
from broker.tables.deletions import Deletions
from broker.tables.queueends import QueueEndsTable
from broker.tables.queuelocks import RebalanceLocks
from broker.tables.stamp import CopyStamp, Stamp
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from controller import events, statesnapshot
from controller.state import ReplicasState
from dledger.raft import membership, startnumbers
from dledger.raft.errors import MembersUnknown, SnapshotDamaged, SnapshotUnknown
from dledger.raft.membership import Members
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage import entry, entrylog
from dledger.storage.keyvalues import BadKeyValues, parse_key_values
from dledger.storage.snapshot import decode_snapshot, encode_snapshot
from epochfile import format as epochs
from epochfile.binding import Binding, BindingDamaged, Seal, decode_binding
from epochfile.entry import EpochEntry
from messagestore import contractmark, leases
from messagestore.checkpoint import Checkpoint, CheckpointDamaged, decode_checkpoint
from messagestore.contractmark import ContractMark, ContractMarkDamaged
from messagestore.properties import parse_properties
from messagestore.queues import ends
from messagestore.record import RecordError, decode
from mqruntime.properties import PropertiesError, dump, parse
from mqruntime.slices import run_without_loop
from raftstore.divide import Divide, decode_divide, encode_divide
from raftstore.queueends import EmptiedQueueEnd, QueueEndsUnreadable, decode_queue_ends, encode_queue_ends
from remoting.bodies.access import AclTable, UserTable
from remoting.bodies.filters import ConsumerFilterWrapper
from remoting.bodies.groups import SubscriptionGroupWrapper
from remoting.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from remoting.bodies.tables import DeletionTable, QueueEndTable, QueueLockTable, TableChanges
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.errors import BodyError
from simulation.fuzz.campaign import Target
from simulation.fuzz.choices import HISTORY, JSON_TOKENS, VECTORS, choose, chosen, records
from simulation.fuzz.examples import body_example
from sparkreplay.errors import ExportRefused, OffsetUnreadable
from sparkreplay.export.manifest import (
    Manifest,
    ParquetPart,
    StartedPlan,
    StoreRange,
    decode_manifest,
    decode_plan,
)
from sparkreplay.export.manifest import encode as encoded_json
from sparkreplay.resend import ledger as resent
from sparkreplay.resend.errors import ResendLedgerUnusable
from sparkreplay.store.samelog import HASH_DIGITS
from sparkreplay.stream.position import StreamOffset


def record(data: bytes) -> None:
    found = decode(data)
    assert len(data) >= found.total_size
    parse_properties(found.properties)


def checkpoint(data: bytes) -> None:
    found = decode_checkpoint(data)
    assert decode_checkpoint(found.encode()).confirm_phy_offset == found.confirm_phy_offset


def consume_queue_ends(data: bytes) -> None:
    found = ends.decode_queue_ends(data)
    if found is not None:
        spans = [ends.encode_span(*each) for each in found.spans.items()]
        written = ends.encode_queue_ends(found.position, found.mark, len(spans), spans)
        assert ends.decode_queue_ends(bytes(written)) == found


def start_number(data: bytes) -> None:
    number, _ = startnumber.decode(data)
    assert 0 <= number <= startnumber.NUMBER_MAX


def timer_check(data: bytes) -> None:
    assert javatimers.decode_check(data).queue_offset >= 0


def lease(data: bytes) -> None:
    leases.decode(data)


def contract_mark(data: bytes) -> None:
    contractmark.decode(data)


def epoch_file(data: bytes) -> None:
    found = epochs.decode(data)
    assert [*epochs.decode(epochs.encode(found))] == [*found]


def binding(data: bytes) -> None:
    decode_binding(data)


def raft_entry(data: bytes) -> None:
    found = entry.decode_entry(memoryview(data), 0, 0)
    if found is not None:
        unit = entry.read_index_unit(memoryview(entry.encode_index_unit(found.entry, 0)), found.entry.index)
        assert unit is not None and unit.size == found.size
    entry.index_unit_of(memoryview(data))


def raft_snapshot(data: bytes) -> None:
    found = run_without_loop(decode_snapshot("snapshot", data))
    if not found.replaces_files:
        assert (
            run_without_loop(decode_snapshot("snapshot", run_without_loop(encode_snapshot(found)))) == found
        )


def raft_members(data: bytes) -> None:
    found = membership.decode_members(3, data)
    assert membership.decode_members(3, membership.encode_members(found)) == found


def key_values(data: bytes) -> None:
    parse_key_values("currterm", data)


def members_starts(data: bytes) -> None:
    """Start numbers of members, as a message contains them."""
    found = startnumbers.decode(data.decode("latin-1"))
    assert startnumbers.decode(startnumbers.encode(found)) == found


def event(data: bytes) -> None:
    found = events.decode(data)
    if found is not None:
        assert events.decode(events.encode(found)) == found


def queue_ends(data: bytes) -> None:
    found = [each for each in decode_queue_ends(data) if each.end > 0]
    assert decode_queue_ends(encode_queue_ends(found)) == found


def divide(data: bytes) -> None:
    found = decode_divide("divide", data)
    found = found._replace(queue_ends=tuple(each for each in found.queue_ends if each.end > 0))
    assert decode_divide("divide", encode_divide(found)) == found


def settings(data: bytes) -> None:
    found = {each.key: each.value for each in parse(data).entries}
    again = {each.key: each.value for each in parse(dump(found).encode()).entries}
    assert again == found


def resend_ledger(data: bytes) -> None:
    resent.decode_ledger("ledger", data)


def stream_offset(data: bytes) -> None:
    value = orjson.loads(data)
    found = StreamOffset.from_json(value)
    assert StreamOffset.from_json(found.to_json()) == found


def tables(data: bytes) -> None:
    """Tables, as a broker reads them at its start and a slave gets them from its master. Written again they are the same
    bytes."""
    make, text = chosen(data, TABLES)
    table, again = make(), make()
    table.decode(text)
    again.decode(table.encode())
    assert again.encode() == table.encode()


def tables_journal(data: bytes) -> None:
    """A journal of tables, whose records are read again as they were."""
    found = [*journal.records_of("journal", data)]
    again = b"".join(map(journal.framed, found))
    assert [*journal.records_of("journal", again)] == found


def store_aside(data: bytes) -> None:
    found = storeaside.decode(data)
    assert storeaside.decode(found.encode()) == found


def broker_identity(data: bytes) -> None:
    read, text = chosen(data, (identity.decode_identity, identity.decode_mark, identity.decode_temporary))
    read("brokerIdentity", text, "DefaultCluster", "broker-a")


def old_entries(data: bytes) -> None:
    unit = entry.index_header(data)
    if unit is not None:
        assert len(entrylog.decoded([unit], 0, data)) < 2


def controllers_state(data: bytes) -> None:
    into = ReplicasState()
    for _ in statesnapshot.decoded(data, into):
        pass
    once = b"".join(statesnapshot.encoded(into))
    again = ReplicasState()
    for _ in statesnapshot.decoded(once, again):
        pass
    assert b"".join(statesnapshot.encoded(again)) == once


def export_manifest(data: bytes) -> None:
    read, text = chosen(data, (decode_plan, decode_manifest))
    read("folder", text)


def vector(name: str) -> bytes:
    return (VECTORS / name).read_bytes()


def java_events() -> Iterator[bytes]:
    for line in (VECTORS / "controller" / "java-5.3.3-log.hex").read_text().split():
        yield bytes.fromhex(line)


RESENT = resent.Ledger(
    {name: {"a": 1} for name in resent.PURPOSE}, {"a": resent.SourceProgress(640, 900, {0: 700})}, 5, 1
)


ASIDE = storeaside.Aside(next(iter(storeaside.State)), f"{storeaside.PREFIX}1", 3, True)


STATE = (
    b'{"sets":1,"version":1}\n{"brokers":[[1,"127.0.0.1:1","c"]],"cluster":"C","eligible":[2],"forgotten":[3],"master":1,'
    b'"masterEpoch":2,"members":[1],"name":"broker-a","next":4,"setEpoch":5}\n'
)


RANGE = StoreRange("store", "broker-a", 0, 640, 640, 640, "checkpoint", [[1, 0]], {})


STARTED = encoded_json(StartedPlan({"topic": "t"}, [RANGE], [[0, "0", 0, 640, True]]))


MANIFEST = encoded_json(
    Manifest({"topic": "t"}, [], [[RANGE]], [ParquetPart("f", "broker-a", "t", "d", 1, 2, 3, 4, 5)])
)


MARKS = {"cluster": "C", "heads": {"0": "0" * HASH_DIGITS}, "tail": "0" * HASH_DIGITS}


OFFSET = orjson.dumps(
    {"version": 2, "sets": {"a": {"began": 0, "offset": 5, "epoch": 1, "epoch_start": 0, "log": MARKS}}}
)


MEMBERS = Members({"n0": "127.0.0.1:1", "n1": "127.0.0.1:2"}, {"n2": "127.0.0.1:3"})


SNAPSHOT = Snapshot(9, 2, b"state", Begin(5, 1, 640, 77), ((4, MEMBERS),))


SEALS = [Seal(EpochEntry(1, 0), None, 0xABCD1234), Seal(EpochEntry(3, 4_096), 1, 2)]


TABLE_BODIES = (
    TopicConfigWrapper,
    SubscriptionGroupWrapper,
    ConsumerOffsetWrapper,
    DelayOffsetWrapper,
    DeletionTable,
    QueueLockTable,
    ConsumerFilterWrapper,
    QueueEndTable,
    Stamp,
    UserTable,
    AclTable,
)


JOURNALED = [
    journal.JournalRecord(7, TableChanges(topics=[TopicConfig("orders", 8, 8)], groups_gone=["CG"])),
    journal.JournalRecord(8, TableChanges(), [journal.TookAway("topic", "orders")], "3.17"),
]


def nothing() -> None: ...


class StillClock:
    """A clock that always shows the same time, because no decoder may depend on the time."""

    def now_ms(self) -> int:
        return 1_795_256_518_702

    def monotonic_ms(self) -> int:
        return 1_000

    def work_us(self) -> int:
        return 1_000_000


CLOCK = StillClock()


TABLES: tuple[Callable[[], Any], ...] = (
    lambda: Topics(CLOCK, [], nothing, nothing),
    lambda: SubscriptionGroups(CLOCK, auto_create=True, on_change=nothing),
    ConsumerOffsets,
    DelayOffsets,
    lambda: Deletions(CLOCK, nothing),
    lambda: RebalanceLocks(CLOCK, nothing),
    lambda: ConsumerFilters(CLOCK, nothing),
    lambda: QueueEndsTable(lambda topic, queue_id, end: None),
    lambda: CopyStamp(nothing),
    lambda: Users(nothing),
    lambda: Acls(nothing),
)


DISK = [
    Target("records", record, [*records()], (RecordError,)),
    Target(
        "checkpoint", checkpoint, [Checkpoint(1, 2, 3, 4, 5).encode(), b"\0" * 4_096], (CheckpointDamaged,)
    ),
    Target(
        "ends of consume queues",
        consume_queue_ends,
        [bytes(ends.encode_queue_ends(640, 7, 1, [ends.encode_span((b"orders", 3), ends.OffsetSpan(2, 9))]))],
    ),
    Target("start number", start_number, [b"00000000000000000007-\n", b"00000000000000000007+\n"]),
    Target("timers' checkpoint", timer_check, [javatimers.CHECK.pack(5, 6, 7, 8)]),
    Target("lease", lease, [leases.Lease("spark 1", 640, 5).encode()], (leases.LeaseDamaged,)),
    Target("contract mark", contract_mark, [ContractMark(2, 640, 900).encode()], (ContractMarkDamaged,)),
    Target("epoch file", epoch_file, [epochs.encode(HISTORY), b"1\n0\n1-0\n"], (epochs.EpochFileDamaged,)),
    Target("epoch binding", binding, [Binding(SEALS, 3).encode()], (BindingDamaged,)),
    Target("raft entries on disk", raft_entry, [vector("dledger/data-00000000000000000000")[:512]]),
    Target(
        "raft snapshot",
        raft_snapshot,
        [bytes(run_without_loop(encode_snapshot(SNAPSHOT)))],
        (SnapshotDamaged, SnapshotUnknown, MembersUnknown),
    ),
    Target(
        "raft members", raft_members, [membership.encode_members(MEMBERS)], (MembersUnknown,), JSON_TOKENS
    ),
    Target(
        "raft term and checkpoint",
        key_values,
        [vector("dledger/currterm"), vector("dledger/checkpoint")],
        (BadKeyValues,),
    ),
    Target("start numbers of members", members_starts, [b"n0=17:1203;n1=18:77"]),
    Target("controller events", event, [*java_events()], (), JSON_TOKENS),
    Target(
        "divide",
        divide,
        [encode_divide(Divide(4_096, 4_000, 77, begins=1_024, queue_ends=(EmptiedQueueEnd("t", 1, 5),)))],
        (BadKeyValues, QueueEndsUnreadable),
        JSON_TOKENS,
    ),
    Target("queue ends", queue_ends, [encode_queue_ends([])], (QueueEndsUnreadable,), JSON_TOKENS),
    Target(
        "settings",
        settings,
        [b"a=1\nb : two\\\n  three\n# c\nd=\\u00e9\n"],
        (PropertiesError,),
        (b"\\u", b"\\\n", b"<!--", b"-->"),
    ),
    Target("resend ledger", resend_ledger, [RESENT.encode()], (ResendLedgerUnusable,), JSON_TOKENS),
    Target(
        "broker tables",
        tables,
        [choose(number, orjson.dumps(body_example(kind))) for number, kind in enumerate(TABLE_BODIES)],
        (BodyError,),
        JSON_TOKENS,
    ),
    Target(
        "journal of tables",
        tables_journal,
        [b"".join(map(journal.framed, JOURNALED))],
        (journal.JournalDamaged,),
        (journal.MAGIC, *JSON_TOKENS),
    ),
    Target("store aside", store_aside, [ASIDE.encode()], (StoreAsideUnreadable,)),
    Target(
        "broker identity",
        broker_identity,
        [
            choose(0, b"DefaultCluster#broker-a#3"),
            choose(1, b"DefaultCluster#broker-a#3#code"),
            choose(2, b"DefaultCluster#broker-a#3#code"),
        ],
        (identity.IdentityInvalid,),
    ),
    Target("raft entries from the disk", old_entries, [vector("dledger/data-00000000000000000000")[:512]]),
    Target("controllers' state", controllers_state, [STATE], (SnapshotUnknown,), JSON_TOKENS),
    Target(
        "export manifest",
        export_manifest,
        [choose(0, STARTED), choose(1, MANIFEST)],
        (ExportRefused,),
        JSON_TOKENS,
    ),
    Target(
        "stream offsets",
        stream_offset,
        [OFFSET],
        (OffsetUnreadable, orjson.JSONDecodeError),
        JSON_TOKENS,
    ),
]
