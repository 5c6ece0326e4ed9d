"""State machine of a broker's replica id and of the role that the controllers granted. Only this module changes the role.

Invariant: a role is taken only for a masterEpoch that is above every epoch taken or refused before, and not below the newest
known epoch. An epoch counts as taken only after the change of role has succeeded. Grants made before this process registered
are ignored, because the former process may have had a longer log. A master accepts sends only while it knows no newer
masterEpoch and does not stop. At most one controller call and one change of role run at a time; neither waits for the other.

The broker believes grants and SyncStateSets only in answers to its own requests. Any process can send a notification
(NOTIFY_BROKER_ROLE_CHANGED, 1008), so a notification only triggers a request: at once, at most one in `HINT_EVERY_MS`, and
without waiting for a pending call. An epoch that no cluster could have reached since the newest known epoch is ignored
(`epochfile.history.why_too_far`).

    UNNAMED --next id--> DRAWN --saved--> APPLYING --granted--> GRANTED --saved--> NAMED --registered--> REGISTERED
    APPLYING --another's id--> UNNAMED, or NAMED for one that had it before
    NAMED --id unknown--> FORGOTTEN --was a member--> DRAWN, with the own id    FORGOTTEN --not of this set--> NAMED
    REGISTERED --id unknown--> DRAWN, with the own id    REGISTERED --set unknown--> NAMED
    NAMED --a newer disk of this store is known--> SET_BACK --noted--> NAMED

If the controllers forget a broker but not its set, the broker applies for its id again, with the original check code, and keeps
its role meanwhile. If the id belongs to another broker by then, this broker's log is of an earlier life of the set. So this
broker does not rejoin until an operator acts.

The configuration appoints a member of a pair or a Raft group (APPOINTED) for the life of the process. Such a member calls no
controller.

Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from broker.role.actions import (
    Action,
    ApplyIdCall,
    AskAll,
    BeginHeartbeats,
    Call,
    ControllerReply,
    Disbelieved,
    Duplicate,
    ElectCall,
    Follow,
    Grant,
    Lead,
    MasterMoved,
    NextIdCall,
    NoteSetBack,
    PollCall,
    RegisterCall,
    RoleAnnounced,
    SaveIdentity,
    SaveTemporary,
    SetRead,
)
from broker.role.identity import Identity, TemporaryIdentity
from epochfile.history import why_too_far
from mqruntime.core import NEVER_MS
from remoting.codes import ResponseCode

PAIR_EPOCH = 1  # epoch of the only role that a member of a pair ever takes
RETRY_MS = 300  # pause after a failed call; upstream pauses a second or more
TAKEN_RETRY_MS = 50  # brokers that start together compete for ids
ELECT_RETRY_MS = 500
ROLE_RETRY_MS = 1000
HINT_EVERY_MS = 100
"""Minimum time between two requests that notifications cause. The first notification causes a request at once; a flood of
notifications causes one more request after the last of them."""
MASTER_ROLE_ID = 0
VOUCHED_MS = 20_000
"""For this time after an answer that named this broker master, no other broker can lead. A client trusts a lock for 30 s, and a
new master keeps it for 60 s. 10 s of the remaining 30 s are for controllers that do not know yet that they were deposed."""


class RegistrationStage(Enum):
    """Progress of the registration at the controllers."""

    UNNAMED = "unnamed"  # no id: request the next id (1012)
    DRAWN = "drawn"  # the next id is known: write the temporary file
    APPLYING = "applying"  # temporary file durable: apply for the id (1013)
    GRANTED = "granted"  # id granted: write the identity file
    NAMED = "named"  # identity durable: register (1003)
    SET_BACK = "set back"  # the disk is an earlier image: record that durably
    FORGOTTEN = "forgotten"  # controllers do not know the id: was it a member of this set (1004)?
    REGISTERED = "registered"  # known to the controllers: poll (1004); elect (1002) if there is no master
    APPOINTED = "appointed"  # id set by the configuration of a pair or a Raft group


NEXT = {
    RegistrationStage.UNNAMED: {RegistrationStage.DRAWN},
    RegistrationStage.DRAWN: {RegistrationStage.APPLYING},
    RegistrationStage.APPLYING: {
        RegistrationStage.GRANTED,
        RegistrationStage.UNNAMED,
        RegistrationStage.NAMED,
    },
    RegistrationStage.GRANTED: {RegistrationStage.NAMED},
    RegistrationStage.NAMED: {
        RegistrationStage.REGISTERED,
        RegistrationStage.FORGOTTEN,
        RegistrationStage.SET_BACK,
    },
    RegistrationStage.SET_BACK: {RegistrationStage.NAMED},
    RegistrationStage.FORGOTTEN: {RegistrationStage.NAMED, RegistrationStage.DRAWN},
    RegistrationStage.REGISTERED: {
        RegistrationStage.NAMED,
        RegistrationStage.DRAWN,
        RegistrationStage.SET_BACK,
    },
}


class ReplicaRole(Enum):
    """How the broker uses its log."""

    NONE = "none"  # fenced: neither serves nor replicates
    MASTER = "master"
    SLAVE = "slave"


MASTER = ReplicaRole.MASTER
"""A module constant, because it is read for every send and an enum's attributes are slow to find."""


class Membership:
    """A broker creates its membership first. Call `restore` and `reached_at` once identity and address are known, then `tick`.
    All times are ms of a monotonic clock."""

    def __init__(
        self,
        *,
        cluster_name: str,
        broker_name: str,
        poll_ms: int,
        nonce: str,
        is_async_learner: bool = False,
    ) -> None:
        """An async learner requests no election: the first election of a set elects the broker that asks, and a learner must
        not lead. `nonce` is random, because upstream's check code of address and time alone could be guessed."""
        self.cluster_name = cluster_name
        self.broker_name = broker_name
        self._poll_ms = poll_ms
        self._nonce = nonce
        self._is_async_learner = is_async_learner
        self._address = ""
        self._identity: Identity | None = None
        self._temporary: TemporaryIdentity | None = None
        self._stage = RegistrationStage.UNNAMED
        self._role = ReplicaRole.NONE
        self._stopping = False
        self._taken: Grant | None = None
        self._wanted: Grant | None = None
        self._refused_epoch = 0
        self._seen_epoch = 0
        self._elect = False
        self._is_current = False  # the controllers were asked since this process registered
        self._calling = False  # a save or a call is running
        self._calls_held = False
        self._in_sync = False  # according to the last answer of the controllers
        self._changing = False  # a change of role is running
        self._call_due_ms = 0
        self._poll_due_ms = 0
        self._hinted = False  # a notification came and has caused no request yet
        self._hint_due_ms = 0
        self._log_epoch = 0
        self._set_epoch = 0
        """The epoch of the SyncStateSet that was read last; 0 before the first."""
        self._role_due_ms = 0
        self._asked_ms = 0
        self._known_start_number = 0
        self._vouched_ms: int | None = None
        """The time of the last request whose answer named this broker master under the present epoch."""

    def restore(self, identity: Identity | TemporaryIdentity | None, log_epoch: int = 0) -> None:
        """Set the identity from disk, granted or applied for, and the newest epoch of the log, below 1 if the log has no
        epoch."""
        self._log_epoch = log_epoch
        if isinstance(identity, Identity):
            self._identity, self._stage = identity, RegistrationStage.NAMED
        elif identity is not None:
            self._temporary, self._stage = identity, RegistrationStage.APPLYING

    def appointed(self, broker_id: int, *, leads: bool) -> None:
        """Set id and role from the configuration of a pair. A slave does not know its master yet."""
        assert leads == (broker_id == MASTER_ROLE_ID)
        self._identity = Identity(self.cluster_name, self.broker_name, broker_id)
        self._stage = RegistrationStage.APPOINTED
        self._seen_epoch = PAIR_EPOCH
        self._wanted = Grant(PAIR_EPOCH, MASTER_ROLE_ID, "", frozenset(), 0)

    def member_of_group(self, broker_id: int) -> None:
        """Set the id from the configuration of a Raft group. The group grants roles, each under a term."""
        self._identity = Identity(self.cluster_name, self.broker_name, broker_id)
        self._stage = RegistrationStage.APPOINTED
        self._is_current = True

    def deposed(self) -> None:
        """Stop leading as a Raft group's leader: the term that this broker led, or was about to lead, is over."""
        for grant in (self._taken, self._wanted):
            if grant is not None and grant.master_id == self.broker_id:
                self._seen_epoch = max(self._seen_epoch, grant.master_epoch + 1)

    def pair_led_at(self, master_address: str) -> bool:
        """Store the address of the pair's master, which name servers reported. Returns whether this broker is a slave to which
        the address is new."""
        if (
            self._stage is not RegistrationStage.APPOINTED
            or self._taken is None
            or self._role is not ReplicaRole.SLAVE
        ):
            return False
        former, self._taken = self._taken, replace(self._taken, master_address=master_address)
        return former.master_address != master_address

    def reached_at(self, address: str) -> None:
        """Store the address at which clients and controllers call this broker, host:port; the ports are open."""
        self._address = address

    # -- status

    @property
    def address(self) -> str:
        return self._address

    @property
    def role(self) -> ReplicaRole:
        return self._role

    @property
    def is_slave(self) -> bool:
        return self._role is ReplicaRole.SLAVE

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def accepts_sends(self) -> bool:
        return self._role is MASTER and self._seen_epoch <= self.master_epoch and not self._stopping

    def may_have_a_successor(self, now_ms: int) -> bool:
        """Whether another broker may lead without this master's knowledge, because no controller has confirmed this master for
        a while. Always False in a pair, and in a Raft group, where a leader without a majority steps down."""
        if self._stage is RegistrationStage.APPOINTED:
            return False
        return self._vouched_ms is None or now_ms >= self._vouched_ms + VOUCHED_MS

    @property
    def broker_id(self) -> int | None:
        """The replica id; None until it is durable."""
        return self._identity.broker_id if self._identity else None

    @property
    def check_code(self) -> str:
        """The check code of the replica id; empty if it is not known."""
        return self._identity.check_code if self._identity else ""

    @property
    def role_id(self) -> int | None:
        """The id that name servers and clients see: 0 for a master; None before the first role."""
        if self._role is ReplicaRole.NONE:
            return None
        return MASTER_ROLE_ID if self._role is ReplicaRole.MASTER else self.broker_id

    @property
    def master_epoch(self) -> int:
        """The epoch of the role that was taken last; 0 before the first."""
        return self._taken.master_epoch if self._taken else 0

    @property
    def master_address(self) -> str | None:
        """The address of this slave's master; None if this broker is no slave."""
        return self._taken.master_address or None if self._taken is not None and self.is_slave else None

    @property
    def registered(self) -> bool:
        return self._stage is RegistrationStage.REGISTERED

    @property
    def in_sync(self) -> bool:
        """Whether this broker was in the SyncStateSet of the controllers' last answer."""
        return self._in_sync

    @property
    def calls_held(self) -> bool:
        return self._calls_held

    @property
    def next_tick_ms(self) -> int:
        role_ms = NEVER_MS if self._wanted is None or self._changing else self._role_due_ms
        if self._hinted and self._may_ask_about_hint():
            role_ms = min(role_ms, self._hint_due_ms)
        if self._calling or self._calls_held or self._stage is RegistrationStage.APPOINTED:
            return role_ms
        polls = self._stage is RegistrationStage.REGISTERED and not self._elect
        return min(role_ms, max(self._call_due_ms, self._poll_due_ms) if polls else self._call_due_ms)

    # -- time

    def tick(self, now_ms: int) -> list[Action]:
        """Call this at `next_tick_ms` or later, and once at the start."""
        actions = self._ask_about_hint(now_ms)
        if not self._calling and (step := self._due_step(now_ms)) is not None:
            self._calling, self._asked_ms = True, now_ms
            actions.append(step)
        if self._wanted is not None and not self._changing and now_ms >= self._role_due_ms:
            self._changing = True
            assert self.broker_id is not None
            leads = self._wanted.master_id == self.broker_id
            actions.append(Lead(self._wanted) if leads else Follow(self._wanted, self.broker_id))
        return actions

    def _due_step(self, now_ms: int) -> SaveTemporary | SaveIdentity | NoteSetBack | Call | None:
        """The step of registration or polling that is due; None if none is."""
        if now_ms < self._call_due_ms or self._calls_held:
            return None
        match self._stage:
            case RegistrationStage.APPOINTED:
                return None
            case RegistrationStage.UNNAMED:
                return NextIdCall()
            case RegistrationStage.DRAWN:
                assert self._temporary is not None
                return SaveTemporary(self._temporary)
            case RegistrationStage.APPLYING:
                assert self._temporary is not None
                return ApplyIdCall(self._temporary)
            case RegistrationStage.GRANTED:
                return SaveIdentity(self._granted_identity())
            case RegistrationStage.SET_BACK:
                return NoteSetBack(self._known_start_number)
            case RegistrationStage.FORGOTTEN:
                return PollCall()
        assert self.broker_id is not None
        if self._stage is RegistrationStage.NAMED:
            return RegisterCall(self.broker_id)
        if self._elect:
            return ElectCall(self.broker_id)
        return PollCall() if now_ms >= self._poll_due_ms else None

    def hold_calls(self) -> None:
        """Stop calls, because the controllers are about to forget this broker, and it must not apply again. Roles continue."""
        self._calls_held = True

    def release_calls(self) -> None:
        """Resume calls: the controllers did not forget the broker, or the broker stays although they did."""
        self._calls_held = False

    def stop(self) -> None:
        """Stop: from now on this broker accepts and serves no requests."""
        self._stopping = True

    # -- controllers

    def saved(self, now_ms: int) -> list[Action]:
        """Called when the file of the last SaveTemporary, SaveIdentity or NoteSetBack is durable."""
        self._calling = False
        if self._stage is RegistrationStage.SET_BACK:
            self._enter(RegistrationStage.NAMED)
        elif self._stage is RegistrationStage.GRANTED:
            self._identity, self._temporary = self._granted_identity(), None
            self._enter(RegistrationStage.NAMED)
        else:
            self._enter(RegistrationStage.APPLYING)
        return self.tick(now_ms)

    def replied(self, call: Call, reply: ControllerReply, now_ms: int, wall_ms: int) -> list[Action]:
        """Handle a controller's answer to `call`; `wall_ms` is the time in a new check code."""
        if (why := self._why_disbelieved(reply.master_epoch, reply.grant)) is not None:
            return [Disbelieved("answer", why), *self.not_replied(now_ms)]
        self._calling = False
        actions: list[Action] = []
        match call:
            case PollCall() if self._stage is RegistrationStage.FORGOTTEN:
                self._take_set_reply(reply, now_ms, wall_ms)
            case PollCall():
                actions = self._polled(reply, now_ms, wall_ms)
            case NextIdCall() if reply.code == ResponseCode.SUCCESS and reply.next_broker_id > 0:
                check_code = self._new_check_code(wall_ms)
                self._temporary = TemporaryIdentity(
                    self.cluster_name, self.broker_name, reply.next_broker_id, check_code
                )
                self._enter(RegistrationStage.DRAWN)
            case ApplyIdCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(RegistrationStage.GRANTED)
            case ApplyIdCall() if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                if self._identity is None:
                    self._enter(
                        RegistrationStage.UNNAMED
                    )  # the id is certainly another broker's; the next temporary file replaces this one
                    self._call_due_ms = now_ms + TAKEN_RETRY_MS
                else:
                    self._enter(RegistrationStage.NAMED)
                    self._call_due_ms = now_ms + self._poll_ms
            case RegisterCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(RegistrationStage.REGISTERED)
                self._poll_due_ms = now_ms + self._poll_ms
                self._elect = reply.grant is None and not self._is_async_learner
                self._is_current = reply.grant is not None
                actions = [BeginHeartbeats(), *self._granted(reply.grant, now_ms)]
            case RegisterCall() if reply.known_start_number:
                self._known_start_number = reply.known_start_number
                self._enter(RegistrationStage.SET_BACK)
            case RegisterCall() if reply.other_address:
                self._call_due_ms = now_ms + self._poll_ms
                actions = [Duplicate(reply.other_address, registered=True)]
            case ElectCall():
                actions = self._elected(reply, now_ms)
            case RegisterCall() if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._enter(RegistrationStage.FORGOTTEN)
            case _:
                self._call_due_ms = now_ms + RETRY_MS
        return [*actions, *self.tick(now_ms)]

    def not_replied(self, now_ms: int) -> list[Action]:
        """Repeat the last call, which got no answer, although the controller may have carried it out."""
        self._calling = False
        self._call_due_ms = now_ms + RETRY_MS
        return self.tick(now_ms)

    def notified(self, grant: Grant, now_ms: int) -> list[Action]:
        """Handle a notification (1008) of `grant`, perhaps from a controller. The notification only causes a request, which a
        broker that is not registered yet sends anyway."""
        if self._stage is RegistrationStage.APPOINTED or not (
            self._is_current or self._stage is RegistrationStage.REGISTERED
        ):
            return []
        if (why := self._why_disbelieved(grant.master_epoch, grant)) is not None:
            return [Disbelieved("notification", why)]
        if not self._is_news(grant):
            return []
        self._hinted = True
        return self.tick(now_ms)

    def _is_news(self, grant: Grant) -> bool:
        """Whether `grant` is worth a request. For a master it always is, because the SyncStateSet changes within an epoch."""
        taken = self._taken
        if grant.master_epoch < self._seen_epoch:
            return False
        known = taken is not None and (taken.master_epoch, taken.master_id, taken.master_address) == (
            grant.master_epoch,
            grant.master_id,
            grant.master_address,
        )
        return not known or self._role is ReplicaRole.MASTER

    def _may_ask_about_hint(self) -> bool:
        """Whether a request may follow a notification now. Once the controllers have answered, all may be asked. Before that a
        deposed controller might return a grant to the former process, so only the controller that registered this process is
        asked, after the pending call."""
        return self._is_current or (self._stage is RegistrationStage.REGISTERED and not self._calling)

    def _ask_about_hint(self, now_ms: int) -> list[Action]:
        if not self._hinted or now_ms < self._hint_due_ms or not self._may_ask_about_hint():
            return []
        self._hinted, self._hint_due_ms = False, now_ms + HINT_EVERY_MS
        if self._is_current:
            return [AskAll()]
        self._elect, self._poll_due_ms, self._call_due_ms = False, 0, now_ms
        return []

    def answered(self, reply: ControllerReply, now_ms: int) -> list[Action]:
        """Handle one answer to AskAll. The answer does not confirm that this broker is still master, because it may come from a
        controller that does not know yet that it was deposed."""
        if not self._is_current:
            return []
        if reply.code != ResponseCode.SUCCESS:
            return self.poll_soon(now_ms)  # the poll asks again, and the answer to the poll is acted on
        if (why := self._why_disbelieved(reply.master_epoch, reply.grant)) is not None:
            return [Disbelieved("answer", why)]
        if reply.grant is None:
            return self.poll_soon(now_ms) if reply.master_epoch >= self._seen_epoch else []
        return [*self._granted(reply.grant, now_ms), *self.tick(now_ms)]

    def unanswered(self, now_ms: int) -> list[Action]:
        """Called when none of the controllers that AskAll asked leads. The next poll looks for the leader."""
        return self.poll_soon(now_ms)

    def granted_by_group(self, grant: Grant, now_ms: int) -> list[Action]:
        """Handle a grant to the leader that this broker's own Raft member reports."""
        return [*self._granted(grant, now_ms), *self.tick(now_ms)]

    def poll_soon(self, now_ms: int) -> list[Action]:
        """Poll at once: the controllers may know more than this broker."""
        self._poll_due_ms = 0
        return self.tick(now_ms)

    def _why_disbelieved(self, master_epoch: int, grant: Grant | None) -> str | None:
        """The reason why no cluster can have reached these epochs; None if a cluster can."""
        if grant is not None:
            master_epoch = max(master_epoch, grant.master_epoch)
            if (why := why_too_far(grant.sync_state_set_epoch, self._set_epoch)) is not None:
                return f"SyncStateSet: {why}"
        return why_too_far(master_epoch, max(self._seen_epoch, self.master_epoch, self._log_epoch))

    def _enter(self, stage: RegistrationStage) -> None:
        assert stage in NEXT[self._stage], f"{self._stage} -> {stage}"
        self._stage = stage

    def _granted_identity(self) -> Identity:
        assert self._temporary is not None
        return Identity(
            self.cluster_name, self.broker_name, self._temporary.broker_id, self._temporary.check_code
        )

    def _take_set_reply(self, reply: ControllerReply, now_ms: int, wall_ms: int) -> None:
        """Handle the answer in FORGOTTEN. The broker applies for its own id again only if the set still exists. A set that was
        cleaned starts with the first broker that comes, and this log may be no copy of that broker's log. Upstream's
        controllers answer any broker, so their answer cannot distinguish the two cases."""
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._apply_again(wall_ms)
        elif reply.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST):
            self._enter(RegistrationStage.NAMED)  # an operator has to act
            self._call_due_ms = now_ms + self._poll_ms
        else:
            self._call_due_ms = now_ms + RETRY_MS

    def _new_check_code(self, wall_ms: int) -> str:
        return f"{self._address};{wall_ms};{self._nonce}"

    def _apply_again(self, wall_ms: int) -> None:
        assert self._identity is not None
        code = self._identity.check_code or self._new_check_code(wall_ms)
        self._temporary = TemporaryIdentity(
            self.cluster_name, self.broker_name, self._identity.broker_id, code
        )
        self._enter(RegistrationStage.DRAWN)

    def _polled(self, reply: ControllerReply, now_ms: int, wall_ms: int) -> list[Action]:
        self._poll_due_ms = now_ms + self._poll_ms
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED and reply.other_address:
            self._seen_epoch = max(self._seen_epoch, reply.master_epoch)  # a copy may have led since,
            self._known_start_number = 0  # or may count as a holder of data that this disk does not have
            self._enter(RegistrationStage.SET_BACK)
            return [Duplicate(reply.other_address, registered=True)]
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._apply_again(wall_ms)
            return []
        if reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self._enter(
                RegistrationStage.NAMED
            )  # the set was cleaned; registrations (1003) return the same until an operator acts
            self._call_due_ms = now_ms + self._poll_ms
            return []
        if reply.code != ResponseCode.SUCCESS:
            self._call_due_ms = now_ms + RETRY_MS
            return []
        self._is_current = True
        self._seen_epoch = max(self._seen_epoch, reply.master_epoch)
        if (
            self._role is ReplicaRole.MASTER
            and reply.grant is not None
            and reply.grant.master_epoch == self.master_epoch
        ):
            self._vouched_ms = self._asked_ms
        self._elect = reply.grant is None and not self._is_async_learner
        twice = [Duplicate(reply.other_address, registered=False)] if reply.other_address else []
        return [*twice, *self._granted(reply.grant, now_ms)]

    def _elected(self, reply: ControllerReply, now_ms: int) -> list[Action]:
        if reply.grant is not None and reply.code in (
            ResponseCode.SUCCESS,
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        ):
            self._elect, self._is_current = False, True
            return self._granted(reply.grant, now_ms)
        self._call_due_ms = now_ms + ELECT_RETRY_MS
        self._poll_due_ms = 0
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._elect = False
            self._enter(RegistrationStage.NAMED)
        return []

    def _granted(self, grant: Grant | None, now_ms: int) -> list[Action]:
        if grant is None:
            return []
        self._in_sync = self.broker_id in grant.sync_state_set
        self._seen_epoch = max(self._seen_epoch, grant.master_epoch)
        if grant.master_epoch < self._seen_epoch:
            return []
        if self._stage is RegistrationStage.REGISTERED and self._is_of_a_copy(grant):
            return [Duplicate(grant.master_address, registered=True)]
        self._set_epoch = grant.sync_state_set_epoch
        if grant.master_epoch > max(self.master_epoch, self._refused_epoch):
            self._elect = False
            if self._wanted is not None and grant.master_epoch <= self._wanted.master_epoch:
                return []
            self._wanted, self._role_due_ms = grant, now_ms
            return [RoleAnnounced(grant)]
        taken = self._taken
        if taken is None or (grant.master_epoch, grant.master_id) != (taken.master_epoch, taken.master_id):
            return []
        if self._role is ReplicaRole.MASTER:
            return [SetRead(grant.sync_state_set, grant.sync_state_set_epoch)]
        if grant.master_address != taken.master_address:
            self._taken = grant
            return [MasterMoved(grant.master_address, grant.master_epoch)]
        return []

    def _is_of_a_copy(self, grant: Grant) -> bool:
        """Whether `grant` makes another process with this broker's id master."""
        return grant.master_id == self.broker_id and grant.master_address != self._address

    # -- roles

    def role_taken(self, grant: Grant, now_ms: int) -> list[Action]:
        """Called when the change of role has succeeded, durably."""
        assert grant.master_epoch > self.master_epoch
        self._taken, self._vouched_ms = grant, None
        self._role = ReplicaRole.MASTER if grant.master_id == self.broker_id else ReplicaRole.SLAVE
        return self._changed(grant, now_ms)

    def role_refused(self, grant: Grant, now_ms: int) -> list[Action]:
        """Keep the present role, because the log knows a newer epoch than `grant`. `grant` is never tried again."""
        self._refused_epoch = max(self._refused_epoch, grant.master_epoch)
        return self._changed(grant, now_ms)

    def role_failed(self, now_ms: int) -> list[Action]:
        """Leave the role after a change that failed half-way, until the change is repeated with success."""
        self._changing = False
        self._role = ReplicaRole.NONE
        self._role_due_ms = now_ms + ROLE_RETRY_MS
        return self.tick(now_ms)

    def _changed(self, grant: Grant, now_ms: int) -> list[Action]:
        self._changing = False
        if self._wanted is not None and self._wanted.master_epoch <= grant.master_epoch:
            self._wanted = None
        return self.tick(now_ms)
