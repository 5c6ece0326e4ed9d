"""The check of the simulated controllers finds what it is there to find: history after history, with one thing wrong."""

from __future__ import annotations

import pytest

from controller.events import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ElectMaster, Event, encode
from remoting.bodies.replicas import SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    CleanBrokerDataHeader,
    ElectMasterHeader,
    GetReplicaInfoHeader,
)
from remoting.headers.header import Header
from simulation.controllers import entries
from simulation.controllers.asks import Ask
from simulation.controllers.check import ControllerCheck
from simulation.controllers.rules import Hearing
from simulation.controllers.setmodel import SetState
from simulation.controllers.violation import Violation

BOTH = frozenset({1, 2})
ALL_HEARD = Hearing("n0", BOTH, frozenset())


class History:
    """A check, and what a test makes it see."""

    def __init__(self) -> None:
        self.check = ControllerCheck()
        self.index = 0
        for broker_id in (1, 2):
            self.ask(apply_id(broker_id))
            self.event(ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;x"))
        self.event(ElectMaster("a", 1))

    def ask(self, request: RemotingCommand) -> Ask:
        return self.check.sent("somebody", request)

    def event(self, event: Event, hearing: Hearing | None = ALL_HEARD, kept: SetState | None = None) -> None:
        """Proposed and applied; the controller keeps what it should, unless said otherwise."""
        body = encode(event)
        if hearing is not None:
            self.check.proposing(self.index, 1, hearing)
        entry = entries.read(body)
        assert entry is not None
        after = self.check.sets.get("a")
        wanted = after.after(entry) if after else SetState()
        if not wanted.known and entry.kind == entries.APPLY_ID:
            wanted = SetState({1: entry.check_code}, {1: entry.address})
        self.check.applied("n0.1", self.index, 1, body, kept or (wanted if wanted.known else None))
        self.index += 1

    def answer(self, ask: Ask, request: RemotingCommand, code: int = 0, **ext: str) -> None:
        reply = request.reply(code)
        reply.ext = ext
        reply.body = SyncStateSet(ask.members, ask.set_epoch + 1).encode() if ask.members else None
        self.check.answered(ask, reply)
        self.check.raise_found()


def request(code: RequestCode, header: Header, body: bytes | None = None) -> RemotingCommand:
    return RemotingCommand.request(code, header, body)


def apply_id(broker_id: int, code: str = "x") -> RemotingCommand:
    header = ApplyBrokerIdHeader("a", broker_id, f"h{broker_id}:1;{code}", "c")
    return request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)


def alter(
    members: frozenset[int] = BOTH, master_id: int = 1, epoch: int = 1, set_epoch: int = 1
) -> RemotingCommand:
    header = AlterSyncStateSetHeader("a", master_id, epoch)
    body = SyncStateSet(members, set_epoch).encode()
    return request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)


def elect(broker_id: int) -> RemotingCommand:
    return request(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterHeader("a", "c", broker_id, True))


@pytest.fixture
def history() -> History:
    """Brokers 1 and 2 are registered, 1 is master of epoch 1 and the whole set."""
    return History()


def test_a_sound_history_passes(history: History) -> None:
    wanted = alter()
    ask = history.ask(wanted)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(ask, wanted, newSyncStateSetEpoch="2")
    history.ask(elect(2))
    history.event(ElectMaster("a", 2))
    history.event(ElectMaster("a", None), Hearing("n0", BOTH, frozenset({2})))
    history.event(ElectMaster("a", 2))
    assert history.check.elections == 4


@pytest.mark.parametrize(
    "asked",
    [alter(epoch=0), alter(set_epoch=0), alter(master_id=2), alter(frozenset({1}))],
    ids=["an earlier epoch", "an earlier set", "not the master", "another set"],
)
def test_an_alter_that_fits_no_ask_is_found(history: History, asked: RemotingCommand) -> None:
    history.ask(asked)
    with pytest.raises(Violation, match="^S1"):
        history.event(AlterSyncStateSet("a", BOTH))


@pytest.mark.parametrize("members", [frozenset(), frozenset({2}), frozenset({1, 9})])
def test_a_set_that_must_not_be_is_found(history: History, members: frozenset[int]) -> None:
    history.ask(alter(members))
    with pytest.raises(Violation, match="^S2"):
        history.event(AlterSyncStateSet("a", members))


def test_an_alter_of_unknown_fate_may_take_effect_later_and_a_refused_one_may_not(history: History) -> None:
    lost, refused = alter(), alter()
    history.answer(history.ask(lost), lost, ResponseCode.SYSTEM_ERROR)
    ask = history.ask(refused)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(ask, refused, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
    other = alter(frozenset({1}), set_epoch=2)
    ask = history.ask(other)
    history.event(AlterSyncStateSet("a", frozenset({1})))
    with pytest.raises(Violation, match="^R8"):
        history.answer(ask, other, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)


def test_one_event_told_to_two_askers_is_found(history: History) -> None:
    one, other = alter(), alter()
    asks = history.ask(one), history.ask(other)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(asks[0], one, newSyncStateSetEpoch="2")
    with pytest.raises(Violation, match="^R8"):
        history.answer(asks[1], other, newSyncStateSetEpoch="2")


def test_what_the_master_does_not_wait_for_is_found(history: History) -> None:
    history.check.union_of = lambda _name, _master, _epoch: frozenset({1})
    history.ask(alter())
    with pytest.raises(Violation, match="^S3"):
        history.event(AlterSyncStateSet("a", BOTH))


@pytest.mark.parametrize("successor", [2, None])
def test_a_master_that_is_heard_is_replaced_for_an_operator_alone(
    history: History, successor: int | None
) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    with pytest.raises(Violation, match="^H1"):
        history.event(ElectMaster("a", successor))


def test_an_election_outside_the_set_is_found_and_an_unclean_one_passes(history: History) -> None:
    history.check.unclean = True
    history.event(ElectMaster("a", 2), Hearing("n0", BOTH, frozenset({1})))
    history.check.unclean = False
    with pytest.raises(Violation, match="^M4"):
        history.event(ElectMaster("a", 1), Hearing("n0", BOTH, frozenset({2})))


def test_the_election_of_one_who_is_not_heard_is_found(history: History) -> None:
    history.event(ElectMaster("a", None), Hearing("n0", BOTH, frozenset({1})))
    with pytest.raises(Violation, match="^M4"):
        history.event(ElectMaster("a", 1), Hearing("n0", frozenset({2}), frozenset({1})))


def test_an_epoch_spent_on_nobody_or_on_the_same_master_is_found(history: History) -> None:
    with pytest.raises(Violation, match="^M1"):
        history.event(ElectMaster("a", 1))
    history.event(ElectMaster("a", None), Hearing("n0", BOTH, frozenset({1})))
    with pytest.raises(Violation, match="^M1"):
        history.event(ElectMaster("a", None))


def test_an_id_with_two_owners_is_found(history: History) -> None:
    history.ask(apply_id(2, "another"))
    with pytest.raises(Violation, match="^B1"):
        history.event(ApplyBrokerId("c", "a", 2, "h2:1", "h2:1;another"))


def test_the_cleaning_of_one_who_lives_is_found(history: History) -> None:
    history.ask(request(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataHeader("a", "c", "2")))
    with pytest.raises(Violation, match="^B2"):
        history.event(CleanBrokerData("a", frozenset({2})))


def test_an_entry_that_nobody_proposed_and_a_state_that_it_does_not_make_are_found(history: History) -> None:
    history.ask(alter())
    with pytest.raises(Violation, match="^R8"):
        history.event(AlterSyncStateSet("a", BOTH), hearing=None)
    with pytest.raises(Violation, match="^R5"):
        history.event(AlterSyncStateSet("a", BOTH), kept=history.check.state("a"))


@pytest.mark.parametrize(("epoch", "stands"), [("2", True), ("1", False)])
def test_a_read_tells_of_a_moment_after_it_began(history: History, epoch: str, stands: bool) -> None:
    history.event(ElectMaster("a", None), Hearing("n0", BOTH, frozenset({1})))
    reading = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader("a"))
    ask = history.ask(reading)
    reply = reading.reply()
    reply.ext = {"masterEpoch": epoch} | ({} if stands else {"masterBrokerId": "1"})
    reply.body = SyncStateSet(frozenset({1}), 1).encode()
    history.check.answered(ask, reply)
    if stands:
        history.check.raise_found()
    else:
        with pytest.raises(Violation, match="^R10"):
            history.check.raise_found()
