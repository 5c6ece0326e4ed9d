"""Checks that brokers have the changes of topics and groups that were confirmed to administrators.

Invariant: this module reads tables and changes nothing. Names of rules: T1 the master of the newest epoch has each confirmed
change, T2 at the end every broker has it."""

from __future__ import annotations

from collections.abc import Iterable

from broker.tables.tables import Tables
from simulation.cluster.looks import BrokerLook
from simulation.cluster.members import TOPIC
from simulation.kernel.violation import Violation
from simulation.workloads.facts import Fact, Facts


class FactCheck:
    """Judges `facts`: the topics and groups with their confirmed values. Groups commit in the topic of the load."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._epoch = 0

    def look(self, brokers: Iterable[BrokerLook]) -> None:
        """Check that the master of the newest known epoch has every fact. Raises Violation."""
        looks = list(brokers)
        self._epoch = max([self._epoch, *(look.master_epoch for look in looks)])
        for look in looks:
            if look.accepts_sends and look.master_epoch == self._epoch:
                self._judge("T1", look)

    def at_the_end(self, brokers: Iterable[BrokerLook]) -> None:
        """Check all brokers after healing, when every slave had time to copy. Raises Violation."""
        for look in brokers:
            self._judge("T2", look)

    def _judge(self, rule: str, look: BrokerLook) -> None:
        for fact in self._facts.all:
            if look.tables is not None and (why := contradiction(fact, look.tables)):
                raise Violation(rule, f"{look.name}, epoch {look.master_epoch}: {why}")


def contradiction(fact: Fact, tables: Tables) -> str | None:
    """How these tables contradict the fact, or None."""
    if fact.is_open or not fact.answers:
        return None
    if fact.kind == "topic":
        topic = tables.topics.find(fact.name)
        found = topic.write_queue_nums if topic is not None else 0
    else:
        group = tables.groups.find(fact.name)
        found = group.retry_max_times if group is not None else 0
        offset = tables.offsets.find(fact.name, TOPIC, 0)
        if not fact.value and offset is not None:
            return f"group {fact.name} was deleted with its offsets, and has offset {offset}"
    return None if found == fact.value else f"{fact.kind} {fact.name} is {found}, answered was {fact.value}"
