"""The replicas that hold the master's tables: the version that each slave reports as stored.

Invariant: a broker counts only for versions that this master has named. The caller of `reported` has checked the broker's
identity, so there are only brokers that the controllers know. The master does not wait for a slave that polls only as Java
brokers do: such a slave polls every 3 to 10 s and does not report its version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

OLD_HOSTS_MAX = 64
"""More than the replicas of any set. The limit is needed because any host may poll."""


_VERSION = re.compile("([0-9]{1,19})[.]([0-9]{1,19})")


class TablesVersion(NamedTuple):
    """The version of topics, groups and deletions on one master. Later versions are greater."""

    epoch: int
    revision: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.revision}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Parse a version; None for text that no master writes."""
        found = _VERSION.fullmatch(text or "")
        return None if found is None else cls(int(found[1]), int(found[2]))


NO_MASTER = TablesVersion(0, 0)
"""The version that a broker reports if it does not lead; no master names this version."""


class Holders:
    """The reports of slaves under the present masterEpoch."""

    def __init__(self) -> None:
        self._epoch = 0
        self._heard_ms: dict[int, int] = {}
        """When slaves last followed this master with its tables (monotonic ms)."""
        self._asked_ms: dict[int, int] = {}
        """When slaves last asked for tables. The answer to a slave without tables lets it serve users, too."""
        self._held: dict[int, TablesVersion | None] = {}
        self._old_hosts: dict[str, None] = {}  # in the order of their last poll

    def reported(
        self,
        broker_id: int,
        held: TablesVersion | None,
        current: TablesVersion,
        now_ms: int = 0,
        followed_ms: int | None = None,
    ) -> None:
        """Called when a slave of this implementation requests the changes after `held`; `current` is the master's version. The
        slave followed this master at `followed_ms` or later, which may be long ago: a request may wait on its way."""
        self._under(current.epoch)
        self._asked_ms[broker_id] = now_ms
        if held is not None and followed_ms is not None:
            self._heard_ms[broker_id] = max(followed_ms, self._heard_ms.get(broker_id, followed_ms))
        self._held[broker_id] = held if held is not None and held <= current else None

    def polled_as_java(self, host: str, current: TablesVersion) -> None:
        """Called when a slave on `host` polls as Java brokers do."""
        self._under(current.epoch)
        self._old_hosts.pop(host, None)
        self._old_hosts[host] = None
        if len(self._old_hosts) > OLD_HOSTS_MAX:
            del self._old_hosts[next(iter(self._old_hosts))]

    def is_java(self, broker_id: int, host: str) -> bool:
        """Whether, in the present epoch, this slave made no such report and its host polled as Java brokers do."""
        return broker_id not in self._held and host in self._old_hosts

    def missing(
        self, members: Iterable[int], wanted: TablesVersion, hosts: Mapping[int, str], epoch: int
    ) -> list[int]:
        """The `members` that may be missing version `wanted` under masterEpoch `epoch`; `hosts` has the host of each slave."""
        self._under(epoch)
        return [member for member in sorted(members) if self._is_missing(member, wanted, hosts.get(member))]

    def silent(
        self, members: Iterable[int], since_ms: int, hosts: Mapping[int, str], epoch: int
    ) -> list[int]:
        """The `members` that did not follow this master with its tables since `since_ms`. Slaves that poll as Java brokers do
        are not asked for users, and not counted."""
        self._under(epoch)
        return [
            member
            for member in members
            if self._heard_ms.get(member, since_ms) <= since_ms
            and not self.is_java(member, hosts.get(member, ""))
        ]

    def behind(self, wanted: TablesVersion, since_ms: int) -> list[int]:
        """The slaves that asked this master for tables since `since_ms`, and have not reported version `wanted`."""
        recent = (broker_id for broker_id, asked_ms in self._asked_ms.items() if asked_ms > since_ms)
        return [broker_id for broker_id in recent if (self._held.get(broker_id) or NO_MASTER) < wanted]

    def _is_missing(self, member: int, wanted: TablesVersion, host: str | None) -> bool:
        if member not in self._held:
            return host is None or host not in self._old_hosts
        held = self._held[member]
        return held is None or held < wanted

    def _under(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._held.clear()
            self._heard_ms.clear()
            self._asked_ms.clear()
            self._old_hosts.clear()
