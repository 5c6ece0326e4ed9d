"""Planted bugs of disks that were set back to an earlier image, and of copies of a broker's store."""

from __future__ import annotations

from broker.app import BrokerApp
from broker.role.memorymark import KeptMemoryMark
from broker.role.startnumber import FILE, KeptStartNumber, decode
from controller import commands, elections, livebrokers
from controller.commands import IdentityRefusal, Process
from controller.electpolicy import LiveReport
from controller.heartbeats import BrokerKey, Liveness
from controller.holdings import Holdings
from controller.state import Replica, Replicas
from remoting.codes import ResponseCode
from simulation.mutants.cluster.bugs import BUGS, bug, emptied_store_elected_2


@bug("old-disk-elected", commands, "why_not_this_process")
def old_disk_elected(
    replica: Replica, live: Liveness, key: BrokerKey, address: str, process: Process
) -> None:
    """The start number is not compared with the numbers that were received before."""


BUGS["old-disk-elected"].append((Holdings, "_shortfall", emptied_store_elected_2))


@bug("copy-takes-over", commands, "why_not_this_process", plays=("copies",))
def copy_takes_over(
    replica: Replica, live: Liveness, key: BrokerKey, address: str, process: Process
) -> IdentityRefusal | None:
    """Upstream: when a copy of a broker's store registers, it becomes that broker, although the broker lives."""
    known = max(replica.start_number, live.start_number(key))
    is_old = 0 < process.start_number <= known and process.incarnation != replica.incarnation
    return IdentityRefusal(ResponseCode.CONTROLLER_INVALID_REQUEST, "", known) if is_old else None


BUGS["copy-takes-over"].append((livebrokers, "why_not_this_process", copy_takes_over))


@bug("old-disk-leads-alone", elections, "_is_set_back")
def old_disk_leads_alone(
    broker_name: str, replicas: Replicas, live: Liveness, broker_id: int, report: LiveReport
) -> bool:
    """A disk that was set back is elected once no better disk is left, like a broker that lost memory. Its newer disk, and
    brokers that left the set, count for nothing."""
    return False


@bug("old-disk-forgotten", KeptMemoryMark, "set_back")
async def old_disk_forgotten(self: KeptMemoryMark) -> None:
    """The next start of a disk that was set back does not know about it."""
    self._lost = self._set_back = True


@bug("old-disk-outgrows", KeptStartNumber, "open")
async def old_disk_outgrows(self: KeptStartNumber) -> None:
    """An old disk counts as new after enough starts that no controller got to know."""
    data = await self._files.read(FILE)
    self._is_there = data is not None
    self.number = decode(data or b"")[0]
    await self.draw()


@bug("old-tables-count", BrokerApp, "_note_caught_up")
def old_tables_count(self: BrokerApp) -> None:
    """A disk that was set back counts as complete once its log is complete, whatever tables it has."""
    if self.memory_mark.may_have_lost_data and self._level_epoch is not None:
        self._level_epoch = None
        self._tasks.start(self.memory_mark.caught_up(), name="memory mark")
