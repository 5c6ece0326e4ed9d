"""A broker's place in its set: its id, and which role the controllers granted. The one owner of the role.

Invariant: a role is taken only for a masterEpoch above every one taken or refused before, and not below one known of, and
that epoch counts as taken only when the change has succeeded. What was granted before this process registered is not taken:
the process before may have had a longer log. A master accepts sends only while no newer masterEpoch is known and it does not
stop. One controller call and one change of role are under way at a time; neither waits for the other.

A grant and a SyncStateSet come only from an answer to a request of this broker. A notification (1008), which anybody can send,
makes it ask: at once, at most once in `HINT_EVERY_MS`, and without waiting for a call that is under way. An epoch that no
cluster could have reached since the newest known one is not believed of anybody (`epochfile.history.why_too_far`).

    UNNAMED --next id--> DRAWN --saved--> APPLYING --granted--> GRANTED --saved--> NAMED --registered--> REGISTERED
    APPLYING --another's id--> UNNAMED, or NAMED for one that had it before
    NAMED --id unknown--> FORGOTTEN --was let in--> DRAWN, with the own id    FORGOTTEN --not by this set--> NAMED
    REGISTERED --id unknown--> DRAWN, with the own id    REGISTERED --set unknown--> NAMED
    NAMED --a newer disk of this store was heard of--> SET_BACK --noted--> NAMED

Who is forgotten while its set lives on applies for its id again, with the check code that it had it by, and keeps its role
meanwhile. An id that is another's by now is given up to that one, and this broker, whose log is of another life of the set,
stays out for an operator to look at.

A member of a pair or a Raft group is APPOINTED by its configuration for the life of the process, and no controller is called.

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
    Reply,
    RoleAnnounced,
    SaveIdentity,
    SaveTemporary,
    SetRead,
)
from broker.role.identity import Identity, TemporaryIdentity
from epochfile.history import why_too_far
from mqruntime.core import NEVER_MS
from remoting.codes import ResponseCode

PAIR_EPOCH = 1  # of the one role that a member of a pair ever takes
RETRY_MS = 300  # start-up calls that failed: upstream pauses a second and more
TAKEN_RETRY_MS = 50  # brokers that start together race for ids
ELECT_RETRY_MS = 500
ROLE_RETRY_MS = 1000
HINT_EVERY_MS = 100
"""Between two questions that notifications caused: the first is asked at once, and one after the last of a flood."""
MASTER_ROLE_ID = 0
VOUCHED_MS = 20_000
"""So long after controllers were asked who said that this broker leads, none is taken to lead in its place. A client trusts a
lock for 30 s, and a new master keeps it for 60 s: of the rest 10 s are for controllers that lead no more and do not know."""


class Stage(Enum):
    """How far the broker is with the controllers."""

    UNNAMED = "unnamed"  # no id: ask for the next one (1012)
    DRAWN = "drawn"  # an id to apply for: write the temporary file
    APPLYING = "applying"  # temporary file durable: apply for its id (1013)
    GRANTED = "granted"  # id granted: write the identity file
    NAMED = "named"  # identity durable: register (1003)
    SET_BACK = "set back"  # the disk is an earlier image: write that down
    FORGOTTEN = "forgotten"  # controllers do not know the id: did this set let it in before (1004)?
    REGISTERED = "registered"  # known to the controllers: poll (1004), elect (1002) when there is no master
    APPOINTED = "appointed"  # by the configuration of a pair or a Raft group


NEXT = {
    Stage.UNNAMED: {Stage.DRAWN},
    Stage.DRAWN: {Stage.APPLYING},
    Stage.APPLYING: {Stage.GRANTED, Stage.UNNAMED, Stage.NAMED},
    Stage.GRANTED: {Stage.NAMED},
    Stage.NAMED: {Stage.REGISTERED, Stage.FORGOTTEN, Stage.SET_BACK},
    Stage.SET_BACK: {Stage.NAMED},
    Stage.FORGOTTEN: {Stage.NAMED, Stage.DRAWN},
    Stage.REGISTERED: {Stage.NAMED, Stage.DRAWN, Stage.SET_BACK},
}


class Role(Enum):
    """What the broker does with its log."""

    NONE = "none"  # fenced: neither serves nor replicates
    MASTER = "master"
    SLAVE = "slave"


MASTER = Role.MASTER
"""Looked up for every send: an enum's own attributes are slow to find."""


class Membership:
    """Made before anything else of a broker; `restore` and `reached_at` once identity and address are known, then `tick`.
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
        """An async learner asks for no election: the first one takes who asks, and a learner must not lead. `nonce` is random:
        address and time alone, upstream's check code, could be guessed."""
        self.cluster_name = cluster_name
        self.broker_name = broker_name
        self._poll_ms = poll_ms
        self._nonce = nonce
        self._is_async_learner = is_async_learner
        self._address = ""
        self._identity: Identity | None = None
        self._temporary: TemporaryIdentity | None = None
        self._stage = Stage.UNNAMED
        self._role = Role.NONE
        self._stopping = False
        self._taken: Grant | None = None
        self._wanted: Grant | None = None
        self._refused_epoch = 0
        self._seen_epoch = 0
        self._elect = False
        self._is_current = False  # the controllers were asked since this process registered
        self._calling = False  # a save or a call is under way
        self._calls_held = False
        self._in_sync = False  # when the controllers were asked last
        self._changing = False  # a change of role is
        self._call_due_ms = 0
        self._poll_due_ms = 0
        self._hinted = False  # a notification came that nobody was asked about yet
        self._hint_due_ms = 0
        self._log_epoch = 0
        self._set_epoch = 0
        """Of the SyncStateSet that was read last; 0: none was."""
        self._role_due_ms = 0
        self._asked_ms = 0
        self._known_start_number = 0
        self._vouched_ms: int | None = None
        """When the controllers were asked that named us master under the present epoch."""

    def restore(self, identity: Identity | TemporaryIdentity | None, log_epoch: int = 0) -> None:
        """Who we are, or ask to be, as the disk says, and the newest epoch of the log; below 1: it has none."""
        self._log_epoch = log_epoch
        if isinstance(identity, Identity):
            self._identity, self._stage = identity, Stage.NAMED
        elif identity is not None:
            self._temporary, self._stage = identity, Stage.APPLYING

    def appointed(self, broker_id: int, *, leads: bool) -> None:
        """The configuration of a pair says who we are and our role; a slave's master is not known yet."""
        assert leads == (broker_id == MASTER_ROLE_ID)
        self._identity = Identity(self.cluster_name, self.broker_name, broker_id)
        self._stage = Stage.APPOINTED
        self._seen_epoch = PAIR_EPOCH
        self._wanted = Grant(PAIR_EPOCH, MASTER_ROLE_ID, "", frozenset(), 0)

    def member_of_group(self, broker_id: int) -> None:
        """The configuration of a Raft group says who we are; the group grants roles, each under its term."""
        self._identity = Identity(self.cluster_name, self.broker_name, broker_id)
        self._stage = Stage.APPOINTED
        self._is_current = True

    def deposed(self) -> None:
        """A Raft group's leader leads no more, whoever does; the term that it led, or was about to, is over for it."""
        for grant in (self._taken, self._wanted):
            if grant is not None and grant.master_id == self.broker_id:
                self._seen_epoch = max(self._seen_epoch, grant.master_epoch + 1)

    def pair_led_at(self, master_address: str) -> bool:
        """Name servers say where our pair's master is; whether that is news to a slave."""
        if self._stage is not Stage.APPOINTED or self._taken is None or self._role is not Role.SLAVE:
            return False
        former, self._taken = self._taken, replace(self._taken, master_address=master_address)
        return former.master_address != master_address

    def reached_at(self, address: str) -> None:
        """The ports are open: clients and controllers call us at `address`, host:port."""
        self._address = address

    # -- what others ask

    @property
    def address(self) -> str:
        return self._address

    @property
    def role(self) -> Role:
        return self._role

    @property
    def is_slave(self) -> bool:
        return self._role is Role.SLAVE

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def accepts_sends(self) -> bool:
        return self._role is MASTER and self._seen_epoch <= self.master_epoch and not self._stopping

    def may_have_a_successor(self, now_ms: int) -> bool:
        """Whether another may lead without this master having heard of it: controllers did not answer it for a while. In a pair
        nobody does, and a Raft group's leader that hears no majority leads no more."""
        if self._stage is Stage.APPOINTED:
            return False
        return self._vouched_ms is None or now_ms >= self._vouched_ms + VOUCHED_MS

    @property
    def broker_id(self) -> int | None:
        """The id that controllers know us by, once it is durable."""
        return self._identity.broker_id if self._identity else None

    @property
    def check_code(self) -> str:
        """With which that id was granted, where that is known."""
        return self._identity.check_code if self._identity else ""

    @property
    def role_id(self) -> int | None:
        """The id that name servers and clients see: 0 on a master; None before the first role."""
        if self._role is Role.NONE:
            return None
        return MASTER_ROLE_ID if self._role is Role.MASTER else self.broker_id

    @property
    def master_epoch(self) -> int:
        """Of the role taken; 0 before."""
        return self._taken.master_epoch if self._taken else 0

    @property
    def master_address(self) -> str | None:
        """Where a slave finds its master."""
        return self._taken.master_address or None if self._taken is not None and self.is_slave else None

    @property
    def registered(self) -> bool:
        return self._stage is Stage.REGISTERED

    @property
    def in_sync(self) -> bool:
        """Whether the controllers' SyncStateSet had this broker when they were asked last."""
        return self._in_sync

    @property
    def calls_held(self) -> bool:
        return self._calls_held

    @property
    def next_tick_ms(self) -> int:
        role_ms = NEVER_MS if self._wanted is None or self._changing else self._role_due_ms
        if self._hinted and self._may_ask_about_hint():
            role_ms = min(role_ms, self._hint_due_ms)
        if self._calling or self._calls_held or self._stage is Stage.APPOINTED:
            return role_ms
        polls = self._stage is Stage.REGISTERED and not self._elect
        return min(role_ms, max(self._call_due_ms, self._poll_due_ms) if polls else self._call_due_ms)

    # -- time

    def tick(self, now_ms: int) -> list[Action]:
        """Call at `next_tick_ms` or later, and once to begin."""
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
        """The one thing to do now about identity and controllers."""
        if now_ms < self._call_due_ms or self._calls_held:
            return None
        match self._stage:
            case Stage.APPOINTED:
                return None
            case Stage.UNNAMED:
                return NextIdCall()
            case Stage.DRAWN:
                assert self._temporary is not None
                return SaveTemporary(self._temporary)
            case Stage.APPLYING:
                assert self._temporary is not None
                return ApplyIdCall(self._temporary)
            case Stage.GRANTED:
                return SaveIdentity(self._granted_identity())
            case Stage.SET_BACK:
                return NoteSetBack(self._known_start_number)
            case Stage.FORGOTTEN:
                return PollCall()
        assert self.broker_id is not None
        if self._stage is Stage.NAMED:
            return RegisterCall(self.broker_id)
        if self._elect:
            return ElectCall(self.broker_id)
        return PollCall() if now_ms >= self._poll_due_ms else None

    def hold_calls(self) -> None:
        """The controllers are about to forget this broker, which then must not ask to be known again; roles go on."""
        self._calls_held = True

    def release_calls(self) -> None:
        """They did not, or it stays all the same."""
        self._calls_held = False

    def stop(self) -> None:
        """The broker stops: from now on nothing is accepted and nothing served."""
        self._stopping = True

    # -- controllers

    def saved(self, now_ms: int) -> list[Action]:
        """The file of the last Save, or NoteSetBack, is durable."""
        self._calling = False
        if self._stage is Stage.SET_BACK:
            self._enter(Stage.NAMED)
        elif self._stage is Stage.GRANTED:
            self._identity, self._temporary = self._granted_identity(), None
            self._enter(Stage.NAMED)
        else:
            self._enter(Stage.APPLYING)
        return self.tick(now_ms)

    def replied(self, call: Call, reply: Reply, now_ms: int, wall_ms: int) -> list[Action]:
        """A controller answered `call`; `wall_ms` dates a check code."""
        if (why := self._why_disbelieved(reply.master_epoch, reply.grant)) is not None:
            return [Disbelieved("answer", why), *self.not_replied(now_ms)]
        self._calling = False
        actions: list[Action] = []
        match call:
            case PollCall() if self._stage is Stage.FORGOTTEN:
                self._told_of_set(reply, now_ms, wall_ms)
            case PollCall():
                actions = self._polled(reply, now_ms, wall_ms)
            case NextIdCall() if reply.code == ResponseCode.SUCCESS and reply.next_broker_id > 0:
                check_code = self._new_check_code(wall_ms)
                self._temporary = TemporaryIdentity(
                    self.cluster_name, self.broker_name, reply.next_broker_id, check_code
                )
                self._enter(Stage.DRAWN)
            case ApplyIdCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(Stage.GRANTED)
            case ApplyIdCall() if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                if self._identity is None:
                    self._enter(
                        Stage.UNNAMED
                    )  # certainly another's; the next temporary file replaces this one
                    self._call_due_ms = now_ms + TAKEN_RETRY_MS
                else:
                    self._enter(Stage.NAMED)
                    self._call_due_ms = now_ms + self._poll_ms
            case RegisterCall() if reply.code == ResponseCode.SUCCESS:
                self._enter(Stage.REGISTERED)
                self._poll_due_ms = now_ms + self._poll_ms
                self._elect = reply.grant is None and not self._is_async_learner
                self._is_current = reply.grant is not None
                actions = [BeginHeartbeats(), *self._granted(reply.grant, now_ms)]
            case RegisterCall() if reply.known_start_number:
                self._known_start_number = reply.known_start_number
                self._enter(Stage.SET_BACK)
            case RegisterCall() if reply.other_address:
                self._call_due_ms = now_ms + self._poll_ms
                actions = [Duplicate(reply.other_address, registered=True)]
            case ElectCall():
                actions = self._elected(reply, now_ms)
            case RegisterCall() if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._enter(Stage.FORGOTTEN)
            case _:
                self._call_due_ms = now_ms + RETRY_MS
        return [*actions, *self.tick(now_ms)]

    def not_replied(self, now_ms: int) -> list[Action]:
        """The last call got no answer: what the controller did, if it got it, is unknown, and it is made again."""
        self._calling = False
        self._call_due_ms = now_ms + RETRY_MS
        return self.tick(now_ms)

    def notified(self, grant: Grant, now_ms: int) -> list[Action]:
        """Somebody says that `grant` was made (1008), perhaps a controller. Only controllers that were asked say who is master;
        a broker that is not registered yet asks them anyway."""
        if self._stage is Stage.APPOINTED or not (self._is_current or self._stage is Stage.REGISTERED):
            return []
        if (why := self._why_disbelieved(grant.master_epoch, grant)) is not None:
            return [Disbelieved("notification", why)]
        if not self._is_news(grant):
            return []
        self._hinted = True
        return self.tick(now_ms)

    def _is_news(self, grant: Grant) -> bool:
        """Whether it may be worth a question: a master's set moves without its epoch."""
        taken = self._taken
        if grant.master_epoch < self._seen_epoch:
            return False
        known = taken is not None and (taken.master_epoch, taken.master_id, taken.master_address) == (
            grant.master_epoch,
            grant.master_id,
            grant.master_address,
        )
        return not known or self._role is Role.MASTER

    def _may_ask_about_hint(self) -> bool:
        """Once the controllers were asked all of them may be; before that a controller that was deposed might tell what was
        granted to the process before, so only the one is that this process registered at, after the call under way."""
        return self._is_current or (self._stage is Stage.REGISTERED and not self._calling)

    def _ask_about_hint(self, now_ms: int) -> list[Action]:
        if not self._hinted or now_ms < self._hint_due_ms or not self._may_ask_about_hint():
            return []
        self._hinted, self._hint_due_ms = False, now_ms + HINT_EVERY_MS
        if self._is_current:
            return [AskAll()]
        self._elect, self._poll_due_ms, self._call_due_ms = False, 0, now_ms
        return []

    def answered(self, reply: Reply, now_ms: int) -> list[Action]:
        """A controller, one of all that were asked, says who is master. It vouches for nobody: it may be one that leads no more
        and does not know."""
        if not self._is_current:
            return []
        if reply.code != ResponseCode.SUCCESS:
            return self.poll_soon(now_ms)  # which asks again, and heeds why
        if (why := self._why_disbelieved(reply.master_epoch, reply.grant)) is not None:
            return [Disbelieved("answer", why)]
        if reply.grant is None:
            return self.poll_soon(now_ms) if reply.master_epoch >= self._seen_epoch else []
        return [*self._granted(reply.grant, now_ms), *self.tick(now_ms)]

    def unanswered(self, now_ms: int) -> list[Action]:
        """None of the controllers that were asked leads: the next poll looks for the one that does."""
        return self.poll_soon(now_ms)

    def decided(self, grant: Grant, now_ms: int) -> list[Action]:
        """This broker's own member of a Raft group says who leads it."""
        return [*self._granted(grant, now_ms), *self.tick(now_ms)]

    def poll_soon(self, now_ms: int) -> list[Action]:
        """Something suggests that the controllers know more than we do."""
        self._poll_due_ms = 0
        return self.tick(now_ms)

    def _why_disbelieved(self, master_epoch: int, grant: Grant | None) -> str | None:
        """Why an answer that names these epochs cannot be true."""
        if grant is not None:
            master_epoch = max(master_epoch, grant.master_epoch)
            if (why := why_too_far(grant.sync_state_set_epoch, self._set_epoch)) is not None:
                return f"SyncStateSet: {why}"
        return why_too_far(master_epoch, max(self._seen_epoch, self.master_epoch, self._log_epoch))

    def _enter(self, stage: Stage) -> None:
        assert stage in NEXT[self._stage], f"{self._stage} -> {stage}"
        self._stage = stage

    def _granted_identity(self) -> Identity:
        assert self._temporary is not None
        return Identity(
            self.cluster_name, self.broker_name, self._temporary.broker_id, self._temporary.check_code
        )

    def _told_of_set(self, reply: Reply, now_ms: int, wall_ms: int) -> None:
        """Only in a set that goes on is the own id asked for again: a set that was cleaned whole begins anew, with whoever
        comes first, and this log may not be a copy of that one's. Controllers of upstream's, which answer any broker, cannot
        tell."""
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._apply_again(wall_ms)
        elif reply.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST):
            self._enter(Stage.NAMED)  # an operator has to act
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
        self._enter(Stage.DRAWN)

    def _polled(self, reply: Reply, now_ms: int, wall_ms: int) -> list[Action]:
        self._poll_due_ms = now_ms + self._poll_ms
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED and reply.other_address:
            self._seen_epoch = max(self._seen_epoch, reply.master_epoch)  # a copy may have led since,
            self._known_start_number = 0  # or have been counted for what is not on this disk
            self._enter(Stage.SET_BACK)
            return [Duplicate(reply.other_address, registered=True)]
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._apply_again(wall_ms)
            return []
        if reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self._enter(Stage.NAMED)  # the set was cleaned: 1003 says so too, until an operator acts
            self._call_due_ms = now_ms + self._poll_ms
            return []
        if reply.code != ResponseCode.SUCCESS:
            self._call_due_ms = now_ms + RETRY_MS
            return []
        self._is_current = True
        self._seen_epoch = max(self._seen_epoch, reply.master_epoch)
        if (
            self._role is Role.MASTER
            and reply.grant is not None
            and reply.grant.master_epoch == self.master_epoch
        ):
            self._vouched_ms = self._asked_ms
        self._elect = reply.grant is None and not self._is_async_learner
        twice = [Duplicate(reply.other_address, registered=False)] if reply.other_address else []
        return [*twice, *self._granted(reply.grant, now_ms)]

    def _elected(self, reply: Reply, now_ms: int) -> list[Action]:
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
            self._enter(Stage.NAMED)
        return []

    def _granted(self, grant: Grant | None, now_ms: int) -> list[Action]:
        if grant is None:
            return []
        self._in_sync = self.broker_id in grant.sync_state_set
        self._seen_epoch = max(self._seen_epoch, grant.master_epoch)
        if grant.master_epoch < self._seen_epoch:
            return []
        if self._stage is Stage.REGISTERED and self._is_of_a_copy(grant):
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
        if self._role is Role.MASTER:
            return [SetRead(grant.sync_state_set, grant.sync_state_set_epoch)]
        if grant.master_address != taken.master_address:
            self._taken = grant
            return [MasterMoved(grant.master_address, grant.master_epoch)]
        return []

    def _is_of_a_copy(self, grant: Grant) -> bool:
        """Whether it makes another process master that has this broker's id."""
        return grant.master_id == self.broker_id and grant.master_address != self._address

    # -- roles

    def role_taken(self, grant: Grant, now_ms: int) -> list[Action]:
        """The change succeeded, durably."""
        assert grant.master_epoch > self.master_epoch
        self._taken, self._vouched_ms = grant, None
        self._role = Role.MASTER if grant.master_id == self.broker_id else Role.SLAVE
        return self._changed(grant, now_ms)

    def role_refused(self, grant: Grant, now_ms: int) -> list[Action]:
        """The log knows a newer epoch than `grant`: the role stays as it is, and this epoch is never tried again."""
        self._refused_epoch = max(self._refused_epoch, grant.master_epoch)
        return self._changed(grant, now_ms)

    def role_failed(self, now_ms: int) -> list[Action]:
        """The change broke off half-way: no role until it has been repeated with success."""
        self._changing = False
        self._role = Role.NONE
        self._role_due_ms = now_ms + ROLE_RETRY_MS
        return self.tick(now_ms)

    def _changed(self, grant: Grant, now_ms: int) -> list[Action]:
        self._changing = False
        if self._wanted is not None and self._wanted.master_epoch <= grant.master_epoch:
            self._wanted = None
        return self.tick(now_ms)
