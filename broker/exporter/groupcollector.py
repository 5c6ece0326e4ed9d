"""Metrics of a Raft-mode broker about its Raft group, for Prometheus.

Invariant: all figures are read when Prometheus scrapes them. Only the leader has figures of other members."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.exporter import groupfigures as figures
from broker.exporter.figures import BASE_LABELS
from broker.settings.broker import BrokerSettings
from mqruntime.figures import Families
from raftstore.member import Member

ROLE_NUMBERS = {"CANDIDATE": 1, "FOLLOWER": 2, "LEADER": 3}


class GroupCollector(Collector):
    """The metrics of `member`."""

    def __init__(self, settings: BrokerSettings, member: Member) -> None:
        self._member = member
        values = (settings.broker_cluster_name, "broker", settings.broker_name)
        self._families = Families(dict(zip(BASE_LABELS, values, strict=True)))

    def collect(self) -> Iterator[Metric]:
        one, each, node = self._families.one, self._families.each, self._member.node
        yield one(figures.ROLE, ROLE_NUMBERS[node.role.value])
        yield one(figures.TERM, node.term)
        if node.core is not None:
            yield one(figures.FIRST_INDEX, node.core.log.first_index)
            yield one(figures.LAST_INDEX, node.last_index)
            yield one(figures.COMMITTED_INDEX, node.core.committed_index)
        behind = sorted(self._member.behind().items())
        yield each(figures.BEHIND, (((member,), lag.missing) for member, lag in behind))
        yield one(figures.UNREADABLE, node.catchup_reader.unreadable)
        yield each(figures.SILENT, (((member,), lag.silent_ms) for member, lag in behind))
