"""Deletions of topics that are sent to a slave (DELETE_TOPIC_IN_BROKER, 215, and DELETE_TOPIC_IN_BROKER_LIST, 5002). The
slave's master carries them out, and the slave returns the master's answer.

Java's mqadmin deletes the retry and dead-letter topics of a group at every replica, in any order, and stops at the first
rejection. Only the deletion on a master is permanent, because slaves copy the master's tables.

Invariant: a deletion is passed on once and marked as passed on, because two brokers may take each other for the master. A
deletion that may have waited while this process was paused is not passed on: the topic may have been created again since."""

from __future__ import annotations

import inspect

from accesscontrol.guard import PASSED_BY
from broker.clients.refusals import REJECTED
from broker.neighbours.naps import Naps
from broker.role.membership import Membership
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.peer import Peer
from remoting.router import Handler, Router
from remoting.signing import ACCESS_KEY

TIMEOUT_MS = 2_500
"""Administrators wait 3 s or 5 s for an answer; a master waits 2 s for its slaves."""
PASSED_ON = "passedOn"
"""Header field that marks a forwarded request."""


class PassedDeletions:
    """The deletions that are sent to one broker; `client` calls the broker's master."""

    def __init__(self, membership: Membership, client: RemotingClient, naps: Naps) -> None:
        self._membership = membership
        self._client = client
        self._naps = naps

    def guard(self, router: Router) -> None:
        """Route deletions in `router` through this object."""
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_BROKER_LIST):
            router.handlers[code] = self._passing(router.handlers[code])

    def _passing(self, carry_out: Handler) -> Handler:
        async def delete(peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
            return await self.of_master(peer, command) or await _answer(carry_out, peer, command)

        return delete

    async def of_master(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """The master's answer; None if this broker has to handle the request, or if the master does not answer."""
        master = self._membership.master_address
        if master is None or PASSED_ON in command.ext:
            return None
        if self._naps.is_late(peer):
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        passed_on = {**command.ext, PASSED_ON: "true"}
        if (user := command.ext.get(ACCESS_KEY)) is not None:
            passed_on[PASSED_BY] = user  # this broker signs it
        passed = RemotingCommand.request(command.code, passed_on, command.body)
        try:
            reply = await self._client.call(master, passed, TIMEOUT_MS)
        except RemotingError:
            return None
        return command.reply(reply.code, reply.remark)


async def _answer(handler: Handler, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
    reply = handler(peer, command)
    return await reply if inspect.isawaitable(reply) else reply
