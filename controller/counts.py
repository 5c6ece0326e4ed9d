"""Counts of a controller's requests and elections since its start.

Invariant: every answered request is counted and timed once, under upstream's names. Only the leading controller counts
elections. An election whose decision has events is counted when the events are applied."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from controller.decision import Decision
from controller.events import ElectMaster, Event
from controller.state import ReplicasState
from mqruntime.histogram import Histogram
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Outcome, Router

COUNTED = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "CONTROLLER_ALTER_SYNC_STATE_SET",
    RequestCode.CONTROLLER_ELECT_MASTER: "CONTROLLER_ELECT_MASTER",
    RequestCode.CONTROLLER_REGISTER_BROKER: "CONTROLLER_REGISTER_BROKER",
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "CONTROLLER_GET_REPLICA_INFO",
    RequestCode.CONTROLLER_GET_METADATA_INFO: "CONTROLLER_GET_METADATA_INFO",
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: "CONTROLLER_GET_SYNC_STATE_DATA",
    RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: "CONTROLLER_GET_NEXT_BROKER_ID",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "CONTROLLER_APPLY_BROKER_ID",
}

NO_MASTER = "no_master_elected"
UNCHANGED: dict[int, str] = {
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: NO_MASTER,
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: NO_MASTER,
}
"""The counted result of an election that changed nothing, by the code of its answer."""

LATENCY_BOUNDS = tuple(
    float(step * unit) for unit in (1, 1_000) for step in (1, 3, 5, 10, 30, 50, 100, 300, 500)
) + (1e6, 3e6, 5e6, 1e7)
"""Upstream's bounds of the latency histograms, in microseconds."""


class RequestCounts:
    """The counts. `requests` are counted by (type, status), `proposals` by status, and `elections` by (cluster, broker set,
    result). `latencies` are kept by request type. All latencies are in microseconds."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.latencies: dict[str, Histogram] = {}
        self.proposals: Counter[str] = Counter()
        self.proposal_latency = Histogram(LATENCY_BOUNDS)
        self.elections: Counter[tuple[str, str, str]] = Counter()

    def watch(self, router: Router) -> None:
        """Count the answers of the handlers of `router` from now on."""
        for code, name in COUNTED.items():
            router.watch(code, partial(self._begun, name))

    def applied(self, event: Event, state: ReplicasState) -> None:
        """Count an applied election; `state` is the state after it."""
        if isinstance(event, ElectMaster):
            result = NO_MASTER if event.master_id is None else "new_master_elected"
            self._elected(event.broker_name, result, state)

    def answered(self, broker_name: str, decision: Decision, state: ReplicasState) -> None:
        """Count the `decision` on an election request, unless it has events: then `applied` counts it."""
        result = UNCHANGED.get(decision.code)
        if result is not None and not decision.events:
            self._elected(broker_name, result, state)

    def proposed(self, status: str, seconds: float) -> None:
        """Count a proposal to the Raft group that ended after `seconds`."""
        self.proposals[status] += 1
        self.proposal_latency.observe(seconds * 1e6)

    def _elected(self, broker_name: str, result: str, state: ReplicasState) -> None:
        replicas = state.replicas.get(broker_name)
        cluster = replicas.cluster_name if replicas is not None else ""
        self.elections[cluster, broker_name, result] += 1

    def _begun(self, name: str, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        return partial(self._ended, name, asyncio.get_running_loop().time())

    def _ended(self, name: str, began_s: float, outcome: Outcome) -> None:
        self.requests[name, status_of(outcome)] += 1
        latency = self.latencies.get(name)
        if latency is None:
            latency = self.latencies[name] = Histogram(LATENCY_BOUNDS)
        latency.observe((asyncio.get_running_loop().time() - began_s) * 1e6)


def status_of(outcome: Outcome) -> str:
    """Upstream's status label of a request's outcome."""
    if isinstance(outcome, Exception):
        return "failed"
    if outcome is None or outcome.code == ResponseCode.SUCCESS:
        return "success"
    return "timeout" if (outcome.remark or "").startswith("outcome unknown") else "failed"
