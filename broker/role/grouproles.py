"""Passes the leader of a Raft group to the broker's membership, as a grant whose masterEpoch is the term.

Invariant: as in Raft, a leader becomes master once all entries of former leaders in its log are committed. A follower follows a
master only after that master has reported that it serves. A deposed leader answers all waiting requests at once."""

from __future__ import annotations

import asyncio
import logging

from broker.role.actions import Grant
from broker.role.events import BrokerEvents
from broker.role.leaderhealth import LeaderHealth
from broker.role.manager import ReplicasManager
from broker.role.membership import Membership
from broker.role.switch import RoleSwitch
from broker.settings.raft import broker_id_of
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks
from mqruntime.waking import wait_event
from raftstore.ledgerstore import LedgerStore
from raftstore.member import Member

logger = logging.getLogger("broker.grouproles")

LOOK_MS = 50
HOLD_MS = 3_000
YIELD_AGAIN_MS = 10_000
"""How long a leader that cannot take messages waits until it transfers leadership again."""
KNOWN_AGAIN_MS = 5_000
"""A follower asks for the master's address again after this time: a master that restarted in its term may have another."""


class GroupRoles:
    """The roles of one broker. `member` is the broker's Raft member; `membership` knows the broker id."""

    def __init__(
        self,
        membership: Membership,
        member: Member,
        store: LedgerStore,
        manager: ReplicasManager,
        switch: RoleSwitch,
        events: BrokerEvents,
        health: LeaderHealth,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._member = member
        self._store = store
        self._manager = manager
        self._switch = switch
        self._events = events
        self._health = health
        self._clock = clock
        self._news = asyncio.Event()
        self._known: tuple[int, str] | None = None
        """The term and the leader whose address was passed to `membership` last."""
        self._ask_again_ms = 0
        self._yield_again_ms = 0
        member.on_role(self._moved)
        member.on_hand_over(self._hands_over)
        member.serves_clients_at(lambda: membership.address if membership.accepts_sends else None)

    def start(self, tasks: Tasks) -> None:
        tasks.start(self._run(), name="group roles")

    def _moved(self) -> None:
        if not self._member.leads:
            if self._membership.accepts_sends:
                logger.info("deposed")
            self._store.leads_no_more()
            self._membership.deposed()
            self._switch.deposed()
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            await self._look()
            await wait_event(self._news, LOOK_MS)

    async def _look(self) -> None:
        member, us = self._member, self._membership
        if member.leads:
            assert us.broker_id is not None
            self._grant(member.term, us.broker_id, us.address)
            await self._yield_if_unfit()
            return
        leader_id = member.leader_id
        now_ms = self._clock.monotonic_ms()
        if leader_id is None or ((member.term, leader_id) == self._known and now_ms < self._ask_again_ms):
            return
        asked = member.term, leader_id
        address = await member.where_leader_serves()
        if address is not None and asked == (member.term, member.leader_id):
            self._known, self._ask_again_ms = asked, self._clock.monotonic_ms() + KNOWN_AGAIN_MS
            self._grant(member.term, broker_id_of(leader_id), address)

    async def _yield_if_unfit(self) -> None:
        """Transfer leadership if this leader cannot take messages and another member can lead."""
        now_ms = self._clock.monotonic_ms()
        why = self._health.why_unfit(now_ms)
        if why and now_ms >= self._yield_again_ms:
            self._yield_again_ms = now_ms + YIELD_AGAIN_MS
            logger.warning("transferring leadership: %s", why)
            await self.hand_over()

    def _grant(self, term: int, master_id: int, address: str) -> None:
        members = frozenset(map(broker_id_of, self._member.members()))
        self._manager.granted(Grant(term, master_id, address, members, term))

    async def hand_over(self) -> None:
        """Transfer leadership to another member that can lead, if there is one."""
        await self._member.hand_over()

    def _hands_over(self, begins: bool) -> None:
        """Hold requests during a leadership transfer, no matter which member started it."""
        if begins:
            self._events.transfer_began(HOLD_MS)
        else:
            self._events.transfer_failed()
