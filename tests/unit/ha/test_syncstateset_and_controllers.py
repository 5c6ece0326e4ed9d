"""A master's SyncStateSet and the controllers' rules together, while alters are late or lost and the minimum
changes.

Invariant: every broker that controllers could elect, a member or an eligible one, holds all acknowledged
data."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from controller.commands import alter_sync_state_set
from controller.electpolicy import LiveReport
from controller.eligibility import after_election
from controller.events import ApplyBrokerId, ElectMaster
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.state import ReplicasState, SyncState
from ha.slaveprogress import SetLimits
from ha.syncstateset import (
    Action,
    Alter,
    AlterNotSent,
    AlterOutcome,
    AlterRefused,
    AlterUnknown,
    Applied,
    SyncStateSet,
)
from remoting.bodies import replicas
from remoting.codes import ResponseCode
from tests.support.longtests import long

MASTER = 1
STEPS = 400
EVENTS = [
    *("append", "ack", "ack", "link", "silence", "minimum"),
    *("deliver", "deliver", "late", "elected", "observe"),
]
LIMITS = SetLimits(
    not_caught_up_ms_max=3_000,
    disconnected_ms_max=1_000,
    join_lag_ms_max=500,
    join_ms_max=2_000,
    join_stall_ms_max=1_000,
    check_ms=500,
    alter_retry_ms=500,
)


class Story:
    """One master that stays master, its slaves and the controllers; all events are drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000
        self.ids = range(1, 2 + seed % 3 + 1)
        self.state = ReplicasState()
        for broker_id in self.ids:
            self.state.apply(ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;7"))
        self.state.apply(ElectMaster("a", MASTER))
        self.members_min = self.random.choice([1, 2, 3])
        self.ends = dict.fromkeys(self.ids, 0)
        self.linked: set[int] = set()
        self.silent: set[int] = set()
        self.sent: list[Alter] = []
        self.held_up: list[Alter] = []
        self.answered = 0
        self.core = SyncStateSet(
            own_id=MASTER,
            members=frozenset({MASTER}),
            set_epoch=self.kept.set_epoch,
            master_epoch=self.kept.master_epoch,
            epoch_start=0,
            log_end=0,
            confirm_offset=0,
            members_min=self.members_min,
            limits=LIMITS,
            now_ms=self.now_ms,
        )
        self.perform(self.core.begin(self.now_ms))

    @property
    def kept(self) -> SyncState:
        return self.state.sync_states["a"]

    def perform(self, actions: Iterable[Action]) -> None:
        self.sent += [action for action in actions if isinstance(action, Alter)]

    def live(self) -> Liveness:
        table = Heartbeats()
        for broker_id in self.ids:
            if broker_id not in self.silent:
                said = Heartbeat("", 10_000, LiveReport(1, 0, 0, self.members_min))
                table.heard(("c", "a", broker_id), broker_id, said, self.now_ms)
        return table.at(self.now_ms, self.now_ms)

    def judged(self, alter: Alter) -> AlterOutcome:
        decision = alter_sync_state_set(
            self.state,
            self.live(),
            broker_name="a",
            master_id=MASTER,
            master_epoch=alter.master_epoch,
            members=alter.members,
            set_epoch=alter.set_epoch,
            members_min=alter.members_min,
        )
        for event in decision.events:
            self.state.apply(event)
        self.check()
        if decision.body is not None:
            body = replicas.SyncStateSetBody.decode(decision.body)
            kind = Applied if decision.code == ResponseCode.SUCCESS else AlterRefused
            return kind(body.sync_state_set, body.sync_state_set_epoch)
        return AlterUnknown()

    def check(self) -> None:
        self.answered = max(self.answered, self.core.acked_end())
        for broker_id in self.kept.members | self.kept.eligible:
            assert self.ends[broker_id] >= self.answered, (broker_id, self.ends, self.answered, self.kept)

    def step(self) -> None:
        core, chance = self.core, self.random
        self.now_ms += chance.choice([1, 50, 200, 600])
        slave = chance.choice(self.ids[1:])
        match chance.choice(EVENTS):
            case "append":
                self.ends[MASTER] += 10
                self.perform(core.log_grew(self.ends[MASTER]))
            case "ack" if slave in self.linked:
                end = self.ends[MASTER]
                self.ends[slave] = chance.choice([end, max(self.ends[slave], end - 10)])
                caught_up_ms = self.now_ms if self.ends[slave] == end else None
                self.perform(core.acked(slave, self.ends[slave], caught_up_ms, self.now_ms))
            case "link" if slave in self.linked:
                self.linked.discard(slave)
                self.perform(core.disconnected(slave, self.now_ms))
            case "link":
                self.linked.add(slave)
                self.perform(core.connected(slave, excluded=None))
            case "silence":
                self.silent ^= {slave}
            case "minimum":
                self.members_min = chance.choice([1, 2, 3])
                self.perform(core.members_min_is(self.members_min, self.now_ms))
            case "deliver" if self.sent:
                alter = self.sent.pop(0)
                outcome: AlterOutcome = AlterUnknown()
                match chance.choice(["answered", "answered", "unanswered", "late", "unsent"]):
                    case "answered":
                        outcome = self.judged(alter)
                    case "unanswered":
                        self.judged(alter)
                    case "late":
                        self.held_up.append(alter)
                    case "unsent":
                        outcome = AlterNotSent()
                assert core.why_untrue(alter, outcome) is None, "a response of our controllers is accepted"
                self.perform(core.alter_ended(alter, outcome, self.now_ms))
            case "late" if self.held_up:
                self.judged(self.held_up.pop(chance.randrange(len(self.held_up))))
            case "elected" if chance.random() < 0.1:
                self.elected_again()
            case "observe":
                self.perform(core.observe(self.kept.members, self.kept.set_epoch, self.now_ms))
        self.perform(core.tick(self.now_ms))
        self.check()

    def elected_again(self) -> None:
        self.state.apply(ElectMaster("a", None))
        before = self.kept
        eligible = after_election(before.members, before.eligible, MASTER, self.members_min)
        self.state.apply(ElectMaster("a", MASTER, eligible))
        kept = self.kept
        self.perform(
            self.core.epoch_began(
                kept.master_epoch, self.ends[MASTER], kept.members, kept.set_epoch, self.now_ms
            )
        )


@pytest.mark.parametrize("first", [0, *long(range(500, 2_000, 500))])
def test_every_electable_broker_holds_all_acknowledged_data(first: int) -> None:
    answered = 0
    for seed in range(first, first + 500):
        story = Story(seed)
        for _ in range(STEPS):
            story.step()
        answered += story.answered
    assert answered, "some data was acknowledged"
