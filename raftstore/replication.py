"""A Raft group as the replication of a broker's log.

Invariant: acknowledged data is committed and on this member's disk. By Raft, a majority of the members has committed data on
disk."""

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
"""A member that answered within this time counts as connected."""


async def nothing(term: int) -> None: ...


class GroupReplication:
    """Implements the replication protocol. `broker_id_of(member)` returns the broker id of a member."""

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
        """Set a callback. `callback(term)` must return before this member is the master of `term`; the callback may raise
        EpochFenced."""
        self._before_leading = callback

    async def start(self) -> None:
        await self._member.serve()

    async def stop(self) -> None:
        """Nothing to do: the store closes the member."""

    @property
    def address(self) -> str:
        return self._member.address

    @property
    def epoch(self) -> int:
        return self._member.term

    @property
    def history(self) -> EpochHistory:
        """The terms of the log as epochs; Raft mode has no epoch file."""
        return self._terms.history

    @property
    def copies(self) -> bool:
        return self.follows

    def holds(self, end: int) -> bool:
        """Always True: an elected member holds all committed data, and nothing depends on more data."""
        return True

    @property
    def follows(self) -> bool:
        return not self._member.leads and self._member.leader_id is not None

    async def become_master(
        self, epoch: int, broker_id: int, sync_state_set: frozenset[int], sync_state_set_epoch: int
    ) -> None:
        """Become master of the term `epoch`. Raises EpochFenced if this member does not lead that term any more."""
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
        """Nothing to do: the group decides which member may lead."""

    def on_confirm(self, callback: Callable[[], None]) -> None:
        self._confirm_callbacks.append(callback)

    def acked_end(self) -> int:
        return self._store.confirm_offset() if self._member.leads else 0

    def followed_end(self) -> int:
        return self.acked_end()

    def may_confirm(self) -> bool:
        return self._member.leads

    def agreed_without(self, missing: Collection[int], epoch: int) -> bool:
        """Whether a majority of the voters, this member included, is not `missing`. This suffices, because the leader of each
        later term asks a majority before it becomes master."""
        held = [peer for peer in self._member.voters() if self._broker_id_of(peer) not in missing]
        return self._member.leads and self._member.term == epoch and self._member.is_majority(held)

    async def still_leads(self) -> bool:
        """Whether a majority, asked now, confirms that this member leads: after a pause of the process another member may
        lead."""
        return await self._member.still_leads()

    def reachable(self, end: int) -> bool:
        return True

    def in_sync_count(self) -> int:
        """The number of members heard lately, this member included; 0 unless this member leads."""
        return 1 + len(self.slaves()) if self._member.leads else 0

    def applied_members(self) -> frozenset[int]:
        return (
            frozenset(map(self._broker_id_of, self._member.members())) if self._member.leads else frozenset()
        )

    def counted_members(self) -> frozenset[int]:
        """The voters. A majority of the voters copies a changed table before the administrator gets an answer."""
        return (
            frozenset(map(self._broker_id_of, self._member.voters())) if self._member.leads else frozenset()
        )

    def slaves(self) -> dict[int, tuple[int, bool]]:
        """For each member heard lately: broker id -> (end of the member's log, whether it has caught up)."""
        return {
            self._broker_id_of(peer): (behind.held_end, behind.is_caught_up)
            for peer, behind in self._member.behind().items()
            if behind.silent_ms <= HEARD_MS
        }

    def may_be_followed(self) -> bool:
        """Whether another member is heard: such a member catches up before it leads."""
        return bool(self.slaves())

    def read_from(self) -> int | None:
        """The lowest log end of the members heard lately, from which the slowest of them reads on; None without such a
        member."""
        return min((end for end, _ in self.slaves().values()), default=None)

    async def truncate_epoch_prefix(self, log_min: int) -> None:
        """Nothing to do: there is no epoch file."""

    async def why_not(self, asker: Asker, broker_id: int) -> Why | None:
        """Why a broker may not ask as a member; None if it may. All members have the same list of members. A member connects
        from its address in the list; a member on this machine may use any of the machine's addresses."""
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
        return (
            None
            if await self._member.node.guard.speaks_for(member, comes_from, asker.certificate)
            else Why.NO_MEMBER
        )

    def set_master_ha_address(self, address: str, epoch: int) -> None:
        """Nothing to do: members find each other in the list of members."""

    def status(self) -> dict[str, Any]:
        leads, end = self._member.leads, self._store.max_offset()
        connections = [
            {"addr": self._member.node.peers[peer], "brokerId": self._broker_id_of(peer), "slaveAckOffset": behind.held_end,
             "diff": end - behind.held_end, "inSync": behind.is_caught_up,
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
