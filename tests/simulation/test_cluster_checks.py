"""The checks of a simulated cluster find each violation."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest

from broker.role.identity import IDENTITY_FILE, Identity
from broker.role.membership import ReplicaRole
from broker.tables.delayoffsets import DelayOffsets
from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, Event, encode
from controller.state import SyncState
from controller.statemachine import ReplicasStateMachine
from dledger.node.node import DLedgerNode
from epochfile.history import EpochHistory
from messagestore import checkpoint
from messagestore.log.commitlog import FOLDER as LOG
from messagestore.record import Message, check
from messagestore.record import encode as record_bytes
from messagestore.store.messagestore import MessageStore
from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from mqclient.message import StoredMessage
from simulation.checkers.appends import Append, Appends
from simulation.checkers.check import ClusterCheck
from simulation.checkers.grants import Grants
from simulation.checkers.logmatch import logs_match
from simulation.cluster.looks import CLUSTER, BrokerLook, ControllerLook
from simulation.cluster.members import BROKER_SET
from simulation.cluster.world import ClusterWorld
from simulation.faults.damage import FlippedBit
from simulation.faults.rot import old_bytes
from simulation.kernel.features import Asked
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.workloads.abandoned import Abandoned

SEGMENT_BYTES = 16_384
STORED_MS = 1_000
DRAWS = 40


@dataclass
class ScriptedBroker:
    """The part of a broker that the checks read: log, epochs, and its state as master."""

    broker_id: int
    log: bytes
    epochs: list[tuple[int, int]]
    role: ReplicaRole = ReplicaRole.SLAVE
    epoch: int = 0  # accepted; the newest of `epochs` unless given
    counted: frozenset[int] = field(default_factory=frozenset)
    acked: int = 0

    @property
    def look(self) -> BrokerLook:
        store = SimpleNamespace(
            min_offset=lambda: 0,
            max_offset=lambda: len(self.log),
            read=lambda offset, size: memoryview(self.log)[offset : offset + min(size, 4)],
        )
        epoch = self.epoch or self.epochs[-1][0]
        return BrokerLook(
            name=f"broker-{self.broker_id}",
            incarnation=1,
            broker_id=self.broker_id,
            role=self.role,
            master_epoch=epoch,
            epoch=epoch,
            history=EpochHistory(self.epochs),
            counted=self.counted,
            acked_end=self.acked,
            store=cast(MessageStore, store),
            delays=DelayOffsets(),
        )


def master(acked: int = 0, epoch: int = 1) -> ScriptedBroker:
    return ScriptedBroker(1, b"x" * 100, [(epoch, 0)], ReplicaRole.MASTER, epoch, frozenset({1, 2}), acked)


def looked(grants: Grants, *brokers: ScriptedBroker) -> None:
    grants.look([broker.look for broker in brokers])


def test_a_master_without_an_election_is_found() -> None:
    grants = Grants({1: 1})
    looked(grants, master())
    with pytest.raises(Violation, match="M2: broker 1 acts as master of epoch 2, which no election gave it"):
        looked(grants, master(epoch=2))


def test_an_epoch_given_to_two_masters_is_found() -> None:
    grants = Grants({1: 1})
    with pytest.raises(Violation, match="M1"):
        grants.granted(1, 2)


def test_an_old_master_may_acknowledge_data_held_by_a_member_that_left_it() -> None:
    grants = Grants({1: 1})
    heard = ScriptedBroker(2, b"x" * 100, [(1, 0), (2, 80)])
    looked(grants, master(60), heard)
    looked(grants, master(80), heard)


@pytest.mark.parametrize(
    "gone_on",
    [
        ScriptedBroker(2, b"x" * 100, [(1, 0), (2, 80)]),
        ScriptedBroker(2, b"x" * 80, [(1, 0)], epoch=2),
    ],
    ids=["has bytes of the newer epoch", "has only heard of it"],
)
def test_an_acknowledgement_beyond_the_log_of_a_member_that_left_is_found(gone_on: ScriptedBroker) -> None:
    with pytest.raises(Violation, match="M2: master 1 of epoch 1 may answer what ends at 81"):
        looked(Grants({1: 1}), master(81), gone_on)


def test_a_member_that_still_copies_from_the_master_it_left_is_found() -> None:
    grants = Grants({1: 1})
    looked(grants, master(60), ScriptedBroker(2, b"x" * 80, [(1, 0)], epoch=2))
    with pytest.raises(Violation, match="M2: master 1 of epoch 1 may answer what ends at 90"):
        looked(grants, master(90), ScriptedBroker(2, b"x" * 90, [(1, 0)], epoch=2))


@pytest.mark.parametrize(
    "between, led, found", [({}, 0, False), ({2: 1}, 2, False), ({2: 3}, 0, False), ({2: 3}, 2, True)]
)
def test_a_re_elected_master_may_count_members_that_know_the_newer_epoch(
    between: dict[int, int], led: int, found: bool
) -> None:
    """Unless another broker has led meanwhile: `led` is the epoch of a third broker, which is down since."""
    grants = Grants({1: 1, **between, 3: 1})
    knows = ScriptedBroker(2, b"x" * 90, [(1, 0)], epoch=3)
    third = ScriptedBroker(3, b"x" * 80, [(1, 0), (led, 80)] if led else [(1, 0)])
    looked(grants, master(60), ScriptedBroker(2, b"x" * 80, [(1, 0)], epoch=3), third)
    with pytest.raises(Violation, match="M2") if found else nullcontext():
        looked(grants, master(90), knows)


def test_a_later_loss_of_data_does_not_void_an_old_acknowledgement() -> None:
    grants = Grants({1: 1})
    looked(grants, master(80), ScriptedBroker(2, b"x" * 80, [(1, 0)]))
    looked(grants, master(80), ScriptedBroker(2, b"x" * 40, [(1, 0)], epoch=2))


def matched(one: ScriptedBroker, other: ScriptedBroker, confirmed_end: int = 0) -> None:
    logs_match([one.look, other.look], confirmed_end)


def test_logs_may_differ_where_their_epochs_differ() -> None:
    matched(ScriptedBroker(1, b"aabbbb", [(1, 0), (2, 2)]), ScriptedBroker(2, b"aacc", [(1, 0), (3, 2)]))
    matched(ScriptedBroker(1, b"aabbbb", [(1, 0), (2, 2)]), ScriptedBroker(2, b"aac", [(1, 0)]))


def test_one_epoch_with_two_contents_is_found_above_the_confirm_offset() -> None:
    one = ScriptedBroker(1, b"aabbbbbbx", [(1, 0), (2, 2)])
    matched(one, ScriptedBroker(2, b"aabbbbbb", [(1, 0), (2, 2)]))
    with pytest.raises(
        Violation, match=r"L1: broker-1 and broker-2 both have epoch 2 from 2 on and differ in \[6, 9\)"
    ):
        matched(one, ScriptedBroker(2, b"aabbbbbby", [(1, 0), (2, 2)]), confirmed_end=2)


def leads(check: ClusterCheck, broker: ScriptedBroker) -> None:
    check.holds_what_was_confirmed(broker.look)


def test_a_master_of_the_newest_epoch_without_confirmed_data_is_found() -> None:
    check = ClusterCheck(newest=(2, 5), confirmed=bytearray(b"x" * 100))
    leads(check, master(epoch=2))
    leads(
        check, ScriptedBroker(1, b"x" * 80, [(1, 0)], ReplicaRole.MASTER)
    )  # deposed, without knowing it yet
    with pytest.raises(
        Violation, match="C6: broker 1 leads epoch 2 with a log that ends at 80, 100 was confirmed"
    ):
        leads(check, ScriptedBroker(1, b"x" * 80, [(2, 0)], ReplicaRole.MASTER))


WRITTEN = Append(broker_id=1, epoch=3, start=100, end=200)
MASTERS = {3: 1, 4: 2, 5: 1}


@pytest.mark.parametrize(
    ("began", "may_be_gone"),
    [
        ({4: [(3, 0), (4, 100)], 5: [(3, 0), (4, 100), (5, 120)]}, True),
        ({4: [(2, 0), (4, 300)]}, True),
        ({4: [(3, 0), (4, 200)]}, False),
        ({5: [(3, 0), (5, 100)]}, False),
        ({4: [(3, 0), (4, 200)], 5: [(3, 0), (5, 150)]}, False),
        ({}, False),
    ],
    ids=[
        "another was elected without it",
        "another was elected whose log had gone another way",
        "another was elected with it",
        "its own master began again without it",
        "its own master dropped it after another had it",
        "nobody was elected since",
    ],
)
def test_data_of_a_lone_master_may_be_lost_only_by_the_election_of_another(
    began: dict[int, list[tuple[int, int]]], may_be_gone: bool
) -> None:
    histories = {epoch: EpochHistory(entries) for epoch, entries in began.items()}
    appends = Appends({("facts", "k"): [WRITTEN]}, histories)
    assert appends.may_be_gone("facts", "k", MASTERS) is may_be_gone


@pytest.mark.parametrize(("lacked", "may_be_gone"), [({5}, True), ({4}, False)])
def test_data_of_a_lone_master_may_be_lost_if_it_leads_again_after_losing_data(
    lacked: set[int], may_be_gone: bool
) -> None:
    histories = {4: EpochHistory([(3, 0), (4, 200)]), 5: EpochHistory([(3, 0), (5, 100)])}
    appends = Appends({("facts", "k"): [WRITTEN]}, histories, lacked)
    assert appends.may_be_gone("facts", "k", MASTERS) is may_be_gone


def state(members: frozenset[int], eligible: frozenset[int] = frozenset()) -> SyncState:
    return SyncState(1, 1, members, 1, eligible)


def test_a_learner_that_is_in_sync_eligible_or_counted_is_found() -> None:
    check = ClusterCheck(learners={3})
    check.look_at_state(state(frozenset({1, 2})))
    with pytest.raises(Violation, match="S6"):
        check.look_at_state(state(frozenset({1, 3})))
    with pytest.raises(Violation, match="S6"):
        check.look_at_state(state(frozenset({1}), frozenset({3})))
    counts = replace(master(), counted=frozenset({1, 3}))
    with pytest.raises(Violation, match="S6"):
        check.look_at_broker(counts.look)


def test_an_unclean_election_is_found_if_it_is_switched_off() -> None:
    with pytest.raises(Violation, match="M4: epoch 2 was given to 3"):
        Grants().elected_from_outside(2, 3, frozenset({1, 2}))
    unclean = ClusterCheck(grants=Grants(unclean_allowed=True))
    assert not unclean.forked
    unclean.grants.elected_from_outside(2, 3, frozenset({1, 2}))
    assert unclean.forked and not unclean.grants.elected_incomplete


def test_an_uncleanly_elected_master_may_miss_data_that_it_lost_before() -> None:
    """Cluster 372365310558236: under contract A it alone had acknowledged that data."""
    grants = Grants(unclean_allowed=True, may_have_lost_memory=lambda broker_id: broker_id == 3)
    for broker_id in (2, 3):
        grants.elected_from_outside(broker_id, broker_id, frozenset({1}))
    assert (grants.unclean, grants.elected_incomplete) == ({2, 3}, {3})


@pytest.mark.parametrize(
    ("allowed", "incomplete", "unclean"), [(True, {2}, True), (True, {1}, False), (False, {2}, False)]
)
def test_a_member_that_lost_data_is_elected_only_with_unclean_elections(
    allowed: bool, incomplete: set[int], unclean: bool
) -> None:
    asked: list[tuple[int, frozenset[int]]] = []

    def is_incomplete(broker_id: int, electable: frozenset[int]) -> bool:
        asked.append((broker_id, electable))
        return broker_id in incomplete

    check = ClusterCheck(grants=Grants(unclean_allowed=allowed, is_incomplete=is_incomplete))
    apply = check.grants.noting()
    events: list[Event] = [
        ApplyBrokerId(CLUSTER, BROKER_SET, 1, "10.0.2.1:10911", "one"),
        ElectMaster(BROKER_SET, 1),
        AlterSyncStateSet(BROKER_SET, frozenset({1, 2})),
        ElectMaster(BROKER_SET, 2, frozenset({1})),
    ]
    for _ in range(2):  # two controllers
        machine = ReplicasStateMachine()
        for index, event in enumerate(events):
            apply(machine, index, encode(event))
        incomplete.clear()  # before the other controller applies it
    assert check.forked is unclean
    assert asked == ([(2, frozenset({1, 2}))] if allowed else [])


def test_a_bit_is_flipped_in_the_body_and_not_in_an_equal_byte_of_the_header() -> None:
    """In a record without its own CRC a damaged header is not detected, so the fault spares it."""
    cluster = ClusterWorld(5)
    node = cluster.machines.brokers[0]
    flipped = FlippedBit(cluster.machines)
    record = record_bytes(short_message(physical_offset=0))
    assert record.count(b"x") == 2
    with cluster.world:
        put_store(node, record, confirmed=len(record))
        places = {at for _ in range(DRAWS) for _, at in flipped.vouched_bodies(node)}
        put_store(node, record, confirmed=SEGMENT_BYTES)
        places |= {rot.at for seed in range(DRAWS) for rot in old_bytes(node, random.Random(seed))}
    assert len(places) > 1
    for at in places:
        damaged = bytearray(record)
        damaged[at] ^= 1
        assert check(damaged, 0, SEGMENT_BYTES, 0) < 0, at


def short_message(physical_offset: int) -> Message:
    """A message whose body is one byte that its born timestamp contains too."""
    host = bytes(8)
    return Message(
        "t", 0, 0, physical_offset, 0, 0, 0, 0, ord("x"), host, STORED_MS, host, 0, 0, b"x", b"K\x01v\x02"
    )


def put_store(node: Node, record: bytes, *, confirmed: int) -> None:
    """Two segments with a record each, and their checkpoint."""
    synced_ms = STORED_MS + 2 * checkpoint.TIMESTAMP_MARGIN_MS
    vouched = checkpoint.Checkpoint(synced_ms, synced_ms, synced_ms, 0, confirmed)
    for start, data in ((0, record), (SEGMENT_BYTES, record_bytes(short_message(SEGMENT_BYTES)))):
        node.disk.put(f"{LOG}/{start:020}", data.ljust(SEGMENT_BYTES, b"\0"))
    node.disk.put(checkpoint.FILE, vouched.encode())


@pytest.mark.parametrize(
    ("heard", "asked_for", "excused"),
    [
        (set(), False, True),
        ({1}, False, True),
        ({1, 2}, False, False),
        ({1, 2}, True, True),
        ({1, 3}, False, True),
    ],
    ids=[
        "nobody is heard",
        "only itself",
        "another is_incomplete nothing",
        "an operator asked for it",
        "a stranger",
    ],
)
def test_a_member_that_lost_data_is_elected_as_the_last_or_by_an_operator(
    heard: set[int], asked_for: bool, excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = ClusterWorld(8, asked=Asked.to_play(["unclean"])).machines
    leading = ControllerLook(
        cast(DLedgerNode, SimpleNamespace(is_active=True)),
        None,
        frozenset(),
        lambda broker_id: broker_id in heard,
    )
    monkeypatch.setattr(machines, "controller_looks", lambda: [leading])
    with machines.world:
        machines.brokers[0].disk.put(IDENTITY_FILE, Identity(CLUSTER, BROKER_SET, 1).encode())
        assert not machines.elected_though_incomplete(1, frozenset({1, 2}))
        machines.check.forgetful.add(machines.brokers[0].name)
        if asked_for:
            machines.asked_for_ms[1] = machines.world.now_ms
        assert machines.elected_though_incomplete(1, frozenset({1, 2})) is excused


def test_copies_are_counted_except_those_of_a_master_before_an_unclean_election() -> None:
    """Cluster seed 710003: the slave that had acknowledged to it was truncated to the log of the new master."""
    check = ClusterCheck()
    check.newest, check.members_min = (2, 1), 2
    with pytest.raises(Violation, match=r"C: sends below 80 may be answered, brokers \[1\] hold them"):
        check.enough_copies(master(80).look)
    check.grants.unclean.add(2)
    check.enough_copies(master(80).look)
    with pytest.raises(Violation, match="C: sends below 80"):
        check.enough_copies(master(80, epoch=2).look)


def transacted(topic: str, at_ms: int, body: bytes = b"x", **properties: str) -> StoredMessage:
    """A record of the transaction with the key k."""
    properties = {"KEYS": "k", "REAL_TOPIC": "deals", **properties}
    return StoredMessage(topic, 0, 0, 0, body, properties, 0, 0, 0, "h:1", at_ms, "h:1", 0, 0, 0)


@pytest.mark.parametrize(
    ("given_up", "found"),
    [
        ([transacted(CHECKED_TOO_OFTEN_TOPIC, 29_500)], None),
        ([transacted(CHECKED_TOO_OFTEN_TOPIC, 9_000, TRANSACTION_CHECK_TIMES="15")], None),
        (
            [transacted(CHECKED_TOO_OFTEN_TOPIC, 29_000)],
            "E5: k was given up after 28000 ms and 0 checks",
        ),
        ([transacted(CHECKED_TOO_OFTEN_TOPIC, 9_000, TRANSACTION_CHECK_TIMES="14")], "E5: k was given up"),
        ([transacted(CHECKED_TOO_OFTEN_TOPIC, 99_000, b"y")], "E4: k was given up as "),
        (
            [transacted(CHECKED_TOO_OFTEN_TOPIC, 99_000, REAL_TOPIC="z")],
            "E4: k was given up as ",
        ),
        ([], "E4: .*k.* have no end, and were not given up"),
    ],
)
def test_an_abandoned_transaction_is_dropped_unchanged_after_its_time(
    given_up: list[StoredMessage], found: str | None
) -> None:
    abandoned = Abandoned(1, 30_000, plays=True)
    abandoned.sent["k"] = 2363233923  # CRC-32 of x
    ever = [transacted(HALF_TOPIC, 1_000), *given_up]
    with nullcontext() if found is None else pytest.raises(Violation, match=found):
        abandoned.judge(ever, spread_ms=1_500)


def test_too_many_checks_and_a_missing_acknowledged_transaction_are_found() -> None:
    abandoned = Abandoned(1, 30_000, plays=True)
    abandoned.asked["k"] = 15
    abandoned.judge([], 0)
    abandoned.asked["k"] = 16
    with pytest.raises(Violation, match="E5: k was asked for 16 times"):
        abandoned.judge([], 0)
    abandoned = Abandoned(1, 30_000, plays=True)
    abandoned.acknowledged.add("k")
    with pytest.raises(Violation, match="E4: .*k.* were acknowledged, and are nowhere"):
        abandoned.judge([], 0)
