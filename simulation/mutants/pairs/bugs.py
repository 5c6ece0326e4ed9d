"""Bugs that are planted into pairs, to prove that seeds of simulation.pairs.world find them.

Invariant: nothing is left of a bug when `planted` ends."""

from __future__ import annotations

from broker.replication.pairacknowledgement import PairAcknowledgement
from broker.tables.queuelocks import RebalanceLocks
from broker.tables.tables import Tables
from ha.classic.acks import PairAcks
from ha.classic.client import PairSlave
from ha.classic.master import ClassicMasterLink, ClassicMasterState
from ha.classic.mastership import PairMastership
from ha.classic.slave import ClassicSlaveLink
from ha.slave.link import Action, Advance, Confirm
from messagestore.store.messagestore import MessageStore
from simulation.kernel.plants import Bugs

BUGS = Bugs()
bug, planted = BUGS.bug, BUGS.planted


@bug("logs-not-compared", PairSlave, "_prepare")
@bug("any-report-believed", PairSlave, "_prepare")
async def logs_not_compared(self: PairSlave) -> int | None:
    """Upstream: a slave follows any broker that calls itself master, whatever its log holds."""
    return None


@bug("any-report-believed", ClassicMasterLink, "_reported")
def any_report_believed(self: ClassicMasterLink, offset: int, now_ms: int) -> None:
    """Upstream: a slave's report is believed even if it names more log than the master has."""
    if self.state is ClassicMasterState.WAITING:
        last_file = self._master.log_end - self._master.log_end % self._master.segment_size_bytes
        self.next_offset = offset or last_file
        self.state = ClassicMasterState.SENDING
    self.ack_offset = offset


@bug("any-report-believed", ClassicMasterLink, "writable")
def any_report_believed_2(self: ClassicMasterLink, now_ms: int) -> list[object]:
    """The second part of the bug: the master waits until it has the reported bytes."""
    if self.state is ClassicMasterState.SENDING and self.next_offset > self._master.log_end:
        return []
    return written(self, now_ms)  # type: ignore[return-value]


written = ClassicMasterLink.writable


@bug("nobody-is-waited-for", PairAcknowledgement, "acked_end")
def nobody_is_waited_for(self: PairAcknowledgement) -> int:
    """Upstream 5.x with its defaults: a SYNC_MASTER answers before any slave has the message."""
    return self.stored_end()


@bug("newcomer-answers-for-all", PairAcks, "held_end")
def newcomer_answers_for_all(self: PairAcks, waiting_end: int) -> int:
    """Upstream: the report of a slave that began with the last file counts for earlier files, too."""
    self._counted_end = max([self._counted_end, *(held.end for held in self._holdings.values())])
    return self._counted_end


@bug("deletes-under-a-slave", PairMastership, "read_from", plays=("retention",))
def deletes_under_a_slave(self: PairMastership) -> int | None:
    """Upstream: only age and disk usage decide on deletion, so a slave waits for ever for deleted segments."""
    return None


@bug("reports-ahead", ClassicSlaveLink, "_own_end")
def reports_ahead(self: ClassicSlaveLink) -> int:
    """A slave reports a frame when it has only the frame's header."""
    return 0 if self._empty else self._log_end + self._body_left


@bug("shows-what-is-on-its-way", ClassicSlaveLink, "_body_filled")
def shows_what_is_on_its_way(self: ClassicSlaveLink, size: int) -> list[Action]:
    """A slave confirms all of a frame when the first bytes are there."""
    self._log_end += size
    self._body_left -= size
    self._empty = False
    return [Advance(self._log_end), Confirm(self._log_end + self._body_left)]


@bug("shows-what-is-on-its-way", MessageStore, "set_confirm_offset")
def shows_what_is_on_its_way_2(self: MessageStore, offset: int) -> None:
    """The second part of the bug: the slave's store accepts the higher offset."""
    if offset > self._confirm:
        self._confirm = offset
        self._dispatch_loop.wake()
        self._unsaved.set()


@bug("restarts-forget-locks", RebalanceLocks, "decode")
def restarts_forget_locks(self: RebalanceLocks, data: bytes) -> None:
    """Upstream: the holder of a queue is forgotten when the broker's process ends."""


@bug("facts-answered-before-the-disk", Tables, "save_facts", plays=("facts",))
async def facts_answered_before_the_disk(self: Tables) -> None:
    """Administrators and clients are answered before the master writes a change to disk."""
