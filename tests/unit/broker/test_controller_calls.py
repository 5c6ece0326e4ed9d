"""What a controller's answer says of a SyncStateSet proposal."""

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
from ha.syncstateset import Alter, AlterNotSent, AlterRefused, AlterUnknown, Applied, NotKept
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


def test_a_proposal_names_the_set_and_the_epochs_that_it_stands_on() -> None:
    command = calls().alter(ALTER, 5)
    assert command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    assert (command.ext["masterBrokerId"], command.ext["masterEpoch"]) == ("1", "4")
    assert SyncStateSetBody.decode(command.body) == SyncStateSetBody(frozenset({1, 2}), 7)
    assert command.ext["minInSyncReplicas"] == "2"


def test_success_brings_the_set_that_counts() -> None:
    body = SyncStateSetBody(frozenset({1, 2}), 8).encode()
    assert calls().fate(ALTER, answer(ResponseCode.SUCCESS, body)) == Applied(frozenset({1, 2}), 8)


@pytest.mark.parametrize(
    "code", [ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER]
)
def test_a_newer_epoch_of_the_master_says_nothing_of_what_was_decided_before_it(code: int) -> None:
    assert calls().fate(ALTER, answer(code)) == AlterUnknown()


@pytest.mark.parametrize(
    "code", [ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE]
)
def test_a_verdict_that_left_the_set_as_it_was_is_a_refusal_and_may_tell_its_new_epoch(code: int) -> None:
    assert calls().fate(ALTER, answer(code)) == AlterRefused()
    body = SyncStateSetBody(frozenset({1}), 8).encode()
    assert calls().fate(ALTER, answer(code, body)) == AlterRefused(frozenset({1}), 8)


def test_upstreams_controllers_refuse_a_set_that_does_not_change() -> None:
    remark = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
    failed = calls().alter(ALTER, 0).reply(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, remark)
    assert calls().fate(replace(ALTER, same_members=True), failed) == NotKept()


def test_a_set_that_nobody_knows_any_more_is_not_taken_for_one_of_upstreams_controllers() -> None:
    decision = alter_sync_state_set(
        ReplicasState(), Heartbeats().at(0, 0), broker_name="broker-a", master_id=1, master_epoch=4,
        members=ALTER.members, set_epoch=7, members_min=2,
    )  # fmt: skip
    unknown = calls().alter(ALTER, 0).reply(decision.code, decision.remark)
    assert unknown.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert calls().fate(replace(ALTER, same_members=True), unknown) == AlterUnknown()


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    ],
)
def test_an_answer_that_leaves_the_outcome_open_says_nothing(code: int) -> None:
    assert calls().fate(ALTER, answer(code)) == AlterUnknown()


def test_a_follower_judges_nothing() -> None:
    assert calls().fate(ALTER, answer(ResponseCode.CONTROLLER_NOT_LEADER)) == AlterNotSent()
