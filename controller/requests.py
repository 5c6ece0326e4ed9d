"""Decoding of requests into commands.

Invariant: a request's header and body are read and checked completely before any decision. A malformed request raises
HeaderError or BodyError, which is answered with SYSTEM_ERROR (1). Pure."""

from __future__ import annotations

from collections.abc import Callable

from controller import commands, elections, resync
from controller.decision import Decision
from controller.eligibility import UPSTREAM
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from remoting.bodies.body import REQUEST_BYTES_MAX
from remoting.bodies.replicas import SyncStateSetBody
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.fastjson import REQUEST_DIALECT_MAX, FastJsonError, loads
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    CleanBrokerDataHeader,
    ElectMasterHeader,
    GetNextBrokerIdHeader,
    GetReplicaInfoHeader,
    GiveUpReplicaHeader,
    RegisterBrokerToControllerHeader,
)

SET_BYTES_MAX = 64 << 10
"""Limit of the body with a SyncStateSet; it has room for thousands of members."""

Decide = Callable[[ReplicasState, Liveness], Decision]
"""A decoded command: called with state and liveness, it returns the decision."""


def broker_name_of(request: RemotingCommand) -> str:
    """The broker set of a decoded command."""
    return request.ext["brokerName"]


def alter_sync_state_set(request: RemotingCommand) -> Decide:
    header = AlterSyncStateSetHeader.from_ext(request.ext)
    body = SyncStateSetBody.from_request(request.body, bytes_max=SET_BYTES_MAX)
    return lambda state, live: commands.alter_sync_state_set(
        state,
        live,
        broker_name=header.broker_name,
        master_id=header.master_broker_id,
        master_epoch=header.master_epoch,
        members=body.sync_state_set,
        set_epoch=body.sync_state_set_epoch,
        members_min=max(UPSTREAM, header.min_in_sync_replicas),
    )


def elect_master(request: RemotingCommand, unclean: Callable[[], bool]) -> Decide:
    """Decode CONTROLLER_ELECT_MASTER. `unclean()` returns whether unclean election is on. It is called when the election is
    held, because the setting can change until then."""
    header = ElectMasterHeader.from_ext(request.ext)
    return lambda state, live: elections.elect_master(
        state,
        live,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        designate=header.designate_elect,
        unclean=unclean(),
    )


def register_broker(request: RemotingCommand, *, is_late: bool = False) -> Decide:
    header = RegisterBrokerToControllerHeader.from_ext(request.ext)
    return lambda state, live: commands.register_broker(
        state,
        live,
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_address,
        check_code=header.register_check_code,
        process=commands.Process(
            header.start_number, header.incarnation, header.register_check_code is not None
        ),
        is_late=is_late,
    )


def replica_info(header: GetReplicaInfoHeader, other_address: str | None) -> Decide:
    return lambda state, live: commands.replica_info(
        state,
        broker_name=header.broker_name,
        asked_by=header.broker_id,
        check_code=header.register_check_code,
        address=header.broker_address,
        incarnation=header.incarnation,
        other_address=other_address,
    )


def sync_state_data(names: list[str]) -> Decide:
    return lambda state, live: commands.sync_state_data(state, live, broker_names=names)


def broker_names(request: RemotingCommand) -> list[str]:
    """The broker sets named in a body, a JSON array. Raises BodyError."""
    if len(request.body or b"") > REQUEST_BYTES_MAX:
        raise BodyError(f"broker names of {len(request.body or b'')} bytes; {REQUEST_BYTES_MAX} are read")
    try:
        names = loads(request.body, dialect_max=REQUEST_DIALECT_MAX) if request.body else []
    except FastJsonError as error:
        raise BodyError(f"broker names expected, but the body is not JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BodyError("the body is not a JSON array of broker names")
    return names


def clean_broker_data(request: RemotingCommand) -> Decide:
    header = CleanBrokerDataHeader.from_ext(request.ext)
    return lambda state, live: commands.clean_broker_data(
        state,
        live,
        broker_name=header.broker_name,
        ids_to_clean=header.broker_controller_ids_to_clean,
        living_too=header.is_clean_living_broker,
    )


def give_up_replica(request: RemotingCommand) -> Decide:
    header = GiveUpReplicaHeader.from_ext(request.ext)
    return lambda state, live: resync.give_up_replica(
        state,
        live,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        check_code=header.register_check_code,
        dry_run=header.dry_run,
    )


def next_broker_id(request: RemotingCommand) -> Decide:
    header = GetNextBrokerIdHeader.from_ext(request.ext)
    return lambda state, live: commands.next_broker_id(
        state, cluster_name=header.cluster_name, broker_name=header.broker_name
    )


def apply_broker_id(request: RemotingCommand) -> Decide:
    header = ApplyBrokerIdHeader.from_ext(request.ext)
    return lambda state, live: commands.apply_broker_id(
        state,
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.applied_broker_id,
        check_code=header.register_check_code,
    )


WRITES: dict[int, Callable[[RemotingCommand], Decide]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: alter_sync_state_set,
    RequestCode.CLEAN_BROKER_DATA: clean_broker_data,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: apply_broker_id,
}
"""The requests that change state, except CONTROLLER_ELECT_MASTER, CONTROLLER_REGISTER_BROKER and GIVE_UP_REPLICA, which have
handlers of their own."""
READS: dict[int, Callable[[RemotingCommand], Decide]] = {
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: next_broker_id,
}
"""The requests that read state, except two with handlers of their own: CONTROLLER_GET_SYNC_STATE_DATA may name many sets, and
the sender of CONTROLLER_GET_REPLICA_INFO may be a second process of one broker."""
