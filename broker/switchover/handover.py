"""Requests of a planned switchover: to the master (HAND_OVER) and to its successor (AWAIT_MASTER).

The leading controller sends HAND_OVER before an election that deposes a live master (controller/handover.py). Reasons for the
election are a request of an operator, a master that reports that it cannot lead, and a master that stops
(broker/switchover/gracefulshutdown.py). `Forwarding` lets sends wait meanwhile.

Invariant: a master answers OK only when all its messages are confirmed, and so its successor, a member of the SyncStateSet,
holds them. After the request the master takes no messages, until the hand-over is called off or times out. No election depends
on the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.clients.requesters import Requesters, note_passes_on
from broker.neighbours.agreement import host_of
from broker.replication.writegate import SendReplicationView
from broker.role.membership import Membership
from broker.switchover.forwarding import Forwarding
from ha.master.gate import Asker
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.waking import wait_event
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import AwaitMasterHeader, HandOverHeader, HandOverResponseHeader
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger("broker.handover")

WAIT_MS_MAX = 3_000
CHECK_MS = 300
"""Enough for a new master, which has asked for its replicas' addresses long before. Only slow controllers take longer."""


UNKNOWN = "it cannot be checked now whether this is a broker of the set"


class HandOverRequests:
    """The handlers of HAND_OVER and AWAIT_MASTER."""

    def __init__(
        self,
        membership: Membership,
        acknowledgement: SendReplicationView,
        store: BrokerStore,
        ha: Replication,
        forwarding: Forwarding,
        requesters: Requesters,
        clock: Clock,
        *,
        is_guarded: bool = False,
    ) -> None:
        """`is_guarded`: with access control the requests of a former master have other fields than their clients have signed,
        so a broker that cannot be checked passes on nothing."""
        self._is_guarded = is_guarded
        self._membership = membership
        self._acknowledgement = acknowledgement
        self._store = store
        self._ha = ha
        self._forwarding = forwarding
        self._requesters = requesters
        self._clock = clock
        self._moved = asyncio.Event()  # set by `moved`, cleared by a waiting request

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.HAND_OVER, self._hand_over)
        router.add(RequestCode.AWAIT_MASTER, self._await_master)

    def moved(self) -> None:
        """Wake waiting requests, because the role, the SyncStateSet or the acknowledged end may have changed."""
        self._moved.set()

    async def _hand_over(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = HandOverHeader.from_ext(command.ext)
        us, said = self._membership, fields(successor=header.successor_id, epoch=header.master_epoch)
        if header.broker_name != us.broker_name or header.master_epoch != us.master_epoch:
            return command.reply(ResponseCode.SYSTEM_ERROR, "not the master of this epoch")
        if header.called_off:
            logger.info("hand-over called off", extra=said)
            self._forwarding.called_off()
            return command.reply()
        if not us.accepts_sends or header.successor_id not in self._ha.applied_members():
            return command.reply(ResponseCode.SYSTEM_ERROR, "no master that could hand over to this broker")
        self._forwarding.hand_over(header.hold_ms)
        if await self._until(self._is_caught_up, header.wait_ms):
            logger.info("handing over", extra=said)
            return command.reply(header=HandOverResponseHeader(self._store.max_offset()))
        self._forwarding.called_off()
        logger.warning("hand-over failed: the successor did not catch up in time", extra=said)
        return command.reply(ResponseCode.SYSTEM_ERROR, "the successor is not caught up")

    def _is_caught_up(self) -> bool:
        """Whether the confirmed end covers the whole log, so that all members hold it, including the successor."""
        end = self._store.max_offset()
        return self._store.confirm_offset() >= end and self._acknowledgement.acked_end() >= end

    async def _await_master(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = AwaitMasterHeader.from_ext(command.ext)
        note_passes_on(peer)

        def leads() -> bool:
            return self._membership.accepts_sends and self._membership.master_epoch >= header.master_epoch

        await self._until(lambda: leads() and self._acknowledgement.enough_in_sync(), header.wait_ms)
        if leads():
            if await self._is_of_this_set(peer, header.broker_id):
                self._requesters.passes_on(peer)
            elif self._is_guarded:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, UNKNOWN)
            return command.reply()  # if too few replicas are in sync, sends are rejected with that reason
        return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "not the master of this epoch yet")

    async def _is_of_this_set(self, peer: Peer, broker_id: int | None) -> bool:
        """Whether the peer is a broker of this set. The check is that of HA links, because requests on a former master's
        connection are taken as requests of its clients. A peer that cannot be checked in time is served as a client."""
        if broker_id is None:
            return False
        asker = Asker(peer.remote_address, host_of(peer.remote_address), peer.own_host, peer.certificate)
        try:
            async with asyncio.timeout(CHECK_MS / 1000):
                return await self._ha.why_not(asker, broker_id) is None
        except TimeoutError:
            return False

    async def _until(self, is_so: Callable[[], bool], wait_ms: int) -> bool:
        deadline_ms = self._clock.monotonic_ms() + min(max(wait_ms, 0), WAIT_MS_MAX)
        while not is_so():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            self._moved.clear()
            await wait_event(self._moved, left_ms)
        return True
