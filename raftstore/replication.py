"""A Raft group as what replicates a broker's log.

Invariant: what is acknowledged is decided, and on this member's own disk: that a majority has it there too is Raft's word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from epochfile.history import EpochHistory
from ha.counters import HACounters
from ha.errors import EpochFenced
from ha.master.admittance import LOOPBACK, Why, newcomer_of
from ha.master.gate import Asker
from raftstore.ledgerstore import LedgerStore
from raftstore.member import Member
from raftstore.termstarts import TermStarts

HEARD_MS = 3_000
"""A member that answered so lately counts as connected."""


async def nothing(term: int) -> None: ...


class GroupReplication:
    """Satisfies the replication protocol; `broker_id_of` a member's id."""

    mastership = None
    stays_out = None

    def __init__(self, member: Member, store: LedgerStore, broker_id_of: Callable[[str], int]) -> None:
        self._member = member
        self._store = store
        self._broker_id_of = broker_id_of
        self._confirm_callbacks: list[Callable[[], None]] = []
        self._terms = TermStarts(member.node)
        self.counters = HACounters()
        self._before_leading: Callable[[int], Awaitable[None]] = nothing
        store.on_flush(self._confirmed)

    def before_leading(self, callback: Callable[[int], Awaitable[None]]) -> None:
        """`callback(term)` has to return before this member is the master of that term; it may raise EpochFenced."""
        self._before_leading = callback

    async def start(self) -> None:
        await self._member.serve()

    async def stop(self) -> None:
        """The store closes the member."""

    @property
    def address(self) -> str:
        return self._member.address

    @property
    def epoch(self) -> int:
        return self._member.term

    @property
    def history(self) -> EpochHistory:
        """The terms of the log itself: there is no file of epochs."""
        return self._terms.history

    @property
    def copies(self) -> bool:
        return self.follows

    def holds(self, end: int) -> bool:
        """Who is elected holds all that was decided, and nothing rests on more."""
        return True

    @property
    def follows(self) -> bool:
        return not self._member.leads and self._member.leader_id is not None

    async def become_master(
        self, epoch: int, broker_id: int, sync_state_set: frozenset[int], sync_state_set_epoch: int
    ) -> None:
        """EpochFenced: this member leads no more."""
        self._check_leads(epoch)
        await self._before_leading(epoch)
        self._check_leads(epoch)
        self.counters.role_changes += 1

    def _check_leads(self, term: int) -> None:
        if not self._member.leads or self._member.term != term:
            raise EpochFenced(term, max(self._member.term, term + 1))

    async def become_slave(
        self, epoch: int, broker_id: int, master_id: int, master_ha_address: str | None = None
    ) -> None:
        self.counters.role_changes += 1

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """Who may lead is for the group to say."""

    def on_confirm(self, callback: Callable[[], None]) -> None:
        self._confirm_callbacks.append(callback)

    def acked_end(self) -> int:
        return self._store.confirm_offset() if self._member.leads else 0

    def followed_end(self) -> int:
        return self.acked_end()

    def may_confirm(self) -> bool:
        return self._member.leads

    def agreed_without(self, lacking: Collection[int], epoch: int) -> bool:
        """Whether a majority has it, this member too: the leader of each later term asks one before it is a master."""
        held = [peer for peer in self._member.voters() if self._broker_id_of(peer) not in lacking]
        return self._member.leads and self._member.term == epoch and self._member.is_majority(held)

    async def still_leads(self) -> bool:
        """A majority says so, asked now: a process that stood still may have been replaced."""
        return await self._member.still_leads()

    def reachable(self, end: int) -> bool:
        return True

    def in_sync_count(self) -> int:
        """Members that were heard lately, this one too; 0 unless it leads."""
        return 1 + len(self.slaves()) if self._member.leads else 0

    def applied_members(self) -> frozenset[int]:
        return (
            frozenset(map(self._broker_id_of, self._member.members())) if self._member.leads else frozenset()
        )

    def counted_members(self) -> frozenset[int]:
        """Who votes: a majority of them copies tables before an administrator is answered."""
        return (
            frozenset(map(self._broker_id_of, self._member.voters())) if self._member.leads else frozenset()
        )

    def slaves(self) -> dict[int, tuple[int, bool]]:
        """Broker id -> (where what it holds ends, level) of each member that was heard lately."""
        return {
            self._broker_id_of(peer): (behind.held_end, behind.is_level)
            for peer, behind in self._member.behind().items()
            if behind.silent_ms <= HEARD_MS
        }

    def may_be_followed(self) -> bool:
        """A member is heard: before it leads it draws level."""
        return bool(self.slaves())

    def read_from(self) -> int | None:
        """The least end of those, which is read on from there; None without any."""
        return min((end for end, _ in self.slaves().values()), default=None)

    async def truncate_epoch_prefix(self, log_min: int) -> None:
        """There is no file of epochs."""

    async def why_not(self, asker: Asker, broker_id: int) -> Why | None:
        """Members are known by the list that all of them were given, and speak from where it has them; on this machine under
        any of its addresses."""
        member = next(
            (each for each in self._member.members() if self._broker_id_of(each) == broker_id), None
        )
        if member is None:
            return Why.NO_MEMBER
        comes_from = [asker.address]
        if newcomer_of(broker_id, asker.peer_host, asker.own_host).on_this_machine:
            comes_from += [
                f"{host}:0" for host in (LOOPBACK, asker.own_host, self.address.rpartition(":")[0])
            ]
        return None if await self._member.node.guard.speaks_for(member, comes_from) else Why.NO_MEMBER

    def set_master_ha_address(self, address: str, epoch: int) -> None:
        """Members find each other by their list."""

    def status(self) -> dict[str, Any]:
        leads, end = self._member.leads, self._store.max_offset()
        connections = [
            {"addr": self._member.node.peers[peer], "brokerId": self._broker_id_of(peer), "slaveAckOffset": behind.held_end,
             "diff": end - behind.held_end, "inSync": behind.is_level,
             "transferFromWhere": behind.held_end, "transferredByteInSecond": 0}
            for peer, behind in self._member.behind().items()
            if behind.silent_ms <= HEARD_MS
        ]  # fmt: skip
        return {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0, "lastWriteTimestamp": 0, "masterFlushOffset": 0, "maxOffset": 0 if leads else end,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": connections,
            "inSyncSlaveNums": sum(1 for each in connections if each["inSync"]),
            "master": leads,
            "masterCommitLogMaxOffset": end if leads else 0,
        }  # fmt: skip

    def _confirmed(self) -> None:
        for callback in self._confirm_callbacks:
            callback()
