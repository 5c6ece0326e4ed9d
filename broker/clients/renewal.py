"""Requests newer subscriptions from the clients that have them.

A push consumer gives its subscription a new version when its share of the queues changes, and pulls with this version at once.
It may send the version only with its next periodic heartbeat, up to half a minute later. With the older filter messages could
be skipped for ever. So such a pull is rejected with SUBSCRIPTION_NOT_LATEST (25), and the client is asked for its subscriptions
(GET_CONSUMER_RUNNING_INFO, 307). A client that has not sent a heartbeat over this connection is asked before its pull is
answered, because upstream's consumers wait 3 s after SUBSCRIPTION_NOT_EXIST (24).

Invariant: there is at most one call at a time for one connection and one group. Answers without a subscription are logged at
most every half minute for one host and group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from broker.clients.groups import ConsumerGroups
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.slices import yield_to_loop
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import ConsumerRunningInfo, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.admin import GetConsumerRunningInfoHeader
from remoting.peer import Peer

ASK_TIMEOUT_MS = 3_000
FIRST_TIMEOUT_MS = 1_000
"""Timeout of a call for which a pull waits."""
LONG_ANSWER_BYTES = 2 << 10
"""Of longer answers one is decoded in a turn of the event loop, because clients may send many together."""
RUNNING_INFO_DIALECT_MAX = 256 << 10
"""Limit of a running info in Java's dialect of JSON, in which queues are keys."""
FIRST_MAX = 1_000
"""Limit of calls to clients without a heartbeat at a time, for one connection and one group each."""

logger = logging.getLogger(__name__)


class SubscriptionRenewal:
    """Asks clients and handles the answers. `is_former(peer)`: whether the peer is a former master, which forwards requests."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        provisional: ProvisionalSubscriptions,
        tasks: Tasks,
        is_former: Callable[[Peer], bool],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._unreported = RepeatedFailures()
        self._decoding = asyncio.Lock()
        """Long answers that come together are decoded in one turn of the event loop each."""
        self._consumers = consumers
        self._provisional = provisional
        self._tasks = tasks
        self._is_former = is_former
        self._asked: dict[tuple[Peer, str], None] = {}
        self._first: dict[tuple[Peer, str], asyncio.Task[None]] = {}

    def ask(self, peer: Peer, group: str) -> None:
        """Ask the client at `peer`, whose pull has a newer subscription of `group` than its heartbeats."""
        client_id = self._consumers.client_id_of(peer, group)
        if client_id is not None and (peer, group) not in self._asked:
            self._asked[peer, group] = None
            self._tasks.start(self._renew(peer, group, client_id), name=f"subscription of {client_id}")

    def ask_first(self, peer: Peer, group: str) -> asyncio.Task[None] | None:
        """Ask the client at `peer`, which sent no heartbeat. The task ends at the answer or at a timeout. None if nobody is
        asked: the peer is a former master, the group's heartbeats come over this connection, or too many clients are being
        asked."""
        if self._is_former(peer) or self._provisional.is_known(peer, group):
            return None
        asking = self._first.get((peer, group))
        if asking is None and len(self._first) < FIRST_MAX:
            name = f"first subscription of {peer.remote_address}"
            asking = self._first[peer, group] = self._tasks.start(self._request_first(peer, group), name=name)
        return asking

    async def _renew(self, peer: Peer, group: str, client_id: str) -> None:
        try:
            await self._request(
                peer, group, client_id, ASK_TIMEOUT_MS, partial(self._consumers.renew, group, client_id)
            )
        finally:
            del self._asked[peer, group]

    async def _request_first(self, peer: Peer, group: str) -> None:
        """Ask once. Upstream's clients answer for the group, whatever client id the request has."""
        take = partial(self._provisional.said, peer, group)
        try:
            await self._request(peer, group, peer.remote_address, FIRST_TIMEOUT_MS, take)
        finally:
            del self._first[peer, group]

    async def _request(
        self,
        peer: Peer,
        group: str,
        client_id: str,
        timeout_ms: int,
        take: Callable[[list[SubscriptionData]], None],
    ) -> None:
        header = GetConsumerRunningInfoHeader(group, client_id)
        question = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        try:
            reply = await peer.call(question, timeout_ms)
            if reply.code == ResponseCode.SUCCESS:
                is_long = len(reply.body or b"") > LONG_ANSWER_BYTES
                async with self._decoding if is_long else nullcontext():
                    info = ConsumerRunningInfo.from_request(reply.body, dialect_max=RUNNING_INFO_DIALECT_MAX)
                    if is_long:
                        await yield_to_loop()
                take(info.subscription_set)
            else:
                self._note_unreported(peer, group, client_id, f"answered with code {reply.code}")
        except (RemotingError, BodyError, HeaderError) as error:  # the next heartbeat brings the subscription
            self._note_unreported(peer, group, client_id, error)

    def _note_unreported(self, peer: Peer, group: str, client_id: str, why: object) -> None:
        host = peer.remote_address.rpartition(":")[0]
        if self._unreported.failed((host, group), self._clock.monotonic_ms()):
            logger.info("no subscription reported", extra=fields(client_id=client_id, why=why))
