"""The outcome of a SyncStateSet proposal, by the controller's answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from broker.role.controllercalls import ControllerCalls
from broker.role.identity import Identity
from broker.role.membership import Membership
from controller.commands import alter_sync_state_set
from controller.heartbeats import Heartbeats
from controller.state import ReplicasState
from ha.syncstateset import Alter, AlterNotSent, AlterRefused, AlterUnknown, AnnouncementNotNeeded, Applied
from remoting.bodies.replicas import SyncStateSetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand

ALTER = Alter(frozenset({1, 2}), set_epoch=7, master_epoch=4, members_min=2)


def calls() -> ControllerCalls:
    membership = Membership(cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=5_000, nonce="7f")
    membership.restore(Identity("DefaultCluster", "broker-a", 1))
    unused = cast(Any, None)
    return ControllerCalls(membership, *[unused] * 7, incarnation=7)


def answer(code: int, body: bytes | None = None) -> RemotingCommand:
    return calls().alter(ALTER, 0).reply(code, body=body)


def test_a_proposal_names_the_set_and_the_epochs_it_is_based_on() -> None:
    command = calls().alter(ALTER, 5)
    assert command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    assert (command.ext["masterBrokerId"], command.ext["masterEpoch"]) == ("1", "4")
    assert SyncStateSetBody.decode(command.body) == SyncStateSetBody(frozenset({1, 2}), 7)
    assert command.ext["minInSyncReplicas"] == "2"


def test_success_returns_the_applied_set() -> None:
    body = SyncStateSetBody(frozenset({1, 2}), 8).encode()
    assert calls().outcome(ALTER, answer(ResponseCode.SUCCESS, body)) == Applied(frozenset({1, 2}), 8)


@pytest.mark.parametrize(
    "code", [ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER]
)
def test_a_newer_master_epoch_leaves_the_outcome_of_an_alter_unknown(code: int) -> None:
    assert calls().outcome(ALTER, answer(code)) == AlterUnknown()


@pytest.mark.parametrize(
    "code", [ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE]
)
def test_an_alter_that_changed_nothing_is_refused_and_may_carry_the_newer_set(code: int) -> None:
    assert calls().outcome(ALTER, answer(code)) == AlterRefused()
    body = SyncStateSetBody(frozenset({1}), 8).encode()
    assert calls().outcome(ALTER, answer(code, body)) == AlterRefused(frozenset({1}), 8)


def test_upstreams_controllers_refuse_a_set_that_does_not_change() -> None:
    remark = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
    failed = calls().alter(ALTER, 0).reply(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, remark)
    assert calls().outcome(replace(ALTER, same_members=True), failed) == AnnouncementNotNeeded()


def test_a_refusal_for_an_unknown_set_is_not_attributed_to_an_upstream_controller() -> None:
    decision = alter_sync_state_set(
        ReplicasState(), Heartbeats().at(0, 0), broker_name="broker-a", master_id=1, master_epoch=4,
        members=ALTER.members, set_epoch=7, members_min=2,
    )  # fmt: skip
    unknown = calls().alter(ALTER, 0).reply(decision.code, decision.remark)
    assert unknown.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert calls().outcome(replace(ALTER, same_members=True), unknown) == AlterUnknown()


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    ],
)
def test_an_ambiguous_answer_leaves_the_outcome_of_an_alter_unknown(code: int) -> None:
    assert calls().outcome(ALTER, answer(code)) == AlterUnknown()


def test_an_alter_answered_by_a_follower_counts_as_not_sent() -> None:
    assert calls().outcome(ALTER, answer(ResponseCode.CONTROLLER_NOT_LEADER)) == AlterNotSent()
