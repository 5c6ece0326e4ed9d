"""Who holds the master's tables: which version each slave says that it has stored.

Invariant: a broker counts as a holder only of versions that this master has named; whoever calls `reported` has made sure that
it is that broker, so there are no more than the controllers know. One that asks as Java brokers do, and
never as ours, is not waited for: it polls each 3 to 10 s and says nothing of what it has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

OLD_HOSTS_MAX = 64
"""More than the replicas of any set; anybody may poll."""


_VERSION = re.compile("([0-9]{1,19})[.]([0-9]{1,19})")


class TablesVersion(NamedTuple):
    """Of topics, groups and deletions on one master; a later one is greater."""

    epoch: int
    revision: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.revision}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """None for what no master names."""
        found = _VERSION.fullmatch(text or "")
        return None if found is None else cls(int(found[1]), int(found[2]))


NO_MASTER = TablesVersion(0, 0)
"""What a broker that does not lead says; no master names it."""


class Holders:
    """What slaves said under one masterEpoch after the other."""

    def __init__(self) -> None:
        self._epoch = 0
        self._held: dict[int, TablesVersion | None] = {}
        self._old_hosts: dict[str, None] = {}  # who polled last stands last

    def reported(self, broker_id: int, held: TablesVersion | None, current: TablesVersion) -> None:
        """A slave of ours asks for what comes after `held`; `current` is the master's version."""
        self._under(current.epoch)
        self._held[broker_id] = held if held is not None and held <= current else None

    def polled_as_java(self, host: str, current: TablesVersion) -> None:
        """A slave on `host` copies as Java brokers do."""
        self._under(current.epoch)
        self._old_hosts.pop(host, None)
        self._old_hosts[host] = None
        if len(self._old_hosts) > OLD_HOSTS_MAX:
            del self._old_hosts[next(iter(self._old_hosts))]

    def is_java(self, broker_id: int, host: str) -> bool:
        """Whether this slave never asked as ours do, and one on its host did as Java brokers do, under the present epoch."""
        return broker_id not in self._held and host in self._old_hosts

    def lacking(
        self, members: Iterable[int], wanted: TablesVersion, hosts: Mapping[int, str], epoch: int
    ) -> list[int]:
        """Those of `members` that may lack version `wanted` under masterEpoch `epoch`; `hosts` says where slaves are."""
        self._under(epoch)
        return [member for member in sorted(members) if self._lacks(member, wanted, hosts.get(member))]

    def _lacks(self, member: int, wanted: TablesVersion, host: str | None) -> bool:
        if member not in self._held:
            return host is None or host not in self._old_hosts
        held = self._held[member]
        return held is None or held < wanted

    def _under(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._held.clear()
            self._old_hosts.clear()
