"""What one broker has, whoever calls it and whomever it calls."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from broker.role.currentrole import CurrentRole
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from ha.service import HAService
from messagestore.store import MessageStore
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Parts:
    """The log, its replication, the tables beside it and the role; `tasks` are those of the broker's own that run until it
    stops."""

    settings: BrokerSettings
    clock: Clock
    random: Random
    tasks: Tasks
    store: MessageStore
    ha: HAService
    tables: Tables
    role: CurrentRole
