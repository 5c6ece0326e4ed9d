"""Requests that free disk space: delete old segments (DELETE_EXPIRED_COMMITLOG, 329), and files of queues without messages
(CLEAN_EXPIRED_CONSUMEQUEUE, 306).

Invariant: an operator's request only replaces the hour of deletion. The age of segments and the holds still count."""

from __future__ import annotations

from broker.retention.cleaner import Cleaner
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router


class RetentionRequests:
    """The handlers."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self._delete)
        router.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self._clean_queues)

    def _delete(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Answer at once, as upstream does. The next rounds delete the segments."""
        self._cleaner.ask()
        return command.reply()

    async def _clean_queues(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        await self._cleaner.follow()
        return command.reply()
