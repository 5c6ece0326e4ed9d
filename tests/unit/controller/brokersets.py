"""A broker set of three in a controller's state, and reports of its brokers."""

from __future__ import annotations

from controller.elections import replace_lost_master
from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, Event
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.holdings import Holdings
from controller.livebrokers import LiveBrokers
from controller.state import ReplicasState
from tests.support.doubles import ManualClock

NOW = 1_000_000


def report(end: int, members_min: int = 2, **said: bool | str) -> LiveReport:
    return LiveReport(1, end, 0, members_min, **said)  # type: ignore[arg-type]


def alive(incomplete: tuple[int, ...] = (), **reports: LiveReport) -> Liveness:
    """b1=report(100): broker 1 is alive and sent this report; brokers that are not named are dead."""
    table = Heartbeats()
    for broker_id in (1, 2, 3):
        said = reports.get(f"b{broker_id}")
        table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said or report(0)), NOW)
        if said is None:
            table.connection_closed(broker_id, NOW)
    return table.at(NOW, NOW, frozenset(("c", "a", broker_id) for broker_id in incomplete))


def granted(broker_id: int) -> ApplyBrokerId:
    return ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;7")


def state_of(*events: Event) -> ReplicasState:
    state = ReplicasState()
    for event in events:
        state.apply(event)
    return state


def applied(*events: Event) -> ReplicasState:
    """Three brokers, 1 being the master of epoch 1, after `events`."""
    return state_of(*map(granted, (1, 2, 3)), ElectMaster("a", 1), *events)


def members(*ids: int, eligible: tuple[int, ...] = ()) -> AlterSyncStateSet:
    return AlterSyncStateSet("a", frozenset(ids), frozenset(eligible))


def replaced(state: ReplicasState, live: Liveness, *, unclean: bool = False) -> ElectMaster | None:
    decision = replace_lost_master(state, live, broker_name="a", unclean=unclean)
    if decision is None:
        return None
    (event,) = decision.events
    assert isinstance(event, ElectMaster)
    return event


def of_two() -> LiveBrokers:
    state = state_of(*map(granted, (1, 2)))
    return LiveBrokers(state, Holdings(state.check_code, lambda: None), ManualClock(), lambda name: None)


def lives(brokers: LiveBrokers) -> bool:
    return brokers.liveness().is_alive(("c", "a", 1))
