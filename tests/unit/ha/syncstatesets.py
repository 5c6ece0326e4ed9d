"""SyncStateSets in given states, and the alters they send."""

from __future__ import annotations

from ha.slaveprogress import SetLimits
from ha.syncstateset import (
    Action,
    Alter,
    AnnouncementNotNeeded,
    SyncStateSet,
)

LIMITS = SetLimits(
    not_caught_up_ms_max=15_000,
    disconnected_ms_max=1_000,
    join_lag_ms_max=1_000,
    join_ms_max=5_000,
    join_stall_ms_max=1_000,
    check_ms=500,
    alter_retry_ms=500,
)


def ids(*members: int) -> frozenset[int]:
    return frozenset(members)


def master(
    *members: int,
    log_end: int = 1000,
    confirm_offset: int = 0,
    epoch_start: int = 500,
    members_min: int = 1,
) -> SyncStateSet:
    """Broker 1's mastership of epoch 4, begun at time 0 with set epoch 7; the controllers know its
    minimum."""
    sss = newly_elected(
        *members,
        log_end=log_end,
        confirm_offset=confirm_offset,
        epoch_start=epoch_start,
        members_min=members_min,
    )
    if asked := alter(sss.tick(0)):
        sss.alter_ended(asked, AnnouncementNotNeeded(), 0)
    return sss


def newly_elected(
    *members: int,
    log_end: int = 1000,
    confirm_offset: int = 0,
    epoch_start: int = 500,
    members_min: int = 1,
) -> SyncStateSet:
    """As `master`, but the controllers do not know its minimum yet."""
    return SyncStateSet(
        own_id=1,
        members=ids(*members),
        set_epoch=7,
        master_epoch=4,
        epoch_start=epoch_start,
        log_end=log_end,
        confirm_offset=confirm_offset,
        members_min=members_min,
        limits=LIMITS,
        now_ms=0,
    )


def attach(
    sss: SyncStateSet, broker_id: int, ack: int, now_ms: int = 0, *, learner: bool = False
) -> list[Action]:
    sss.connected(broker_id, excluded="it is a learner" if learner else None)
    return sss.acked(broker_id, ack, now_ms, now_ms)


def expanded(*slaves: int, members_min: int = 1) -> SyncStateSet:
    """Broker 1 and these slaves in the set, all at 1000."""
    sss = master(1, members_min=members_min)
    for broker_id in slaves:
        attach(sss, broker_id, 1000)
    sss.observe(ids(1, *slaves), 8, 0)
    assert sss.applied_members == ids(1, *slaves)
    return sss


def alter(actions: list[Action]) -> Alter | None:
    """The alter among `actions`, if any."""
    asked = [action for action in actions if isinstance(action, Alter)]
    assert len(asked) <= 1
    return asked[0] if asked else None


def asked(sss: SyncStateSet, now_ms: int) -> Alter:
    """The alter that a tick sends; there must be one."""
    wanted = alter(sss.tick(now_ms))
    assert wanted is not None
    return wanted


def joining() -> tuple[SyncStateSet, Alter]:
    """Broker 1 alone in the set; the proposal to add broker 2 is in flight."""
    sss = master(1)
    wanted = alter(attach(sss, 2, 1000))
    assert wanted is not None and wanted.members == ids(1, 2)
    return sss, wanted
