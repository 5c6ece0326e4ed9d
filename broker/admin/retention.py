"""Requests that make room on disk: delete segments that are old enough (329), and files of queues that lead to nothing (306).

Invariant: an operator's word moves the hour at which old segments go, nothing else: their age and the holds count as ever."""

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
        """Answered at once, as upstream does: the next rounds do it."""
        self._cleaner.ask()
        return command.reply()

    async def _clean_queues(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        await self._cleaner.follow()
        return command.reply()
