"""Requests that free disk space: delete old segments (329), and files of queues without messages (306).

Invariant: an operator's request replaces only the hour of deletion: the age of segments and holds count as always."""

from __future__ import annotations

from broker.retention.cleaner import Cleaner
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router


class RetentionRequests:
    """Their handlers."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self._delete)
        router.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self._clean_queues)

    def _delete(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Answer at once, as upstream does: the next rounds delete."""
        self._cleaner.ask()
        return command.reply()

    async def _clean_queues(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        await self._cleaner.follow()
        return command.reply()
