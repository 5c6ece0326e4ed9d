"""Elections of masters: requested elections, and replacements of lost masters.

Invariant: a master is deposed only for one of three reasons: a successor is designated, the master is known to be gone, or the
master reports that it cannot lead while another broker can. A request alone never leaves a set without a master. The elected
broker is registered, alive and no learner; unless unclean election is on, it is also a member of the SyncStateSet or eligible.
A broker that may be missing confirmed data is elected without an operator only when no better broker can come back, and never
while a newer image of a set-back disk may come back. As long as no broker can be elected for a set without a master, its epoch
does not grow. Upstream: ReplicasInfoManager. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.commands import address_of
from controller.decision import Decision
from controller.electpolicy import LiveReport, elect
from controller.eligibility import UPSTREAM, after_election
from controller.events import ElectMaster
from controller.heartbeats import Liveness
from controller.reasons import FIRST_ELECTION, NO_MASTER, NOT_IN_ITS_SET, OPERATOR_ASKED, UNCLEAN, YIELDED
from controller.state import Replicas, ReplicasState, SyncState
from remoting.bodies.replicas import ElectMasterBody
from remoting.bodies.routes import BrokerMemberGroup
from remoting.codes import ResponseCode
from remoting.headers.controller import ElectMasterResponseHeader

NOBODY = -1
"""The broker id of a request that names no broker."""


def elect_master(
    state: ReplicasState, live: Liveness, *, broker_name: str, broker_id: int, designate: bool, unclean: bool
) -> Decision:
    """CONTROLLER_ELECT_MASTER (1002): a broker requests an election, or an operator designates the master.

    The first election of a set elects the requesting broker, if it is registered and alive. A later election without a
    designated broker keeps the present master, unless the master is known to be gone or must yield to a broker that can
    lead. If the master stays, the reply names it with code 2011 (CONTROLLER_MASTER_STILL_EXIST)."""
    known = state.known(broker_name)
    if known is None:
        return Decision(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            "Broker hasn't been registered",
        )
    replicas, sync_state = known
    chosen: int | None
    if sync_state.master_epoch == 0:
        reports = _reports(broker_name, replicas, live)
        chosen = elect(replicas.by_id, reports, old_master=None, designated=broker_id)
    elif not designate and _keeps_master(broker_name, replicas, sync_state, live):
        chosen = sync_state.master_id
    else:
        chosen = _choose(broker_name, replicas, sync_state, live, broker_id if designate else None, unclean)
    if chosen is not None:
        why = OPERATOR_ASKED if designate else _why(broker_name, replicas, sync_state, live)
        return _elected(broker_name, replicas, sync_state, live, chosen, why)
    if designate and (better := _better(broker_name, replicas, sync_state, live, broker_id)):
        if not better | {broker_id} <= _fresh_reports(broker_name, replicas, live).keys():
            why = "this controller became leader just now, and live brokers have yet to report: try again in a moment"
        else:
            why = (
                f"broker {broker_id} may be missing acknowledged data, because its machine went down, a sync failed, or its "
                f"disk was set back, while {sorted(better)} lives and is missing nothing: let {broker_id} catch up with a "
                "master first, or elect another; to lose that data, stop those, or set enableElectUncleanMaster=true"
            )
        return Decision(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, why)
    if broker_id == NOBODY and not designate:
        return Decision(
            ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
            "Old master has down and failed to elect a new broker master",
        )
    return Decision(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")


def replace_lost_master(
    state: ReplicasState, live: Liveness, *, broker_name: str, unclean: bool
) -> Decision | None:
    """Decide an election that no request asks for: the set has no master, or its master is gone. None if no election is due.

    If no broker can be elected, the lost master is removed once, so that it needs an election with a new epoch before it leads
    again. The SyncStateSet stays, and the first member that comes back can be elected."""
    known = state.known(broker_name)
    if known is None:
        return None
    replicas, sync_state = known
    if sync_state.master_epoch == 0 or _keeps_master(broker_name, replicas, sync_state, live):
        return None
    chosen = _choose(broker_name, replicas, sync_state, live, None, unclean)
    why = _why(broker_name, replicas, sync_state, live)
    if chosen is not None:
        return _elected(broker_name, replicas, sync_state, live, chosen, why)
    if sync_state.master_id is None:
        return None
    return Decision(
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, events=(ElectMaster(broker_name, None),), reason=why
    )


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """The reason why a set with live brokers has no master.

    - `may_miss`: live, electable brokers that may be missing data of the `missing` brokers: broker id -> log end in bytes.
    - `best`: the broker among `may_miss` that the rules prefer, if any.
    - `set_back`: the brokers among `may_miss` whose newer disks are missing.
    - `outside`: live brokers that may not be elected: broker id -> log end in bytes."""

    may_miss: dict[int, int]
    missing: frozenset[int]
    best: int | None
    set_back: frozenset[int] = frozenset()
    outside: dict[int, int] = field(default_factory=dict)


def waiting(state: ReplicasState, live: Liveness, *, broker_name: str) -> WaitingReason | None:
    """The reason why a set has no master, and gets no master unless a missing broker comes back. None if the set has a master,
    if a broker can be elected, or if no broker is alive."""
    known = state.known(broker_name)
    if known is None or known[1].master_epoch == 0 or known[1].master_id is not None:
        return None
    replicas, sync_state = known
    reports = _reports(broker_name, replicas, live)
    if not reports or _complete(broker_name, replicas, sync_state, live):
        return None
    living = sorted(_electable(sync_state, reports) & reports.keys())
    set_back = frozenset(
        each for each in living if _is_set_back(broker_name, replicas, live, each, reports[each])
    )
    outside = sorted(reports.keys() - living) if set_back else []
    return WaitingReason(
        {broker_id: reports[broker_id].max_offset for broker_id in living},
        (sync_state.members | sync_state.eligible) - reports.keys(),
        elect(living, reports, old_master=None),
        set_back,
        {broker_id: reports[broker_id].max_offset for broker_id in outside},
    )


def _why(broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness) -> str:
    """The reason of an election that no operator requested."""
    if sync_state.master_epoch == 0:
        return FIRST_ELECTION
    if sync_state.master_id is None:
        return NO_MASTER
    loss = live.loss((replicas.cluster_name, broker_name, sync_state.master_id))
    if loss is not None:
        return loss.why
    return YIELDED if sync_state.master_id in sync_state.members else NOT_IN_ITS_SET


def _keeps_master(broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness) -> bool:
    """Whether the set has a master that is not known to be gone, and that need not yield to a broker that can lead."""
    master_id = sync_state.master_id
    if master_id is None or master_id not in replicas.by_id or master_id not in sync_state.members:
        return False
    if live.is_dead((replicas.cluster_name, broker_name, master_id)):
        return False
    if not live.is_unfit((replicas.cluster_name, broker_name, master_id)):
        return True
    if _complete(broker_name, replicas, sync_state, live, fit=True):
        return False
    able = _usable(broker_name, replicas, sync_state, live)
    return master_id in able or not able


def _reports(broker_name: str, replicas: Replicas, live: Liveness) -> dict[int, LiveReport]:
    """Reports of the live brokers except async learners, which never lead."""
    reports = live.reports(replicas.cluster_name, broker_name, replicas.by_id)
    return {broker_id: report for broker_id, report in reports.items() if not report.is_learner}


def _fresh_reports(broker_name: str, replicas: Replicas, live: Liveness) -> dict[int, LiveReport]:
    """The reports that certainly come from the live process. Without an operator only brokers with such a report are
    elected."""
    return {
        broker_id: report
        for broker_id, report in _reports(broker_name, replicas, live).items()
        if live.has_reported((replicas.cluster_name, broker_name, broker_id))
    }


def _electable(sync_state: SyncState, reports: dict[int, LiveReport]) -> frozenset[int]:
    """The members of the SyncStateSet, and the live eligible brokers of this implementation. Upstream's eligible brokers are
    left out, because they do not report a loss of memory."""
    return sync_state.members.union(
        broker_id
        for broker_id in sync_state.eligible & reports.keys()
        if reports[broker_id].members_min != UPSTREAM
    )


def _complete(
    broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness, *, fit: bool = False
) -> frozenset[int]:
    """Electable live brokers that are not known to be missing data; with `fit`, only those that can lead now."""
    reports = _fresh_reports(broker_name, replicas, live)
    return frozenset(
        broker_id
        for broker_id in _electable(sync_state, reports) & reports.keys()
        if not _may_miss(broker_name, replicas, live, broker_id, reports[broker_id])
        and not (fit and reports[broker_id].unfit)
    )


def _usable(broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness) -> frozenset[int]:
    """The complete brokers that can lead, even with a damaged log; none until all electable live brokers have reported."""
    if not _all_reported(broker_name, replicas, sync_state, live):
        return frozenset()
    reports = _fresh_reports(broker_name, replicas, live)
    whole = _complete(broker_name, replicas, sync_state, live)
    return frozenset(each for each in whole if reports[each].could_lead or not reports[each].unfit)


def _all_reported(broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness) -> bool:
    """Whether all electable live brokers have reported to this leader. A broker that has not reported yet does so with its next
    heartbeat, and may be the better choice."""
    reports = _reports(broker_name, replicas, live)
    living = _electable(sync_state, reports) & reports.keys()
    return living <= _fresh_reports(broker_name, replicas, live).keys()


def _may_miss(
    broker_name: str, replicas: Replicas, live: Liveness, broker_id: int, report: LiveReport
) -> bool:
    return report.may_miss or (replicas.cluster_name, broker_name, broker_id) in live.incomplete


def _is_set_back(
    broker_name: str, replicas: Replicas, live: Liveness, broker_id: int, report: LiveReport
) -> bool:
    """Whether a newer disk of this broker may exist: the broker reports that its disk was set back, or its log is shorter than
    it reported before, for no known reason."""
    key = (replicas.cluster_name, broker_name, broker_id)
    return report.set_back or (key in live.incomplete and not report.may_miss and live.start_number(key) > 0)


def _better(
    broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness, broker_id: int
) -> frozenset[int]:
    """The brokers that are preferable to a broker that may be missing acknowledged data: the electable live brokers that are
    not known to be missing data, and those that have not reported to this new leader yet. Empty if the broker itself is not
    known to be missing data."""
    reports, fresh = _reports(broker_name, replicas, live), _fresh_reports(broker_name, replicas, live).keys()
    if broker_id not in reports:
        return frozenset()
    unreported = _electable(sync_state, reports) & reports.keys() - fresh - {broker_id}
    may_be_gone = broker_id not in fresh and broker_id != sync_state.master_id
    if not may_be_gone and not _may_miss(broker_name, replicas, live, broker_id, reports[broker_id]):
        return frozenset()
    return _complete(broker_name, replicas, sync_state, live) | unreported


def _choose(
    broker_name: str,
    replicas: Replicas,
    sync_state: SyncState,
    live: Liveness,
    designated: int | None,
    unclean: bool,
) -> int | None:
    """The broker to elect. A designated broker is elected, unless it may be missing data that a live broker holds. Without a
    designated broker the first of these is elected:

    - the best complete broker that can lead now;
    - the best complete broker that can lead with a damaged log; then the best complete broker that cannot lead;
    - with unclean election, the best of all brokers;
    - if all electable brokers are alive and all may be missing data: the best of them, but no broker with an empty log, and
      no broker while a newer image of a set-back disk may come back.

    All choices except the first need reports from all electable live brokers."""
    everyone = frozenset(replicas.by_id)
    if designated is not None:
        reports = _reports(broker_name, replicas, live)
        candidates = everyone if unclean else _electable(sync_state, reports)
        if not unclean and _better(broker_name, replicas, sync_state, live, designated):
            return None
        return elect(candidates, reports, old_master=sync_state.master_id, designated=designated)
    reports = _fresh_reports(broker_name, replicas, live)
    electable = _electable(sync_state, reports)
    rest = everyone if unclean else frozenset()
    all_came = sync_state.members | sync_state.eligible <= reports.keys()
    if (
        not unclean
        and all_came
        and not any(_is_set_back(broker_name, replicas, live, each, reports[each]) for each in electable)
    ):
        rest = frozenset(
            broker_id
            for broker_id in electable
            if reports[broker_id].max_offset > 0
            or (replicas.cluster_name, broker_name, broker_id) not in live.incomplete
        )
    fit, whole = (_complete(broker_name, replicas, sync_state, live, fit=only) for only in (True, False))
    able = _usable(broker_name, replicas, sync_state, live)
    if not _all_reported(broker_name, replicas, sync_state, live):
        whole = rest = frozenset()
    for candidates in (fit, able, whole, _fit_among_longest(rest, reports), rest):
        chosen = elect(candidates, reports, old_master=sync_state.master_id)
        if chosen is not None:
            return chosen
    return None


def _fit_among_longest(candidates: frozenset[int], reports: dict[int, LiveReport]) -> frozenset[int]:
    """Of the brokers with the longest log, those that can lead now. A shorter log is never preferred because its broker can
    lead."""
    logs = {each: (reports[each].epoch, reports[each].max_offset) for each in candidates & reports.keys()}
    longest = max(logs.values(), default=None)
    return frozenset(each for each, log in logs.items() if log == longest and not reports[each].unfit)


def _elected(
    broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness, chosen: int, why: str
) -> Decision:
    if chosen == sync_state.master_id:
        return Decision(
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            f"The old master {chosen} is still alive, not need to elect new master for broker {broker_name}",
            _header(replicas, sync_state),
            ElectMasterBody(sync_state.members).encode(),
        )
    after = SyncState(chosen, sync_state.master_epoch + 1, frozenset({chosen}), sync_state.set_epoch + 1)
    addresses = {broker_id: replica.address for broker_id, replica in sorted(replicas.by_id.items())}
    group = BrokerMemberGroup(replicas.cluster_name, broker_name, addresses)
    report = live.reports(replicas.cluster_name, broker_name, [chosen])[chosen]
    eligible = after_election(sync_state.members, sync_state.eligible, chosen, report.members_min)
    clean = sync_state.master_epoch == 0
    if not clean and chosen in sync_state.members | sync_state.eligible:
        clean = not _may_miss(broker_name, replicas, live, chosen, report)
    elif not clean:
        eligible = frozenset()  # an unclean election: nobody else holds its data
    return Decision(
        header=_header(replicas, after),
        body=ElectMasterBody(after.members, group).encode(),
        events=(ElectMaster(broker_name, chosen, eligible),),
        reason=why if clean else why + UNCLEAN,
    )


def _header(replicas: Replicas, sync_state: SyncState) -> ElectMasterResponseHeader:
    return ElectMasterResponseHeader(
        sync_state.master_id,
        address_of(replicas, sync_state.master_id),
        sync_state.master_epoch,
        sync_state.set_epoch,
    )
