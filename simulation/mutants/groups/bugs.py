"""Bugs that are planted into Raft-mode brokers, to prove that seeds of simulation.groups.world find them.

Invariant: nothing is left of a bug when its context ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from broker.neighbours.registration import Registration
from broker.replication.groupacknowledgement import GroupAcknowledgement
from broker.replication.pending import PendingSends
from broker.role.grouproles import KNOWN_AGAIN_MS, GroupRoles
from broker.role.membership import Membership
from broker.role.switch import RoleSwitch
from broker.settings.raft import broker_id_of
from dledger import ledger
from dledger.node.catchup import CatchupReader
from dledger.node.node import DLedgerNode
from dledger.node.positions import PositionTracker
from dledger.raft.actions import Load
from dledger.raft.entries import Entry
from dledger.raft.messages import VoteRequest, VoteResult
from dledger.raft.progress import Progress
from dledger.raft.raft import Raft
from dledger.storage.entry import ENTRY_HEADER_BYTES, INDEX_UNIT, IndexUnit
from dledger.storage.entrylog import EntryLog, read_entries
from dledger.storage.store import Store
from messagestore.log.appender import Appender
from raftstore import chain, repair
from raftstore.ledgerlog import LedgerLog
from raftstore.ledgerstore import LedgerStore
from raftstore.mending import Around
from raftstore.replication import GroupReplication
from raftstore.sounddispatch import VerifiedDispatch
from simulation.kernel.plants import Bugs
from simulation.mutants.raft.bugs import vote_without_comparing_logs

BUGS = Bugs()
bug, planted = BUGS.bug, BUGS.planted


# Answered and shown messages


@bug("acknowledged-when-stored", GroupAcknowledgement, "acked_end")
def acknowledged_when_stored(self: GroupAcknowledgement) -> int:
    """A send is acknowledged when the leader has it in memory."""
    return 1 << 62 if self._membership.accepts_sends else 0


@bug("shown-when-durable-here", DLedgerNode, "_committed_and_durable")
def shown_when_durable_here(self: DLedgerNode) -> int:
    """Entries on a member's own disk count as committed."""
    return self.core.durable_index if self.core else -1


@bug("shown-before-durable-here", DLedgerNode, "_committed_and_durable")
def shown_before_durable_here(self: DLedgerNode) -> int:
    """A committed entry is shown before the member's own disk has it."""
    return self._applier.committed_index


@bug("looks-up-replaced-entries", PositionTracker, "_is_replaced")
def looks_up_replaced_entries(self: PositionTracker, index: int) -> bool:
    """A member looks for the end of an entry that a snapshot has replaced on its disk."""
    return False


@bug("deposed-answers-on", GroupReplication, "acked_end")
def deposed_answers_on(self: GroupReplication) -> int:
    """A deposed leader takes the next leader's progress for its own, and answers sends."""
    return self._store.confirm_offset()


@bug("deposed-answers-on", GroupRoles, "_moved")
def deposed_answers_on_2(self: GroupRoles) -> None:
    """The second part of the bug: the deposed leader stays master until it follows another leader."""
    self._news.set()


@bug("waiting-sends-kept", PendingSends, "give_up")
def waiting_sends_kept(self: PendingSends) -> None:
    """A send that waits when leadership is lost is acknowledged when leadership is regained, whatever entry is then at its
    position."""


# Leadership


@bug("any-log-leads", Raft, "on_vote_request")
def any_log_leads(self: Raft, candidate: str, request: VoteRequest) -> VoteResult:
    return vote_without_comparing_logs(self, candidate, request)


@bug("mastership-outlives-its-term", Membership, "deposed")
def mastership_outlives_its_term(self: Membership) -> None:
    """A leader that is elected again continues at once, before the entries in between are dispatched."""


@bug("mastership-outlives-its-term", RoleSwitch, "deposed")
def mastership_outlives_its_term_2(self: RoleSwitch) -> None:
    """The second part of the bug: the broker continues with its old next queue offsets."""


@bug("preferred-never-lead", ledger, "caught_up_among", plays=("preferred",))
def preferred_never_lead(
    preferred: Collection[str], progress: Mapping[str, Progress], held_index: int, heard_since_ms: int
) -> None: ...


registered_soon = Registration.soon


@bug("registered-by-and-by", Registration, "soon", plays=("handed on",))
def registered_by_and_by(self: Registration) -> None:
    """A new master registers at name servers only after half a minute, with its next regular registration."""
    if asyncio.get_running_loop().time() < 30:
        registered_soon(self)


look = GroupRoles._look


@bug("former-leader-followed", GroupRoles, "_look")
async def former_leader_followed(self: GroupRoles) -> None:
    """A broker that answers that it serves is taken for the master of the term in which the answer comes."""
    member, now_ms = self._member, self._clock.monotonic_ms()
    asked = member.term, member.leader_id
    if member.leads or asked[1] is None or (asked == self._known and now_ms < self._ask_again_ms):
        await look(self)
        return
    address = await member.where_leader_serves()
    if address is not None:
        self._known, self._ask_again_ms = (asked[0], asked[1]), now_ms + KNOWN_AGAIN_MS
        self._grant(member.term, broker_id_of(asked[1]), address)


# The log


@bug("full-disk-ends-a-member", Store, "append")
async def full_disk_ends_a_member(
    self: Store, log: EntryLog, entries: Sequence[Entry], meanwhile: Callable[[], Awaitable[None]]
) -> None:
    """Entries for which the disk has no room are not tried again."""
    await log.append(entries)


@bug("appends-before-all-is-dispatched", LedgerStore, "become_master")
async def appends_before_all_is_dispatched(self: LedgerStore) -> None:
    """A new leader continues queue offsets from the entries that are dispatched so far."""
    newest_ms = await self._newest_store_time()
    self._appender = Appender(
        self._log, self._settings.max_message_size, self._queues.next_offsets(), newest_ms, self._dispatcher.known,
        record_crcs=self._settings.enabled_append_prop_crc,
    )  # fmt: skip


@bug("store-times-begin-anew", LedgerStore, "_newest_store_time")
async def store_times_begin_anew(self: LedgerStore) -> int:
    """A new leader does not look up when the last message was stored."""
    return 0


@bug("goes-on-with-a-replaced-log", LedgerStore, "_restarted")
def goes_on_with_a_replaced_log(self: LedgerStore) -> None:
    """Queues do not change when another member's log replaces this log."""


@bug("blank-survives-a-cut", EntryLog, "cut")
async def blank_survives_a_cut(self: EntryLog, count: int) -> None:
    """After a truncation, an entry that would fit into the file before is still placed at the beginning of the next file."""
    self.cuts += 1
    end, units_end = self.end, (self.end_index + 2) * INDEX_UNIT.size
    if count <= self.end_index:
        self.end = self.stored_unit(count).position
        self.check = self.check_of(count - 1)
        self.batch_count = max(0, self.batch_count - (self.end_index + 1 - count))
        self.end_index = count - 1
    await self.data.erase(self.end, end + ENTRY_HEADER_BYTES)
    await self.index.erase(count * INDEX_UNIT.size, units_end)


@bug("deletes-what-is-young", LedgerLog, "_first_time", plays=("retention",))
async def deletes_what_is_young(self: LedgerLog, position: int) -> int | None:
    """The first message of the next file is believed to be old, so young files are deleted."""
    return 1


@bug("begins-behind-what-is-known", LedgerLog, "delete_former")
async def begins_behind_what_is_known(self: LedgerLog) -> list[object]:
    """Files covered by the store's checkpoint are deleted before the member knows that their entries are committed."""
    if self._node.log_begin() < self._first:
        await self._node.advance_log_start(self._first)
    return []


@bug("ends-for-what-a-follower-is-missing", CatchupReader, "read", plays=("rot where a follower needs it",))
async def ends_for_what_a_follower_is_missing(
    self: CatchupReader, log: EntryLog, load: Load, bytes_max: int
) -> list[Entry]:
    """A leader ends if it cannot read an entry that a follower is missing."""
    return await read_entries(log, load.first_index, load.entries_max, bytes_max)


judged_entry = chain.judged


@bug("scrub-compares-no-check-values", chain, "judged", plays=("rot where a follower needs it",))
def scrub_compares_no_check_values(
    entry: memoryview, position: int, before: chain.Checks, verify_record: bool
) -> tuple[str, chain.Checks]:
    """Bytes that the CRC of a body does not cover are not checked."""
    return judged_entry(entry, position, (), verify_record)


@bug("first-entry-uncompared", VerifiedDispatch, "_compared_from")
def first_entry_uncompared(self: VerifiedDispatch, start: int) -> int:
    """The entry where dispatch begins is not compared."""
    return start


@bug("check-value-lost-for-good", Around, "goes_on_from")
def check_value_lost_for_good(self: Around, check: int) -> bool:
    """If an entry's own check value is corrupt, the next entry is not used to prove the entry."""
    return False


@bug("mended-with-anothers-checks", repair, "mended", plays=("rot",))
def mended_with_anothers_checks(own: bytes, theirs: bytes, unit: IndexUnit, around: Around) -> bytes:
    """A corrupt entry is replaced by another member's entry, together with the check values of that member's disk."""
    return theirs
