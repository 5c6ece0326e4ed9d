"""A broker's place in its set: the id protocol, which role the controllers granted, and changes of the SyncStateSet.

Invariant: a role is taken only for a masterEpoch above every one taken or refused before, and that epoch counts as
taken only when the change has succeeded. A master accepts sends only while no newer masterEpoch is known. At most one
SyncStateSet proposal is unsettled: until its fate is known no other is made.

The shell asks `next_step` what to do about controllers and `next_role` which role to take, performs it, and reports
back; neither asks for anything before its due time."""

from __future__ import annotations

from enum import Enum

from broker.role.actions import (
    AlterCall,
    Applied,
    ApplyIdCall,
    Call,
    Effect,
    ElectCall,
    Grant,
    MasterMoved,
    NextIdCall,
    PollCall,
    ProposalFailed,
    RegisterCall,
    Reply,
    SaveIdentity,
    SaveTemporary,
    Step,
)
from broker.role.identity import Identity, TemporaryIdentity
from broker.role.syncstatesetreport import SyncStateSetReport
from remoting.codes import ResponseCode

RETRY_MS = 300  # start-up calls that failed: upstream pauses a second and more
TAKEN_RETRY_MS = 50  # brokers that start together race for ids
ELECT_RETRY_MS = 500
ROLE_RETRY_MS = 1000
NEVER_MS = 1 << 62


class Stage(Enum):
    """How far the broker is with the controllers."""

    UNNAMED = "unnamed"  # no id: ask for the next one (1012)
    DRAWN = "drawn"  # an id to apply for: write the temporary file
    APPLYING = "applying"  # temporary file durable: apply for its id (1013)
    GRANTED = "granted"  # id granted: write the identity file
    NAMED = "named"  # identity durable: register (1003)
    REGISTERED = "registered"  # known to the controllers: poll (1004), elect (1002) when there is no master


NEXT = {
    Stage.UNNAMED: {Stage.DRAWN},
    Stage.DRAWN: {Stage.APPLYING},
    Stage.APPLYING: {Stage.GRANTED, Stage.UNNAMED},
    Stage.GRANTED: {Stage.NAMED},
    Stage.NAMED: {Stage.REGISTERED},
    Stage.REGISTERED: {Stage.NAMED},
}


class Role(Enum):
    """What the broker does with its log."""

    NONE = "none"  # fenced: neither serves nor replicates
    MASTER = "master"
    SLAVE = "slave"


class Replicas:
    """The state machine. All times are ms of a monotonic clock."""

    def __init__(
        self,
        *,
        cluster_name: str,
        broker_name: str,
        address: str,
        poll_ms: int,
        identity: Identity | None = None,
        temporary: TemporaryIdentity | None = None,
    ) -> None:
        self._names = cluster_name, broker_name
        self._address = address
        self._poll_ms = poll_ms
        self.identity = identity
        self._temporary = temporary
        self.stage = Stage.NAMED if identity else Stage.APPLYING if temporary else Stage.UNNAMED
        self.role = Role.NONE
        self.taken: Grant | None = None
        self._wanted: Grant | None = None
        self._refused_epoch = 0
        self._seen_epoch = 0
        self._elect = False
        self._call_due_ms = 0
        self._poll_due_ms = 0
        self._role_due_ms = 0
        self.report = SyncStateSetReport()

    # -- what others ask

    @property
    def broker_id(self) -> int | None:
        """The id that controllers know us by, once it is durable."""
        return self.identity.broker_id if self.identity else None

    @property
    def accepts_sends(self) -> bool:
        return (
            self.role is Role.MASTER
            and self.taken is not None
            and self._seen_epoch <= self.taken.master_epoch
        )

    @property
    def wanted(self) -> Grant | None:
        """The newest role that was granted and not taken yet."""
        return self._wanted

    @property
    def master_epoch(self) -> int:
        """Of the role taken; 0 before."""
        return self.taken.master_epoch if self.taken else 0

    @property
    def registered(self) -> bool:
        return self.stage is Stage.REGISTERED

    def call_due_ms(self) -> int:
        """When `next_step` has something to do, unless something is reported before."""
        if self.stage in (Stage.DRAWN, Stage.GRANTED):
            return 0
        if self.stage is not Stage.REGISTERED or self._elect:
            return self._call_due_ms
        report_due_ms = self.report.due_ms() if self.accepts_sends else NEVER_MS
        return max(self._call_due_ms, min(self._poll_due_ms, report_due_ms))

    def role_due_ms(self) -> int:
        """When `next_role` has something to do, unless something is reported before."""
        return NEVER_MS if self._wanted is None else self._role_due_ms

    # -- controllers

    def next_step(self, now_ms: int) -> Step | None:
        """The one thing to do now about identity and controllers; None until `call_due_ms`."""
        match self.stage:
            case Stage.DRAWN:
                assert self._temporary is not None
                return SaveTemporary(self._temporary)
            case Stage.GRANTED:
                assert self._temporary is not None
                return SaveIdentity(Identity(*self._names, self._temporary.broker_id))
        if now_ms < self._call_due_ms:
            return None
        match self.stage:
            case Stage.UNNAMED:
                return NextIdCall()
            case Stage.APPLYING:
                assert self._temporary is not None
                return ApplyIdCall(self._temporary)
        assert self.broker_id is not None
        if self.stage is Stage.NAMED:
            return RegisterCall(self.broker_id)
        if self._elect:
            return ElectCall(self.broker_id)
        if now_ms >= self._poll_due_ms:
            return PollCall()
        if self.accepts_sends and self.taken and (alter := self.report.next(self.taken, now_ms)) is not None:
            return AlterCall(*alter)
        return None

    def saved(self) -> None:
        """The file of the last Save step is durable."""
        if self.stage is Stage.GRANTED:
            assert self._temporary is not None
            self.identity = Identity(*self._names, self._temporary.broker_id)
            self._temporary = None
            self._enter(Stage.NAMED)
        else:
            self._enter(Stage.APPLYING)

    def replied(self, call: Call, reply: Reply, now_ms: int, wall_ms: int) -> list[Effect]:
        """A controller answered `call`; `wall_ms` dates a check code. Effects are for the HA service, in order."""
        match call:
            case AlterCall():
                return self._altered(reply, now_ms)
            case PollCall():
                return self._polled(reply, now_ms)
            case NextIdCall() if reply.code == ResponseCode.SUCCESS and reply.next_broker_id > 0:
                check_code = f"{self._address};{wall_ms}"
                self._temporary = TemporaryIdentity(*self._names, reply.next_broker_id, check_code)
                self._enter(Stage.DRAWN)
                return []
            case ApplyIdCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(Stage.GRANTED)
                return []
            case ApplyIdCall() if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                self._enter(Stage.UNNAMED)  # certainly another's; the next temporary file replaces this one
                self._call_due_ms = now_ms + TAKEN_RETRY_MS
                return []
            case RegisterCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(Stage.REGISTERED)
                self._poll_due_ms = now_ms + self._poll_ms
                self._elect = reply.grant is None
                return self._granted(reply.grant, now_ms)
            case ElectCall():
                return self._elected(reply, now_ms)
        # an operator has to act
        unknown_id = reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        self._call_due_ms = now_ms + (self._poll_ms if unknown_id else RETRY_MS)
        return []

    def not_replied(self, call: Call, now_ms: int, *, sent: bool) -> list[Effect]:
        """No answer. `sent`: the controller may have got the request, so what it did is unknown."""
        self._call_due_ms = now_ms + RETRY_MS
        if not isinstance(call, AlterCall):
            return []
        if self.report.not_replied(now_ms, sent=sent):
            return [ProposalFailed()]
        self.poll_soon()
        return []

    def not_proposed(self, now_ms: int) -> None:
        """The replicas have moved on since the proposal was thought of: it is not sent."""
        self.report.withdraw(now_ms)

    def announced(self, grant: Grant, now_ms: int) -> list[Effect]:
        """A controller pushed the result of an election (1008). Before our id is durable we cannot tell what it
        means for us; registering will tell."""
        return self._granted(grant, now_ms) if self.identity is not None else []

    def poll_soon(self) -> None:
        """Something suggests that the controllers know more than we do."""
        self._poll_due_ms = 0

    def _enter(self, stage: Stage) -> None:
        assert stage in NEXT[self.stage], f"{self.stage} -> {stage}"
        self.stage = stage

    def _altered(self, reply: Reply, now_ms: int) -> list[Effect]:
        assert self.taken is not None
        if reply.code == ResponseCode.SUCCESS and reply.sync_state_set:
            return self._adopt(self.taken.master_epoch, reply.sync_state_set, reply.sync_state_set_epoch)
        if reply.code != ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
            self.poll_soon()  # fenced, or our set is old: the controllers know more
        return [ProposalFailed()] if self.report.refused(reply.code, now_ms) else []

    def _polled(self, reply: Reply, now_ms: int) -> list[Effect]:
        self._poll_due_ms = now_ms + self._poll_ms
        if reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self._enter(Stage.NAMED)  # the set was cleaned: 1003 says so too, until an operator acts
            self._call_due_ms = now_ms + self._poll_ms
            return []
        if reply.code != ResponseCode.SUCCESS:
            self._call_due_ms = now_ms + RETRY_MS
            return []
        self._seen_epoch = max(self._seen_epoch, reply.master_epoch)
        self._elect = reply.grant is None
        effects = self._granted(reply.grant, now_ms)
        if self.report.unsettled and self.taken is not None:
            self.report.read(reply.master_epoch, self.taken)
        return effects

    def _elected(self, reply: Reply, now_ms: int) -> list[Effect]:
        if reply.grant is None or reply.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        ):
            self._call_due_ms = now_ms + ELECT_RETRY_MS
            if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._elect = False
                self._enter(Stage.NAMED)
            else:
                self.poll_soon()
            return []
        self._elect = False
        return self._granted(reply.grant, now_ms)

    def _granted(self, grant: Grant | None, now_ms: int) -> list[Effect]:
        if grant is None:
            return []
        self._seen_epoch = max(self._seen_epoch, grant.master_epoch)
        if grant.master_epoch > max(self.master_epoch, self._refused_epoch):
            self._elect = False
            if self._wanted is None or grant.master_epoch > self._wanted.master_epoch:
                self._wanted, self._role_due_ms = grant, now_ms
            return []
        if self.taken is None or grant.master_epoch != self.master_epoch:
            return []
        if self.role is Role.MASTER:
            return self._adopt(grant.master_epoch, grant.sync_state_set, grant.sync_state_set_epoch)
        if grant.master_id == self.taken.master_id and grant.master_address != self.taken.master_address:
            self.taken = grant
            return [MasterMoved(grant.master_address)]
        return []

    def _adopt(self, master_epoch: int, members: frozenset[int], sync_state_set_epoch: int) -> list[Effect]:
        taken = self.taken
        assert taken is not None
        if sync_state_set_epoch <= taken.sync_state_set_epoch:
            return []
        self.taken = Grant(master_epoch, taken.master_id, taken.master_address, members, sync_state_set_epoch)
        self.report.settled(members)
        return [Applied(members, sync_state_set_epoch)]

    # -- roles

    def next_role(self, now_ms: int) -> Grant | None:
        """The role to take now. Report taken, refused or failed before asking again."""
        return self._wanted if self._wanted is not None and now_ms >= self._role_due_ms else None

    def role_taken(self, grant: Grant) -> None:
        """The change succeeded, durably."""
        assert grant.master_epoch > self.master_epoch
        self.taken = grant
        self.role = Role.MASTER if grant.master_id == self.broker_id else Role.SLAVE
        self.report = SyncStateSetReport()
        self._forget(grant)

    def role_refused(self, grant: Grant) -> None:
        """The log knows a newer epoch than `grant`: the role stays as it is, and this epoch is never tried again."""
        self._refused_epoch = max(self._refused_epoch, grant.master_epoch)
        self._forget(grant)

    def role_failed(self, now_ms: int) -> None:
        """The change broke off half-way: no role until it has been repeated with success."""
        self.role = Role.NONE
        self._role_due_ms = now_ms + ROLE_RETRY_MS

    def _forget(self, grant: Grant) -> None:
        if self._wanted is not None and self._wanted.master_epoch <= grant.master_epoch:
            self._wanted = None
