"""Bugs that are planted into product code for one run, to prove that the checks find them.

Invariant: upstream had or has each bug, or the safety rules warn of it. A bug changes only what its docstring says, and nothing
is left of it when its context ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.neighbours.agreement import MetadataReplication
from broker.neighbours.tablecopy import Slices
from broker.replication.acknowledgement import Acknowledgement
from broker.role.actions import Action as RoleAction
from broker.role.actions import ControllerReply
from broker.role.controllercalls import ControllerCalls
from broker.role.identityfiles import LogFound
from broker.role.leaderhealth import LeaderHealth
from broker.role.membership import Membership, RegistrationStage
from broker.role.memorymark import KeptMemoryMark
from broker.sends import sendback
from broker.sends.delaydelivery import DelayDelivery
from broker.tables.deletions import Deletions
from broker.tables.holders import TablesVersion
from broker.tables.journal import Journal, JournalRecord
from broker.tables.rowchanges import Row, RowChanges
from broker.tables.savedtable import SavedTable
from broker.tables.tables import Tables
from controller import commands, elections
from controller.decision import Decision
from controller.elections import WaitingReason
from controller.electpolicy import LiveReport
from controller.heartbeats import BrokerKey, Liveness
from controller.holdings import Held, Holdings, LogReport
from controller.masterless import Unelected
from controller.state import Replica, Replicas, ReplicasState, SyncState
from dledger.raft.actions import Vote
from dledger.storage.hardstate import TermFile
from epochfile.binding import Binding, Seal
from epochfile.history import NO_EPOCH, EpochHistory
from ha import confirm
from ha.epochbinding import KeptBinding
from ha.epochs import KeptEpochs
from ha.frames import Handshake
from ha.log import ReplicatedLog
from ha.master.admittance import Admittance, Newcomer
from ha.master.connection import MasterConnection
from ha.master.mastership import Mastership
from ha.service.haservice import HAService
from ha.slave.client import SlaveClient
from ha.slave.link import Action, SlaveLink
from ha.slaveprogress import SlaveProgress
from ha.syncstateset import Action as SetAction
from ha.syncstateset import Alter, AlterOutcome, AlterRefused, AlterUnknown, Confirmed, SyncStateSet
from messagestore.bulk.records import Records
from messagestore.dispatch.bulkentries import ChosenRecords
from messagestore.dispatch.dispatchloop import DispatchLoop
from messagestore.log.commitlog import CommitLog
from messagestore.messages import GetResult
from messagestore.queues.reading import QueueReader
from messagestore.record import Message
from messagestore.store.brokerstore import ABORT_FILE, RUNNING, was_closed
from messagestore.store.messagestore import MessageStore
from messagestore.store.recovery import Recovery
from messagestore.store.tail import LogTail
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.segments import SegmentFile
from remoting.bodies.tables import Deletion, DeletionTable, TableChanges
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import TablesVersionHeader
from simulation.kernel.plants import Bugs

SEGMENT_BYTES_MIN = 16_384
"""The smallest segment size that a world draws."""
BUGS = Bugs()
bug, planted = BUGS.bug, BUGS.planted


@bug("ack-before-replication", Acknowledgement, "acked_end")
def ack_before_replication(self: Acknowledgement) -> int:
    """A send is acknowledged before it is replicated, as if replication were synchronous."""
    return self._store.max_offset() if self._membership.accepts_sends else 0


@bug("swap-instead-of-union", SyncStateSet, "union")
def swap_instead_of_union(self: SyncStateSet) -> frozenset[int]:
    """Upstream #5663: the master counts acks of the proposed set, whether it was accepted or not."""
    return self._proposal.members if self._proposal else self._applied


judged = SyncStateSet.alter_ended


@bug("lost-answer-is-refusal", SyncStateSet, "alter_ended")
def lost_answer_is_refusal(
    self: SyncStateSet, alter: Alter, fate: AlterOutcome, now_ms: int
) -> list[SetAction]:
    """Upstream #5663, second bug: a proposal without an answer is dropped from the sets that the master waits for."""
    return judged(self, alter, AlterRefused() if isinstance(fate, AlterUnknown) else fate, now_ms)


known_outcome = ControllerCalls.outcome


class AnotherLeads(AlterUnknown):
    """The outcome of a proposal that is rejected because another broker leads or the epoch is another one."""


@bug("another-leads-settles", ControllerCalls, "outcome")
def another_leads_settles(self: ControllerCalls, alter: Alter, answer: RemotingCommand) -> AlterOutcome:
    """C6, and loss under B: the answer that another broker leads is taken for a rejection of the earlier proposal. The
    proposed member may have been elected. The master no longer waits for it, and acknowledges data that it is missing."""
    fate, code = known_outcome(self, alter, answer), ResponseCode(answer.code)
    newer = (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER)
    return AnotherLeads() if code in newer else fate


over = SyncStateSet._is_over


def over_where_another_leads(self: SyncStateSet, fate: AlterOutcome) -> bool:
    return isinstance(fate, AnotherLeads) or over(self, fate)


BUGS["another-leads-settles"].append((SyncStateSet, "_is_over", over_where_another_leads))


@bug("confirm-skips-unknown", confirm, "confirm_offset")
def confirm_skips_unknown(previous: int, ends: Iterable[int | None]) -> int:
    """Upstream's computeConfirmOffset: a member that has not acked yet does not hold the offset back."""
    return max(previous, min(end for end in ends if end is not None))


@bug("min-in-sync-ignored", confirm, "enough")
def min_in_sync_ignored(applied_members: int, members_min: int) -> bool:
    """Upstream, measured: sends that wait while the set shrinks to its master are acknowledged."""
    return True


asked_again = SyncStateSet._alter_again


@bug("asked-again-with-conditions", SyncStateSet, "_alter_again")
def asked_again_with_conditions(self: SyncStateSet, now_ms: int) -> list[SetAction]:
    """A proposal with an unknown outcome is held back, like a new proposal, until the entering member has the tables. A dead
    member never gets them."""
    asked = asked_again(self, now_ms)
    return [replace(action, again=False) if isinstance(action, Alter) else action for action in asked]


counted_disconnected = SyncStateSet.disconnected


@bug("leaves-on-disconnect", SyncStateSet, "disconnected")
def leaves_on_disconnect(self: SyncStateSet, broker_id: int, now_ms: int) -> list[SetAction]:
    """When a member's connection ends, the member leaves the set without the controllers."""
    self._applied -= {broker_id}
    return counted_disconnected(self, broker_id, now_ms)


@bug("truncation-not-durable", CommitLog, "truncate")
async def truncation_not_durable(self: CommitLog, offset: int) -> None:
    """Upstream #10666: a truncation moves positions, but the old tail stays in the file."""
    self._end = self._written_end = offset
    self._flushed = min(self._flushed, offset)


@bug("writes-without-blocks", CommitLog, "_with_blocks")
def writes_without_blocks(self: CommitLog, offset: int, size: int) -> SegmentFile:
    """A segment without disk blocks is written to. On a full disk the kernel then kills the process."""
    return self._segment_at(self.segment_start(offset))


@bug("epoch-not-persisted", KeptEpochs, "_store")
async def epoch_not_persisted(self: KeptEpochs, history: EpochHistory) -> None:
    """Data is acknowledged under an epoch that is in no file."""
    self.history = history


@bug("foreign-epoch-file-trusted", KeptBinding, "check", plays=("foreign epoch file",))
async def foreign_epoch_file_trusted(self: KeptBinding, log: ReplicatedLog, history: EpochHistory) -> None:
    """Upstream: any readable epoch file is taken for the file of this log."""
    self._binding = Binding(Seal(entry) for entry in history)


stored_vote = TermFile.store


@bug("vote-not-persisted", TermFile, "store")
async def vote_not_persisted(self: TermFile, vote: Vote) -> None:
    """After a crash the term is still known, but not the candidate that got the vote."""
    await stored_vote(self, Vote(vote.term, None))


confirmed_step = DispatchLoop.step


@bug("dispatch-beyond-confirm", DispatchLoop, "step")
def dispatch_beyond_confirm(self: DispatchLoop) -> bool:
    """Upstream #6609: records that other replicas may be missing get queue entries."""
    kept, self._confirm_offset = self._confirm_offset, lambda: self._log.max_offset
    try:
        return confirmed_step(self)
    finally:
        self._confirm_offset = kept


listed_in_bulk = ChosenRecords.extend


@bug("bulk-forgets-the-segment", ChosenRecords, "extend")
def bulk_forgets_the_segment(
    self: ChosenRecords, records: Records, tags_codes: NDArray[np.int64]
) -> list[tuple[bytes, int, int]]:
    """Entries of records that are handled in bulk have positions in the segment instead of the log."""
    within = Records(records.buffer, records.offset % SEGMENT_BYTES_MIN, records.columns)
    return listed_in_bulk(self, within, tags_codes)


@bug("queue-offsets-forgotten", LogTail, "next_offsets")
async def queue_offsets_forgotten(self: LogTail) -> tuple[dict[tuple[bytes, int], int], int]:
    """Upstream #7689: the new master forgets messages that it holds but has not dispatched, and assigns their queue offsets
    again."""
    return self._queues.next_offsets(), self._dispatcher.store_timestamp


counted_by_broker = Mastership._perform


@bug("connections-counted", Mastership, "_perform")
def connections_counted(self: Mastership, actions: Iterable[SetAction]) -> None:
    """Upstream's GroupTransferService: two connections of one slave count twice."""
    members = self.sync_state_set
    ends = sorted(
        link.link.ack_offset for link in self.connections if link.slave_broker_id in members.union()
    )
    needed = len(members.union()) - 1
    if 0 < needed <= len(ends):
        counted = min(ends[-needed], self._log.max_offset())
        members._confirm_offset = max(members._confirm_offset, counted)
    counted_by_broker(self, [*actions, Confirmed(members.confirm_offset)])


@bug("connections-counted", Mastership, "handshaken")
def connections_counted_2(self: Mastership, connection: MasterConnection, handshake: Handshake) -> None:
    """The second part of the bug: the slave's former connection stays until its end is noticed."""
    self._newest[handshake.slave_broker_id] = connection
    self.sync_state_set.connected(handshake.slave_broker_id, excluded=self._why_excluded(handshake))


@bug("foreign-ids-believed", Admittance, "_id_of")
def foreign_ids_believed(self: Admittance, newcomer: Newcomer) -> int | None:
    """Upstream: a connection counts for the broker that its handshake names, whatever controllers know."""
    return newcomer.broker_id


reply_read = SlaveLink._reply_filled


@bug("old-master-accepted", SlaveLink, "_reply_filled")
def old_master_accepted(self: SlaveLink, now_ms: int) -> list[Action]:
    """Upstream's doTruncate: a slave truncates its log to any consistent point, however old the master's newest epoch is, and
    whatever was confirmed."""
    self._epoch_min, self._cut_min = NO_EPOCH, 0
    return reply_read(self, now_ms)


link_made = SlaveClient._new_link


@bug("what-its-log-knows", SlaveClient, "_new_link")
def what_its_log_knows(self: SlaveClient) -> SlaveLink:
    """Upstream: a slave follows any master that knows the epochs in the slave's log."""
    link = link_made(self)
    link._epoch_min = self._epochs.history.last_epoch()
    return link


followed = HAService.become_slave


@bug("stays-with-former-master", HAService, "become_slave")
async def stays_with_former_master(
    self: HAService, epoch: int, broker_id: int, master_id: int, master_ha_address: str | None = None
) -> None:
    """A slave that is notified of a new master stays with its present one."""
    if isinstance(self._end, SlaveClient):
        self._fence(epoch)
        self._epoch = epoch
    else:
        await followed(self, epoch, broker_id, master_id, master_ha_address)


went_over = SlaveClient.set_address


@bug("stays-with-former-master", SlaveClient, "set_address")
def stays_with_former_master_2(self: SlaveClient, address: str) -> None:
    """A slave that is notified of another address goes there when its present connection ends."""
    if self.connection is None or self.connection.closed.done():
        went_over(self, address)


walked = Recovery._walk


@bug("damage-unchecked", Recovery, "_walk")
async def damage_unchecked(self: Recovery, position: int) -> int:
    """A start accepts every record with a plausible form."""
    self._verify_body = False
    return await walked(self, position)


@bug("bad-bytes-served", QueueReader, "load", plays=("rotten segment",))
async def bad_bytes_served(self: QueueReader, result: GetResult) -> None:
    """Upstream: bytes from disk are served unchecked."""
    result.buffers = [memoryview(await self._log.read_cold(phy, size)) for phy, size in result.ranges]
    result.cold = False


from_memory = QueueReader._buffers


@bug("cached-bytes-served", QueueReader, "_buffers", plays=("rotten segment",))
def cached_bytes_served(
    self: QueueReader, found: list[tuple[int, int]], size_bytes: int
) -> list[memoryview] | None:
    """Old bytes that are in memory are sent at once, checked or not."""
    if found[0][0] < self._log.cold_end and self._log.in_memory(found):
        return self._log.views(found)
    return from_memory(self, found, size_bytes)


@bug("bad-bytes-copied", MessageStore, "check", plays=("rotten segment",))
async def bad_bytes_copied(self: MessageStore, offset: int, size: int) -> None:
    """Upstream: bytes from disk are sent to every new replica."""


@bug("delivered-without-delay", DelayDelivery, "_wait_ms")
def delivered_without_delay(self: DelayDelivery, level: int, queue_offset: int, due_ms: int) -> int:
    """Delayed messages are delivered without delay."""
    return 0


begun_anew = DelayDelivery.role_taken


@bug("waiting-forgotten", DelayDelivery, "role_taken")
def waiting_forgotten(self: DelayDelivery, *, leads: bool) -> None:
    """A new master believes that the former master delivered all waiting messages."""
    begun_anew(self, leads=leads)
    for level in range(1, len(self._levels_ms) + 1):
        self._offsets.advance(level, self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1))


@bug("another-handed-back", sendback, "is_named")
def another_handed_back(message: Message, name: str | None) -> bool:
    """Upstream: the record at the named offset is handed back, even if another message is there after an election."""
    return True


@bug("emptied-store-elected", LogFound, "why_lost", plays=("unclean", "emptied member"))
def emptied_store_elected(self: LogFound, *, marked: bool) -> None:
    """Upstream: a broker that kept its id stays a member of the set, whatever happened to its log. A broker never gives up its
    id."""


@bug("emptied-store-elected", Holdings, "_shortfall", plays=("unclean", "emptied member"))
def emptied_store_elected_2(
    self: Holdings, key: BrokerKey, own: Held, report: LogReport, *, exact: bool
) -> None:
    """The second part of the bug: controllers take every log of a member for complete."""


@bug("emptied-store-elected", commands, "_why_not_numbered", plays=("unclean", "emptied member"))
def emptied_store_elected_3(
    replica: Replica, live: Liveness, key: BrokerKey, process: commands.Process, known: int
) -> str | None:
    """The third part of the bug: controllers accept a broker although it has lost its check code with its store."""
    return None


@bug("facts-answered-early", MetadataReplication, "_agreed_at_the_end")
async def facts_answered_early(
    self: MetadataReplication, members: Callable[[], Iterable[int]], wanted: TablesVersion, deadline_ms: int
) -> tuple[bool, list[int]]:
    """Upstream: the creation of a topic is confirmed when only the master knows the topic."""
    return True, []


@bug("enters-without-tables", MetadataReplication, "replicated_to")
async def enters_without_tables(self: MetadataReplication, members: frozenset[int]) -> bool:
    """Upstream: a broker that has the log enters the set, whatever tables of topics and groups it has."""
    return True


@bug("deletions-forgotten", Deletions, "adopt")
def deletions_forgotten(self: Deletions, table: DeletionTable) -> tuple[list[Deletion], bool]:
    """Upstream: a slave copies existing rows but no deletions, so deleted rows come back when it leads."""
    return [], False


rows_after = RowChanges.after


@bug("difference-lost", RowChanges, "after")
def difference_lost(self: RowChanges, place: int, count_max: int) -> tuple[list[Row], int | None]:
    """A slave gets all changes except the newest row, and counts as if it had that row."""
    rows, last = rows_after(self, place, count_max)
    return rows[:-1], last


@bug("taken-over-in-part", Slices, "take")
def taken_over_in_part(self: Slices, said: TablesVersionHeader, changes: TableChanges) -> bool:
    """A slave takes the first slice of its master's tables for all of them."""
    slice_taken(self, said, changes)
    return True


slice_taken = Slices.take


@bug("journal-not-synced", Journal, "append")
async def journal_not_synced(self: Journal, record: JournalRecord) -> None:
    """A change counts as stored once its write is queued."""
    self.last = record.number


@bug("dropped-before-a-file-says-so", SavedTable, "in_journal")
def dropped_before_a_file_says_so(self: SavedTable, version: int, record: int) -> None:  # noqa: ARG001 - as the original
    """A journal record is dropped when a file has its rows, although the file does not say so."""
    self._journal_version = max(self._journal_version, version)


replay_record = Tables._replay_record  # noqa: SLF001 - to be wrapped


@bug("applied-twice", Tables, "_replay_record")
def applied_twice(self: Tables, record: JournalRecord) -> None:
    """A start applies the whole journal to tables whose files already have some of its records, and later changes."""
    for table in self._of_journal:
        table.mark = None if table.mark is None else 0
    replay_record(self, record)


@bug("lost-memory-forgotten", KeptMemoryMark, "open")
async def lost_memory_forgotten(self: KeptMemoryMark) -> None:
    """A broker takes its log for complete although the machine may have lost memory."""


@bug("abort-made-anew", MessageStore, "_mark_running", plays=("full disk",))
async def abort_made_anew(self: MessageStore, mark: bytes | None) -> None:
    """Upstream: a start makes the file that marks a store as in use, and a full disk has no room for it."""
    if was_closed(mark):
        await self._files.replace(ABORT_FILE, RUNNING)


@bug("nobody-eligible", elections, "after_election")
def nobody_eligible(
    members: frozenset[int], eligible: frozenset[int], elected: int, members_min: int
) -> frozenset[int]:
    """Upstream: an election leaves only the elected broker, whose memory is the only copy."""
    return frozenset()


@bug("nobody-eligible", commands, "after_alter")
def nobody_eligible_2(
    members: frozenset[int], eligible: frozenset[int], altered: frozenset[int], members_min: int
) -> frozenset[int]:
    """Upstream, the second part of the bug: a broker that leaves a set which can no longer acknowledge is not eligible."""
    return frozenset()


@bug("eligible-for-ever", commands, "after_alter")
def eligible_for_ever(
    members: frozenset[int], eligible: frozenset[int], altered: frozenset[int], members_min: int
) -> frozenset[int]:
    """A broker that left the set stays electable, however much was acknowledged without it."""
    return (members | eligible) - altered


@bug("acknowledges-before-notifying", SyncStateSet, "may_confirm")
def acknowledges_before_notifying(self: SyncStateSet) -> bool:
    """A new master acknowledges before the controllers have made the former members ineligible."""
    return confirm.enough(len(self._applied), self._members_min)


answered = Membership.answered


@bug("late-grant-taken", Membership, "answered")
def late_grant_taken(self: Membership, reply: ControllerReply, now_ms: int) -> list[RoleAction]:
    """A restarted broker takes the role that was given to its former process."""
    self._is_current = self._stage is RegistrationStage.REGISTERED
    return answered(self, reply, now_ms)


ended = HAService.stop


@bug("unconfirmed-taken-back", HAService, "stop", plays=("contract A",))
async def unconfirmed_taken_back(self: HAService) -> None:
    """A master that stops gracefully truncates records that its slaves do not have. If sends do not wait, these were
    acknowledged."""
    led = self.may_confirm()
    await ended(self)
    if led:
        await self._log.truncate(self._log.confirm_offset())


handshaken = SlaveProgress.handshaken


@bug("learner-counted", SlaveProgress, "handshaken", plays=("learner",))
def learner_counted(self: SlaveProgress, *, excluded: str | None) -> None:
    """The learner flag of the handshake is ignored: a learner that caught up becomes a member."""
    handshaken(self, excluded=None)


@bug("outsider-elected", elections, "_electable")
def outsider_elected(sync_state: SyncState, reports: dict[int, LiveReport]) -> frozenset[int]:
    """An election considers which brokers live, but not which of them hold acknowledged data."""
    return frozenset(reports)


@bug("operator-elects-the-forgetful", elections, "_better")
def operator_elects_the_forgetful(
    broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness, broker_id: int
) -> frozenset[int]:
    """An election requested by an operator is held although it loses acknowledged data that another broker has."""
    return frozenset()


@bug("waits-in-silence", Unelected, "look")
def waits_in_silence(self: Unelected, waiting: dict[str, WaitingReason], now_ms: int) -> None:
    """A set whose members wait for a broker that never comes has no master, and nothing is logged for the operator."""


cleaned = commands.clean_broker_data


@bug("living-forgotten", commands, "clean_broker_data", plays=("operator",))
def living_forgotten(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """A live broker is forgotten without an explicit request."""
    return cleaned(state, live, **asked | {"living_too": True})


@bug("remembered", commands, "clean_broker_data", plays=("operator",))
def remembered(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """The controllers confirm that a replaced broker is forgotten, but keep it."""
    return replace(cleaned(state, live, **asked), events=())


@bug("never-yields", LeaderHealth, "why_unfit", plays=("disk stall",))
def never_yields(self: LeaderHealth, now_ms: int) -> str:
    """Upstream: a master whose disk hangs stays master while its process lives."""
    return ""


@bug("acknowledges-from-memory", SlaveLink, "_held_end", plays=("contract D",))
def acknowledges_from_memory(self: SlaveLink) -> int:
    """Under contract D, a slave acknowledges all that it has, whether it is on disk or not."""
    return self._log_end
