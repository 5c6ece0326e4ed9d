"""The parts of a broker from which its features are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from broker.replication.writegate import ReplicationView, SendReplicationView
from broker.role.contractmark import KeptContractMark
from broker.role.events import BrokerEvents
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.network import Network
from mqruntime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Parts:
    settings: BrokerSettings
    membership: Membership
    store: BrokerStore
    ha: Replication
    tables: Tables
    events: BrokerEvents
    acknowledgement: SendReplicationView
    """The replication for which sends wait."""
    delivered: ReplicationView
    """The replication for which delayed messages and ends of transactions wait."""
    contract_mark: KeptContractMark
    clock: Clock
    network: Network
    random: Random
    follows: Callable[[int], bool]
    """Whether this slave's tables were its master's so many ms ago."""
    tasks: Tasks
    """Runs the work that is left after a request."""
    memory_bytes: int
    """The memory of this machine."""
