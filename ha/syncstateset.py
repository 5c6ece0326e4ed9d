"""The master's counting of its SyncStateSet, during one mastership, and its proposal to change the set.

`tick` proposes to remove members that are out of sync (`SlaveProgress.out_of_sync_reason` has the reasons) and to add slaves
that have caught up. The controllers decide (controller/commands.py, CONTROLLER_ALTER_SYNC_STATE_SET). The set also changes
without a proposal: after an election the elected master is the only member (controller/state.py), and an operator's cleaning
removes a broker.

Sends wait for three groups of brokers: the set that the controllers have applied, a proposed set with an open outcome, and
slaves about to be proposed. Acks and the confirm offset are counted over the union of these groups.

Invariant: every member of the union holds every byte below `confirm_offset`. So whether or not the controllers accept an open
proposal, all members of their set hold all confirmed data. The union becomes smaller only by an applied set, or after a
rejection that covers all earlier sendings of the proposal. After an unknown outcome the master reads the controllers' set.
Unless this set is newer, the master sends the proposal again unchanged, because the earlier sending may still wait at a
controller that leads again later.

Nothing is confirmed while the applied set has fewer than `members_min` members, or before the controllers have applied an Alter
of this master epoch that announces `members_min`. Until then, and while the set is too small, they may elect a broker that left
it (KIP-966).

    SETTLED --wish, Alter--> PROPOSED --applied, rejected--> SETTLED
    PROPOSED --unknown, ReadSet--> UNSETTLED --the old set was read, or nothing in time, the same Alter--> PROPOSED
    any --a newer set, a newer master epoch--> SETTLED

Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ha import confirm
from ha.slaveprogress import SetLimits, SlaveProgress


@dataclass(frozen=True, slots=True)
class Alter:
    """Ask the controllers to change the set of `set_epoch` to `members`, under `master_epoch`. The request also announces that
    nothing is acknowledged with fewer than `members_min` members; with `same_members` it only announces this. Report the
    outcome to `alter_ended`. If it is sent `again`, an earlier sending may have been accepted, or may still be accepted."""

    members: frozenset[int]
    set_epoch: int
    master_epoch: int
    members_min: int = 1
    same_members: bool = False
    reason: str = field(default="", compare=False)
    again: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """Read the controllers' set soon, and report it to `observe`. The controllers know more than this master."""


@dataclass(slots=True)
class Confirmed:
    """The confirm offset, or the end up to which sends may be answered, has moved."""

    offset: int


Action = Alter | ReadSet | Confirmed

REFUSALS_COUNTED = 5
"""After this number of rejections in a row, the delay before the next Alter no longer doubles."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The controllers accepted an Alter. This is their set now."""

    members: frozenset[int]
    set_epoch: int


@dataclass(frozen=True, slots=True)
class AlterRefused:
    """A controller rejected the Alter, so this sending did not change the set. If the set has a newer epoch now, it is
    returned, and no other sending will change the set either."""

    members: frozenset[int] | None = None
    set_epoch: int = 0


@dataclass(frozen=True, slots=True)
class AnnouncementNotNeeded:
    """The controllers are upstream's. They elect only members of the set, so they need no announcement of `members_min`."""


@dataclass(frozen=True, slots=True)
class AlterNotSent:
    """No controller that could decide received this sending."""


@dataclass(frozen=True, slots=True)
class AlterUnknown:
    """The Alter may have been accepted, or may still be accepted. This is also the outcome if another master leads now: an
    earlier sending may have been accepted before, and a slave that it added may be that master."""


AlterOutcome = Applied | AlterRefused | AnnouncementNotNeeded | AlterNotSent | AlterUnknown


class SyncStateSet:
    """The counting. Its inputs are changes of the log, of links and of Alters, and the time (`tick`). The caller performs the
    returned actions in order."""

    def __init__(
        self,
        *,
        own_id: int,
        members: frozenset[int],
        set_epoch: int,
        master_epoch: int,
        epoch_start: int,
        log_end: int,
        confirm_offset: int,
        members_min: int,
        limits: SetLimits,
        now_ms: int,
    ) -> None:
        """`confirm_offset` is the offset up to which all members hold the log, as stored in this log. `epoch_start` is the
        start of the master epoch. `members_min` is minInSyncReplicas."""
        self._own_id = own_id
        self._applied = members | {own_id}
        self._set_epoch = set_epoch
        self._master_epoch = master_epoch
        self._epoch_start = epoch_start
        self._log_end = log_end
        self._confirm_offset = min(confirm_offset, log_end)
        self._limits = limits
        self._master_since_ms = now_ms
        self._check_due_ms = now_ms
        self._proposal: Alter | None = None
        self._in_flight = False  # the proposal was sent and has no outcome yet
        self._outcome_open = False  # an earlier sending of the proposal has an unknown outcome
        self._resend_now = False  # once it is known that the controllers' set is still the old set
        self._alter_due_ms = now_ms
        self._refusals = 0  # rejections in a row; each is an entry in the controllers' log
        self._members_min = members_min
        self._announced_min: tuple[int, int] | None = (
            None  # (set epoch of the Alter, the announced `members_min`)
        )
        self._slaves: dict[int, SlaveProgress] = {}
        self._counted: list[SlaveProgress | None] | None = None  # the last result of `_others`
        self._counted_known = False  # set only by `_recount_ends`, and unset when more than log ends changes
        self._recount()

    # -- read by others

    @property
    def confirm_offset(self) -> int:
        return self._confirm_offset

    @property
    def applied_members(self) -> frozenset[int]:
        return self._applied

    @property
    def set_epoch(self) -> int:
        return self._set_epoch

    @property
    def next_tick_ms(self) -> int:
        return self._check_due_ms

    def union(self) -> frozenset[int]:
        """The brokers over which acks are counted."""
        union = self._applied if self._proposal is None else self._applied | self._proposal.members
        for broker_id, slave in self._slaves.items():
            if slave.joining_ms is not None and broker_id not in union:
                union |= {broker_id}
        return union

    def may_confirm(self) -> bool:
        """Whether the applied set has enough members, and the controllers know the minimum."""
        if self._announced_min is None:
            return False
        announced, wanted = self._announced_min[1], self._members_min
        return confirm.enough(len(self._applied), announced if announced > wanted else wanted)

    def acked_end(self) -> int:
        """The offset up to which sends may be answered OK: every member of the applied set and of all proposed sets holds them.
        0 while no send may be answered OK."""
        return self._confirm_offset if self.may_confirm() else 0

    # -- the log and the links

    def begin(self, now_ms: int) -> list[Action]:
        """Call this once, before any other method."""
        return [Confirmed(self._confirm_offset), *self.tick(now_ms)]

    def log_grew(self, log_end: int) -> list[Action]:
        """Note the end of the master's log, as far as it counts."""
        self._log_end = log_end
        return self._recount_ends()

    def connected(self, broker_id: int, *, excluded: str | None) -> list[Action]:
        """Note a handshake of this id. The new link replaces a former link, and the slave's log end is unknown until the first
        ack. `excluded` is a reason not to count the slave: it does not join the set, leaves it if it is a member, and its acks
        do not count."""
        self._slaves.setdefault(broker_id, SlaveProgress()).handshaken(excluded=excluded)
        return self._recount()

    def disconnected(self, broker_id: int, now_ms: int) -> list[Action]:
        """Note that the newest link of this id has ended. This alone removes no member."""
        self._slaves[broker_id].gone(now_ms)
        return self._recount()

    def acked(self, broker_id: int, offset: int, caught_up_ms: int | None, now_ms: int) -> list[Action]:
        """Note an ack over the newest link of this id: its log ends at `offset`. For `caught_up_ms` see MasterLink."""
        slave = self._slaves[broker_id]
        slave.acked(offset, caught_up_ms)
        if broker_id in self._applied:
            return self._recount_ends()
        self._counted_known = False
        if slave.joining_ms is None and slave.may_join(self._epoch_start, self._limits, now_ms):
            slave.joining_ms = now_ms
        return [*self._recount(), *self._alter_if_wanted(now_ms)]

    # -- time and settings

    def members_min_is(self, members_min: int, now_ms: int) -> list[Action]:
        """Set minInSyncReplicas, which may have changed. A higher value counts at once, a lower value once the controllers have
        applied it."""
        self._members_min = members_min
        self._counted_known = False
        return self._alter_if_wanted(now_ms)

    def tick(self, now_ms: int) -> list[Action]:
        """Check all slaves, and propose another set if one is due. Call this at `next_tick_ms` or later."""
        self._check_due_ms = now_ms + self._limits.check_ms
        for slave in self._slaves.values():
            if slave.joining_ms is not None or slave.catch_up_target is not None:
                self._look_at(slave, now_ms)
        self._forget_gone(now_ms)
        return [*self._recount(), *self._alter_again(now_ms), *self._alter_if_wanted(now_ms)]

    def _look_at(self, slave: SlaveProgress, now_ms: int) -> None:
        """Stop waiting for a joining slave after a while, and sooner for a silent slave. A slave that is already proposed stays
        in the union until the proposal is settled. If it joins by then, it leaves the set again."""
        slave.look(self._log_end, now_ms)
        if slave.joining_ms is not None and (
            now_ms - slave.joining_ms > self._limits.join_ms_max or slave.stalls(self._limits, now_ms)
        ):
            slave.joining_ms = None

    def _forget_gone(self, now_ms: int) -> None:
        """Drop ids that were replaced, so that their number does not slow the handling of acks for the rest of the
        mastership."""
        union = self.union()
        for broker_id, slave in list(self._slaves.items()):
            if broker_id not in union and slave.gone_ms(now_ms) > self._limits.not_caught_up_ms_max:
                del self._slaves[broker_id]

    # -- the controllers

    def observe(self, members: frozenset[int], set_epoch: int, now_ms: int) -> list[Action]:
        """Handle the controllers' set under this master epoch, from a read, a notice or a reply. No effect if the set is older,
        or does not contain this master. Of two sets with one epoch, the smaller set is newer."""
        self._counted_known = False
        if set_epoch > self._set_epoch and self._own_id in members:
            proposal = self._proposal
            if proposal is not None and members == proposal.members and not proposal.same_members:
                self._note_announced_min(proposal)
            return self._adopt(members, set_epoch)
        if self._is_rest(members, set_epoch):
            return self._adopt(members, set_epoch)
        if set_epoch == self._set_epoch and self._resend_now:
            self._alter_due_ms = now_ms
        return self._alter_again(now_ms)

    def _is_rest(self, members: frozenset[int], set_epoch: int) -> bool:
        """Whether an operator has removed members, which changes no epoch: they are no members until they join again. False
        while a proposal is open, because its union still counts."""
        return (
            set_epoch == self._set_epoch
            and self._proposal is None
            and self._own_id in members
            and members < self._applied
        )

    def why_untrue(self, alter: Alter, outcome: AlterOutcome) -> str | None:
        """The reason why no controller can have given this answer to `alter`; None if a controller can. Both kinds of
        controllers accept exactly the requested set, and increment the set's epoch by one. A rejection that increments the
        epoch keeps the set, without members that an operator has removed."""
        if not isinstance(outcome, Applied | AlterRefused) or outcome.members is None:
            return None
        if outcome.set_epoch != alter.set_epoch + 1:
            return f"epoch {outcome.set_epoch} does not follow {alter.set_epoch}, which was named"
        if isinstance(outcome, Applied):
            known, is_true = alter.members, outcome.members == alter.members
        else:
            known = self._applied
            is_true = outcome.set_epoch <= self._set_epoch or (
                self._own_id in outcome.members and outcome.members <= known
            )
        return None if is_true else f"{sorted(outcome.members)} cannot come of {sorted(known)}"

    def alter_ended(self, alter: Alter, outcome: AlterOutcome, now_ms: int) -> list[Action]:
        """Handle the outcome of the last sending of `alter`. No effect if the proposal was settled in another way before."""
        if alter.master_epoch != self._master_epoch:
            return []
        self._counted_known = False
        if isinstance(outcome, Applied | AnnouncementNotNeeded):
            self._note_announced_min(alter)
        if isinstance(outcome, Applied) and (
            actions := self.observe(outcome.members, outcome.set_epoch, now_ms)
        ):
            return actions
        if alter != self._proposal or not self._in_flight:
            return self._recount()
        self._in_flight = False
        self._refusals = self._refusals + 1 if isinstance(outcome, AlterRefused) else 0
        self._alter_due_ms = now_ms + (0 if isinstance(outcome, AnnouncementNotNeeded) else self._retry_ms())
        self._check_due_ms = min(self._check_due_ms, self._alter_due_ms)
        if self._is_over(outcome):
            self._still_wanted(alter.members, now_ms)
            self._settle()
            if (
                isinstance(outcome, AlterRefused)
                and outcome.members is not None
                and outcome.set_epoch > self._set_epoch
            ):
                return self._adopt(outcome.members | {self._own_id}, outcome.set_epoch)
            return self._recount()
        self._resend_now = (
            isinstance(outcome, AlterNotSent) or not self._outcome_open
        )  # otherwise the two could alternate for ever
        self._outcome_open = True
        return [ReadSet()]

    def _retry_ms(self) -> int:
        return self._limits.alter_retry_ms << max(0, min(self._refusals, REFUSALS_COUNTED) - 1)

    def _is_over(self, outcome: AlterOutcome) -> bool:
        """Whether no sending of the proposal can change the set any more."""
        if isinstance(outcome, AlterRefused) and outcome.set_epoch > self._set_epoch:
            return True
        return isinstance(outcome, AnnouncementNotNeeded) or (
            isinstance(outcome, AlterRefused | AlterNotSent) and not self._outcome_open
        )

    def _note_announced_min(self, alter: Alter) -> None:
        if self._announced_min is None or alter.set_epoch >= self._announced_min[0]:
            self._announced_min = alter.set_epoch, alter.members_min

    def epoch_began(
        self, master_epoch: int, epoch_start: int, members: frozenset[int], set_epoch: int, now_ms: int
    ) -> list[Action]:
        """Note that the master was elected again while it was master. Links and log ends stay as they are. A proposal of the
        old epoch can no longer be accepted, and the minimum must be announced again."""
        self._master_epoch = master_epoch
        self._epoch_start = epoch_start
        self._announced_min = None
        return [*self._adopt(members | {self._own_id}, set_epoch), *self._alter_if_wanted(now_ms)]

    def _adopt(self, members: frozenset[int], set_epoch: int) -> list[Action]:
        """Adopt a newer set. An open proposal was based on an older set: it was accepted as this set, or can never be
        accepted."""
        entered, left = members - self._applied, self._applied - members
        self._applied = members
        self._set_epoch = set_epoch
        self._settle()
        for broker_id in entered & self._slaves.keys():
            self._slaves[broker_id].entered(self._log_end)
        for broker_id in left & self._slaves.keys():
            self._slaves[broker_id].catch_up_target = None
        self._recount()
        # even if the offset is unchanged: the minimum may be met now, or not any more
        return [Confirmed(self._confirm_offset)]

    def _settle(self) -> None:
        self._proposal = None
        self._in_flight = self._outcome_open = self._resend_now = False

    # -- the wished set

    def _alter_if_wanted(self, now_ms: int) -> list[Action]:
        if self._proposal is not None or now_ms < self._alter_due_ms:
            return []
        leaving = {
            broker_id: why
            for broker_id in sorted(self._applied)
            if broker_id != self._own_id and (why := self._why_out(broker_id, now_ms))
        }
        held = max(self._confirm_offset, self._epoch_start)
        entering = {
            broker_id: f"holds {slave.ack_offset}"
            for broker_id, slave in sorted(self._slaves.items())
            if broker_id not in self._applied and slave.joining_ms is not None and slave.holds(held)
        }
        same_members = not leaving and not entering
        if same_members and not self._must_announce_min():
            return []
        reasons = [f"shrink {broker_id}: {why}" for broker_id, why in leaving.items()]
        reasons += [f"expand {broker_id}: {why}" for broker_id, why in entering.items()]
        members = self._applied.difference(leaving).union(entering)
        self._proposal = Alter(
            members,
            self._set_epoch,
            self._master_epoch,
            self._members_min,
            same_members,
            "; ".join(reasons) or f"acknowledge with {self._members_min}",
        )
        self._in_flight = True
        return [self._proposal]  # sends already waited for all members, so the union does not change

    def _must_announce_min(self) -> bool:
        """Whether nothing is confirmed only because the controllers do not know `members_min` yet."""
        if not confirm.enough(len(self._applied), self._members_min):
            return False
        return self._announced_min is None or self._announced_min[1] > self._members_min

    def _alter_again(self, now_ms: int) -> list[Action]:
        if self._proposal is None or self._in_flight or now_ms < self._alter_due_ms:
            return []
        self._in_flight, self._resend_now = True, False
        return [replace(self._proposal, again=True)]

    def _still_wanted(self, members: frozenset[int], now_ms: int) -> None:
        """Keep waiting for slaves that could not join although they are caught up. While too few members are in sync nothing is
        appended, so the next ack, which would show that they are caught up, only comes with a heartbeat."""
        for broker_id in members - self._applied:
            slave = self._slaves[broker_id]
            if slave.ack_offset == self._log_end or slave.may_join(self._epoch_start, self._limits, now_ms):
                slave.joining_ms = now_ms

    def _why_out(self, broker_id: int, now_ms: int) -> str | None:
        slave = self._slaves.get(broker_id)
        if slave is not None:
            return slave.out_of_sync_reason(self._master_since_ms, self._limits, now_ms)
        late_ms = now_ms - self._master_since_ms
        return f"not seen for {late_ms} ms" if late_ms > self._limits.not_caught_up_ms_max else None

    # -- the confirm offset

    def _recount(self) -> list[Action]:
        """Count again after a change of the counted brokers."""
        self._counted_known = False
        return self._confirmed_by(self._others())

    def _recount_ends(self) -> list[Action]:
        """Count again after a change of log ends only."""
        if not self._counted_known:
            self._counted, self._counted_known = self._others(), True
        return self._confirmed_by(self._counted)

    def _others(self) -> list[SlaveProgress | None] | None:
        """The slaves whose acks count, in addition to the master's own log end; None while nothing may be confirmed."""
        if not self.may_confirm():
            return None
        return [self._slaves.get(broker_id) for broker_id in self.union() if broker_id != self._own_id]

    def _confirmed_by(self, others: list[SlaveProgress | None] | None) -> list[Action]:
        if others is None:
            return []
        before = self._confirm_offset
        ends = [None if slave is None or slave.excluded is not None else slave.ack_offset for slave in others]
        ends.append(self._log_end)
        self._confirm_offset = confirm.confirm_offset(before, ends)
        return [Confirmed(self._confirm_offset)] if self._confirm_offset > before else []
