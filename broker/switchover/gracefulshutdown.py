"""Graceful shutdown of a master: the master passes its role to another broker, then forwards requests that still come from
clients.

If there is no successor, the master takes no more messages, and stops once the stored messages are answered.

Invariant: a broker that has no possible successor does not ask for one. A forwarding broker has no other work, so it may be
killed. It does not replicate from its successor, so the successor does not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.replication.pending import PendingSends
from broker.role.actions import PollCall
from broker.role.controllercalls import ControllerCalls
from broker.role.controllerclient import ControllerClient
from broker.role.membership import Membership
from broker.switchover.forwarding import Forwarding
from broker.switchover.forwardingstate import HOLD_MS_MAX
from ha.service.replication import Replication
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.waking import wait_event
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.peer import Peer

logger = logging.getLogger("broker.gracefulshutdown")

STEP_DOWN_MS, SETTLE_MS = 1_500, 500
SUCCESSOR_SERVES_MS, SUCCESSOR_REGISTERS_MS = 1_500, 300
LOOK_MS = 20
FORWARD_LOOK_MS = 200


class GracefulShutdown:
    """`resign()` asks for a successor. `forward_ms` limits the time for which this broker forwards; if it is 0, the broker
    stops like a slave."""

    def __init__(
        self,
        membership: Membership,
        ha: Replication,
        resign: Callable[[], None],
        *,
        calls: ControllerCalls,
        controllers: ControllerClient,
        forwarding: Forwarding,
        pending: PendingSends,
        forward_ms: int,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._ha = ha
        self._resign = resign
        self._calls = calls
        self._controllers = controllers
        self._forwarding = forwarding
        self._pending = pending
        self._forward_ms = forward_ms
        self._clock = clock
        self._released = asyncio.Event()
        forwarding.on_release(self._released.set)

    async def step_down(self) -> bool:
        """Pass the role to another broker. Returns whether one leads and gets the requests; False after STEP_DOWN_MS."""
        if not self._forward_ms or not self._membership.accepts_sends or not self._may_be_followed():
            return False
        logger.info("stepping down", extra=fields(epoch=self._membership.master_epoch))
        self._resign()
        deadline_ms = self._clock.monotonic_ms() + STEP_DOWN_MS
        while not self._forwarding.passes_on:
            alone = (
                self._membership.accepts_sends and not self._may_be_followed()
            )  # and no other broker was elected yet
            if alone or self._clock.monotonic_ms() >= deadline_ms:
                logger.info("no successor, shutting down")
                return False
            await asyncio.sleep(LOOK_MS / 1000)
        await self._successor_known()
        return True

    async def settle(self) -> None:
        """Let new messages wait until the stored messages are answered, at most SETTLE_MS. Otherwise sends that the slaves are
        about to confirm would get no answer."""
        if not self._membership.accepts_sends:
            return
        deadline_ms = self._clock.monotonic_ms() + SETTLE_MS
        self._forwarding.hand_over(HOLD_MS_MAX)  # longer than SETTLE_MS: waiting messages are never stored
        while self._membership.accepts_sends and len(self._pending):
            if self._clock.monotonic_ms() >= deadline_ms:
                logger.info(
                    "stopping before all messages are confirmed", extra=fields(unconfirmed=len(self._pending))
                )
                return
            await asyncio.sleep(LOOK_MS / 1000)

    async def forward(self) -> None:
        """Forward until no client is connected any more, at most for `forward_ms`."""
        began_ms = self._clock.monotonic_ms()
        logger.info(
            "forwarding to new master", extra=fields(ms_max=self._forward_ms, clients=len(self._clients()))
        )
        while self._forwarding.state.holds or self._forwarding.passes_on:
            now_ms = self._clock.monotonic_ms()
            self._forwarding.expire(now_ms)
            if now_ms - began_ms >= self._forward_ms or not self._clients():
                break
            if not self._forwarding.reached:
                await self._ask_for_master()
            await asyncio.sleep(FORWARD_LOOK_MS / 1000)
        said = fields(ms=self._clock.monotonic_ms() - began_ms, forwarded=self._forwarding.forwarded)
        logger.info("forwarding ends", extra=said)

    async def _successor_known(self) -> None:
        """Wait until name servers know the successor, before this broker unregisters. Otherwise clients would get no routes."""
        self._released.clear()
        if not self._forwarding.reached:
            await wait_event(self._released, SUCCESSOR_SERVES_MS)
        await asyncio.sleep(SUCCESSOR_REGISTERS_MS / 1000)

    def _may_be_followed(self) -> bool:
        return self._ha.may_be_followed()

    def _clients(self) -> list[Peer]:
        """The open connections of clients."""
        return [peer for peer in self._forwarding.clients if not peer.closed]

    async def _ask_for_master(self) -> None:
        call = PollCall()
        request = self._calls.request(call, self._clock.now_ms())
        try:
            reply = self._calls.reply(call, await self._controllers.call(request))
        except (RemotingError, HeaderError, BodyError) as error:
            logger.debug("master not asked for", extra=fields(why=error))
            return
        if reply.grant is not None and reply.grant.master_id != self._membership.broker_id:
            self._forwarding.follows(reply.grant.master_address, reply.grant.master_epoch)
