"""Newer subscriptions, asked for from the clients that have them.

A push consumer gives its subscription a new version whenever its share of the queues changes, pulls with that version at
once, but may tell it only with its next periodic heartbeat, up to half a minute later. Serving the older filter could skip
messages for good, so such a pull is refused (25) and the client is asked (307) what it subscribes to now.

Invariant: one connection is asked for one group by at most one call at a time."""

from __future__ import annotations

import logging

from broker.clients.bounds import bounded
from broker.clients.groups import ConsumerGroups
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import ConsumerRunningInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.admin import GetConsumerRunningInfoHeader
from remoting.peer import Peer

ASK_TIMEOUT_MS = 3_000

logger = logging.getLogger(__name__)


class SubscriptionRenewal:
    """Asks and takes in the answers."""

    def __init__(self, consumers: ConsumerGroups, tasks: Tasks) -> None:
        self._consumers = consumers
        self._tasks = tasks
        self._asked: dict[tuple[Peer, str], None] = {}

    def ask(self, peer: Peer, group: str) -> None:
        """The client behind `peer` has a newer subscription of `group` than its heartbeats said."""
        client_id = self._consumers.client_id_of(peer, group)
        if client_id is not None and (peer, group) not in self._asked:
            self._asked[peer, group] = None
            self._tasks.start(self._renew(peer, group, client_id), name=f"subscription of {client_id}")

    async def _renew(self, peer: Peer, group: str, client_id: str) -> None:
        header = GetConsumerRunningInfoHeader(group, client_id)
        question = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        try:
            reply = await peer.call(question, ASK_TIMEOUT_MS)
            if reply.code == ResponseCode.SUCCESS:
                self._consumers.renew(group, ConsumerRunningInfo.decode(bounded(reply.body)).subscription_set)
            else:
                logger.info("no subscription told", extra=fields(client_id=client_id, code=reply.code))
        except (RemotingError, BodyError, HeaderError) as error:  # its heartbeat will bring it
            logger.info("no subscription told", extra=fields(client_id=client_id, why=error))
        finally:
            del self._asked[peer, group]
