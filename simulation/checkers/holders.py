"""Determines which brokers hold the records that a master may acknowledge, from the acks that the master got.

Invariant: an ack counts only if the broker with that id held the records when the ack came, or was not running. So a forged ack
does not count, and neither does an ack for records that were truncated since. Under contract D, records that a power cut would
take away do not count either. A late ack does not count if the broker has since sent acks to a master of a newer epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.app import BrokerApp
from ha.master.connection import MasterConnection
from ha.master.mastership import Mastership
from messagestore.log.commitlog import FOLDER as LOG
from simulation.cluster.looks import BrokerLook, log_ends
from simulation.kernel.node import Node

TAIL_BYTES = 64

Acked = Callable[[Mastership, MasterConnection, int], None]
acked = Mastership.acked


@dataclass
class Holders:
    """`end_of` maps a broker id to the end in its last ack to any master, and `epoch_of` to the epoch of that ack."""

    end_of: dict[int, int] = field(default_factory=dict)
    epoch_of: dict[int, int] = field(default_factory=dict)
    on_disk: bool = False
    """Whether records count as held only if they survive every power cut."""

    def noting(self, brokers: Iterable[Node]) -> Acked:
        """Make Mastership.acked note here the acks from `brokers`."""

        def noted(mastership: Mastership, connection: MasterConnection, offset: int) -> None:
            broker_id, epoch = connection.slave_broker_id, mastership.history.last_epoch()
            if epoch >= self.epoch_of.get(broker_id, epoch):
                self.epoch_of[broker_id] = epoch
                if not self.on_disk or on_its_disk(brokers, broker_id, offset):
                    self.acked(broker_id, offset, log_ends(brokers))
            acked(mastership, connection, offset)

        return noted

    def acked(self, broker_id: int, offset: int, running: dict[int, int]) -> None:
        """Note an ack. `running` has the log ends of the brokers that run."""
        if running.get(broker_id, offset) >= offset:
            self.end_of[broker_id] = offset

    def of(self, end: int, master: BrokerLook) -> set[int]:
        """The brokers that hold everything below `end`, which `master` may acknowledge."""
        holding = {broker_id for broker_id, held in self.end_of.items() if held >= end}
        if master.broker_id is not None and master.store.max_offset() >= end:
            holding.add(master.broker_id)
        return holding


def on_its_disk(nodes: Iterable[Node], broker_id: int, end: int) -> bool:
    """Whether the log of the broker with that id survives every power cut up to `end`, judged by the last bytes. True for a
    broker that does not run."""
    for node in nodes:
        app = node.app
        if (
            isinstance(app, BrokerApp)
            and app.membership.broker_id == broker_id
            and end <= app.store.max_offset()
        ):
            segment = app.store.segment_size_bytes
            start = max(end - TAIL_BYTES, (end - 1) // segment * segment, app.store.min_offset())
            return node.disk.durably_holds(f"{LOG}/", bytes(app.store.read(start, end - start)))
    return True
