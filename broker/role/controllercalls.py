"""Builds a broker's requests to its controllers, and parses the answers for the state machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from broker.role.actions import (
    ApplyIdCall,
    Call,
    ControllerReply,
    ElectCall,
    Grant,
    NextIdCall,
    PollCall,
    RegisterCall,
)
from broker.role.leaderhealth import LeaderHealth
from broker.role.membership import Membership
from broker.role.memorymark import KeptMemoryMark
from broker.role.startnumber import KeptStartNumber
from ha.service.replication import Replication
from ha.syncstateset import (
    Alter,
    AlterNotSent,
    AlterOutcome,
    AlterRefused,
    AlterUnknown,
    AnnouncementNotNeeded,
    Applied,
)
from mqruntime.clock import Clock
from remoting.bodies.replicas import ElectMasterBody, SyncStateSetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoHeader,
    GetReplicaInfoResponseHeader,
    GiveUpReplicaHeader,
    NotifyBrokerRoleChangedHeader,
    RegisterBrokerToControllerHeader,
    RegisterBrokerToControllerResponseHeader,
)

WITH_MASTER = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
REFUSALS = {
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
}
"""After these codes the proposal changed nothing; our controllers raise the set's epoch and return it. After the codes of
FENCED_SYNC_STATE_SET_EPOCH (2001) and ALTER_SYNC_STATE_SET_FAILED (2013) the set was changed before, perhaps by this proposal.
After FENCED_MASTER_EPOCH (2000) and INVALID_MASTER (2002) this proposal may have changed it before another epoch began."""
SAME_SET = "The newSyncStateSet is equal with oldSyncStateSet"
"""Start of upstream's remark on a proposal that changes nothing. Upstream's and our controllers reject a proposal for an
unknown set with the same code."""


class HeartbeatSettings(Protocol):
    """The settings that a heartbeat reports."""

    controller_heart_beat_timeout_mills: int
    broker_election_priority: int
    min_in_sync_replicas: int
    async_learner: bool


class ReportedLog(Protocol):
    """The part of the log that a heartbeat reports."""

    def max_offset(self) -> int: ...

    def confirm_offset(self) -> int: ...

    def dispatched_offset(self) -> int: ...


class ControllerCalls:
    """The requests of one broker."""

    def __init__(
        self,
        membership: Membership,
        settings: HeartbeatSettings,
        log: ReportedLog,
        ha: Replication,
        memory: KeptMemoryMark,
        health: LeaderHealth,
        clock: Clock,
        start: KeptStartNumber,
        incarnation: int,
    ) -> None:
        """`incarnation` is the number of this process, higher than the numbers of earlier processes."""
        self._membership = membership
        self._settings = settings
        self._log = log
        self._ha = ha
        self._memory = memory
        self._health = health
        self._clock = clock
        self._start = start
        self._incarnation = incarnation

    def heartbeat(self) -> BrokerHeartbeatHeader:
        membership, now_ms = self._membership, self._clock.monotonic_ms()
        return BrokerHeartbeatHeader(
            membership.cluster_name,
            membership.address,
            membership.broker_name,
            membership.broker_id,
            self._ha.history.last_epoch(),
            self._log.max_offset(),
            self._log.confirm_offset(),
            self._settings.controller_heart_beat_timeout_mills,
            self._settings.broker_election_priority,
            self._settings.min_in_sync_replicas,
            self._memory.may_have_lost_data,
            self._health.why_unfit(now_ms),
            self._settings.async_learner,
            self._incarnation,
            self._health.could_lead(now_ms) or None,
            self._start.number,
            min(self._log.dispatched_offset(), self._log.confirm_offset()),
            self._memory.was_set_back or None,
        )

    def request(self, call: Call, wall_ms: int) -> RemotingCommand:
        """The command of `call`."""
        cluster, name = self._membership.cluster_name, self._membership.broker_name
        address = self._membership.address
        match call:
            case NextIdCall():
                header = GetNextBrokerIdHeader(name, cluster)
                return RemotingCommand.request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
            case ApplyIdCall(identity):
                apply = ApplyBrokerIdHeader(name, identity.broker_id, identity.check_code, cluster)
                return RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
            case RegisterCall(own_id):
                register = RegisterBrokerToControllerHeader(
                    name,
                    own_id,
                    address,
                    cluster,
                    wall_ms,
                    self._membership.check_code or None,
                    self._incarnation,
                    self._start.number,
                )
                return RemotingCommand.request(RequestCode.CONTROLLER_REGISTER_BROKER, register)
            case ElectCall(own_id):
                elect = ElectMasterHeader(name, cluster, own_id, False, wall_ms)
                return RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, elect)
            case PollCall():
                us = self._membership
                poll = GetReplicaInfoHeader(
                    name, us.broker_id, us.check_code or None, us.address, self._incarnation
                )
                return RemotingCommand.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, poll)

    def give_up(self, *, dry_run: bool) -> RemotingCommand:
        """The command that asks the controllers to forget this broker, before its store is removed."""
        us = self._membership
        assert us.broker_id is not None
        header = GiveUpReplicaHeader(us.broker_name, us.broker_id, us.check_code or None, dry_run)
        return RemotingCommand.request(RequestCode.GIVE_UP_REPLICA, header)

    def alter(self, alter: Alter, wall_ms: int) -> RemotingCommand:
        """The command that proposes a SyncStateSet."""
        broker_id = self._membership.broker_id
        assert broker_id is not None
        header = AlterSyncStateSetHeader(
            self._membership.broker_name, broker_id, alter.master_epoch, wall_ms, alter.members_min
        )
        body = SyncStateSetBody(alter.members, alter.set_epoch).encode()
        return RemotingCommand.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)

    def outcome(self, alter: Alter, answer: RemotingCommand) -> AlterOutcome:
        """The outcome of `alter` according to the controller's answer. Raises BodyError."""
        if answer.code == ResponseCode.SUCCESS:
            found = SyncStateSetBody.decode(answer.body)
            return Applied(found.sync_state_set, found.sync_state_set_epoch)
        if answer.code in REFUSALS:
            if not answer.body:
                return AlterRefused()
            found = SyncStateSetBody.decode(answer.body)
            return AlterRefused(found.sync_state_set, found.sync_state_set_epoch)
        is_same = (answer.remark or "").startswith(SAME_SET)
        if (
            answer.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
            and alter.same_members
            and is_same
        ):
            return AnnouncementNotNeeded()
        return AlterNotSent() if answer.code == ResponseCode.CONTROLLER_NOT_LEADER else AlterUnknown()

    def reply(self, call: Call, command: RemotingCommand) -> ControllerReply:
        """The parsed answer to `call`. Raises HeaderError or BodyError for a malformed answer."""
        code = command.code
        match call:
            case NextIdCall() if code == ResponseCode.SUCCESS:
                header = GetNextBrokerIdResponseHeader.from_ext(command.ext)
                return ControllerReply(code, next_broker_id=header.next_broker_id or 0)
            case RegisterCall() if code == ResponseCode.SUCCESS:
                register = RegisterBrokerToControllerResponseHeader.from_ext(command.ext)
                return _with_set(code, register, SyncStateSetBody.from_request(command.body))
            case RegisterCall():
                refused = RegisterBrokerToControllerResponseHeader.from_ext(command.ext)
                return ControllerReply(
                    code,
                    known_start_number=refused.known_start_number or 0,
                    other_address=refused.other_address or "",
                )
            case PollCall() if code == ResponseCode.SUCCESS:
                poll = GetReplicaInfoResponseHeader.from_ext(command.ext)
                reply = _with_set(code, poll, SyncStateSetBody.from_request(command.body))
                return replace(reply, other_address=poll.other_address or "")
            case PollCall() if code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                poll = GetReplicaInfoResponseHeader.from_ext(command.ext)
                return ControllerReply(
                    code, master_epoch=poll.master_epoch or 0, other_address=poll.other_address or ""
                )
            case ElectCall() if code in WITH_MASTER:
                elect = ElectMasterResponseHeader.from_ext(command.ext)
                members = ElectMasterBody.from_request(command.body).sync_state_set
                return _with_set(code, elect, SyncStateSetBody(members, elect.sync_state_set_epoch or 0))
        return ControllerReply(code)


def said_grant(command: RemotingCommand) -> Grant | None:
    """The grant in a notification (NOTIFY_BROKER_ROLE_CHANGED, 1008), which any process may have sent; None if it names no
    master. Raises HeaderError, BodyError."""
    header = NotifyBrokerRoleChangedHeader.from_ext(command.ext)
    members = SyncStateSetBody.from_request(command.body)
    return _with_set(ResponseCode.SUCCESS, header, members).grant


_MasterHeader = (
    RegisterBrokerToControllerResponseHeader
    | GetReplicaInfoResponseHeader
    | ElectMasterResponseHeader
    | NotifyBrokerRoleChangedHeader
)


def _with_set(code: int, header: _MasterHeader, members: SyncStateSetBody) -> ControllerReply:
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
    return ControllerReply(code, grant, epoch)
