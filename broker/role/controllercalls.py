"""The controller calls of a broker as commands, and their answers as the state machine takes them."""

from __future__ import annotations

from broker.role.actions import (
    AlterCall,
    ApplyIdCall,
    Call,
    ElectCall,
    Grant,
    NextIdCall,
    PollCall,
    RegisterCall,
    Reply,
)
from remoting.bodies.replicas import ElectMasterBody, SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    ElectMasterHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedHeader,
    RegisterBrokerToControllerHeader,
    RegisterBrokerToControllerResponseHeader,
)

WITH_MASTER = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)


class ControllerCalls:
    """Requests that speak for one broker."""

    def __init__(self, cluster_name: str, broker_name: str, address: str) -> None:
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._address = address

    def request(self, call: Call, broker_id: int | None, wall_ms: int) -> RemotingCommand:
        """The command of `call`; `broker_id` is our own, once there is one."""
        cluster, name = self._cluster_name, self._broker_name
        match call:
            case NextIdCall():
                header = GetNextBrokerIdHeader(name, cluster)
                return RemotingCommand.request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
            case ApplyIdCall(identity):
                apply = ApplyBrokerIdHeader(name, identity.broker_id, identity.check_code, cluster)
                return RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
            case RegisterCall(own_id):
                register = RegisterBrokerToControllerHeader(name, own_id, self._address, cluster, wall_ms)
                return RemotingCommand.request(RequestCode.CONTROLLER_REGISTER_BROKER, register)
            case ElectCall(own_id):
                elect = ElectMasterHeader(name, cluster, own_id, False, wall_ms)
                return RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, elect)
            case PollCall():
                return RemotingCommand.request(
                    RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(name)
                )
            case AlterCall(proposal):
                assert broker_id is not None
                alter = AlterSyncStateSetHeader(name, broker_id, proposal.master_epoch, wall_ms)
                body = SyncStateSet(proposal.members, proposal.sync_state_set_epoch).encode()
                return RemotingCommand.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, body)

    def reply(self, call: Call, command: RemotingCommand) -> Reply:
        """What the answer to `call` says. Raises HeaderError or BodyError when it does not say it properly."""
        code = command.code
        match call:
            case NextIdCall() if code == ResponseCode.SUCCESS:
                header = GetNextBrokerIdResponseHeader.from_ext(command.ext)
                return Reply(code, next_broker_id=header.next_broker_id or 0)
            case RegisterCall() if code == ResponseCode.SUCCESS:
                register = RegisterBrokerToControllerResponseHeader.from_ext(command.ext)
                return _with_set(code, register, SyncStateSet.decode(command.body))
            case PollCall() if code == ResponseCode.SUCCESS:
                poll = GetReplicaInfoResponseHeader.from_ext(command.ext)
                return _with_set(code, poll, SyncStateSet.decode(command.body))
            case ElectCall() if code in WITH_MASTER:
                elect = ElectMasterResponseHeader.from_ext(command.ext)
                members = ElectMasterBody.decode(command.body).sync_state_set
                return _with_set(code, elect, SyncStateSet(members, elect.sync_state_set_epoch or 0))
            case AlterCall() if code == ResponseCode.SUCCESS:
                found = SyncStateSet.decode(command.body)
                return Reply(
                    code, sync_state_set=found.sync_state_set, sync_state_set_epoch=found.sync_state_set_epoch
                )
        return Reply(code)


def announced_grant(command: RemotingCommand) -> Grant | None:
    """The grant that a 1008 announces; None when it names no master. Raises HeaderError, BodyError."""
    header = NotifyBrokerRoleChangedHeader.from_ext(command.ext)
    members = SyncStateSet.decode(command.body)
    return _with_set(ResponseCode.SUCCESS, header, members).grant


_MasterHeader = (
    RegisterBrokerToControllerResponseHeader
    | GetReplicaInfoResponseHeader
    | ElectMasterResponseHeader
    | NotifyBrokerRoleChangedHeader
)


def _with_set(code: int, header: _MasterHeader, members: SyncStateSet) -> Reply:
    epoch = header.master_epoch or 0
    grant = None
    if (
        header.master_broker_id is not None
        and header.master_broker_id > 0
        and header.master_address
        and epoch
    ):
        grant = Grant(
            epoch,
            header.master_broker_id,
            header.master_address,
            members.sync_state_set,
            members.sync_state_set_epoch,
        )
    return Reply(code, grant, epoch)
