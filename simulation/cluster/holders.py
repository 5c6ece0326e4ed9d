"""Which brokers hold what a master may answer, by the acknowledgements that it got.

Invariant: an acknowledgement counts only if a broker with that id held so much when it came, or does not run: what a stranger
says, or what was taken back, holds nothing. Nor does it say anything new when it comes late, to a master of an older epoch than
the broker has acknowledged to since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ha.master.connection import MasterConnection
from ha.master.mastership import Mastership
from simulation.cluster.looks import BrokerLook, log_ends
from simulation.kernel.node import Node

Acked = Callable[[Mastership, MasterConnection, int], None]
acked = Mastership.acked


@dataclass
class Holders:
    """`end_of`: broker id -> what it last acknowledged to any master; `epoch_of`: and in which epoch."""

    end_of: dict[int, int] = field(default_factory=dict)
    epoch_of: dict[int, int] = field(default_factory=dict)

    def noting(self, brokers: Iterable[Node]) -> Acked:
        """Mastership.acked, which notes here what comes from `brokers`."""

        def noted(mastership: Mastership, connection: MasterConnection, offset: int) -> None:
            broker_id, epoch = connection.slave_broker_id, mastership.history.last_epoch()
            if epoch >= self.epoch_of.get(broker_id, epoch):
                self.epoch_of[broker_id] = epoch
                self.acked(broker_id, offset, log_ends(brokers))
            acked(mastership, connection, offset)

        return noted

    def acked(self, broker_id: int, offset: int, running: dict[int, int]) -> None:
        """`running`: ends of the logs of those that run."""
        if running.get(broker_id, offset) >= offset:
            self.end_of[broker_id] = offset

    def of(self, end: int, master: BrokerLook) -> set[int]:
        """Who holds all below `end`, which `master` may answer."""
        holding = {broker_id for broker_id, held in self.end_of.items() if held >= end}
        if master.broker_id is not None and master.store.max_offset() >= end:
            holding.add(master.broker_id)
        return holding
