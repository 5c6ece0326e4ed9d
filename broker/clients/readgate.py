"""Whether this broker may answer readers now.

Invariant: only a master answers readers, or a slave if `slaveReadEnable` is set. A broker that stops answers no readers."""

from __future__ import annotations

from broker.role.membership import Membership, ReplicaRole
from broker.settings.clients import ClientSettings


class ReadGate:
    """The gate. `settings` may change while the broker runs."""

    def __init__(self, membership: Membership, settings: ClientSettings) -> None:
        self._membership = membership
        self._settings = settings

    @property
    def serves_reads(self) -> bool:
        role = self._membership.role
        readable = role is ReplicaRole.MASTER or (
            role is ReplicaRole.SLAVE and self._settings.slave_read_enable
        )
        return readable and not self._membership.stopping
