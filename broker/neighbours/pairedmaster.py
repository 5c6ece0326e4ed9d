"""The master of a pair, asked for a record by its place in the log (33), which Java masters answer too.

Invariant: code 0 brings what stands at that place in its log, code 1 says that nothing does, and any other answer is none."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.errors import MasterUnread
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.messages import ViewMessageHeader

TIMEOUT_MS = 3_000


class PairedMaster:
    """The one that `membership` names."""

    def __init__(self, membership: Membership, client: RemotingClient) -> None:
        self._membership = membership
        self._client = client

    async def record_at(self, offset: int) -> bytes | None:
        """See ha.classic.client.MasterRecords."""
        master = self._membership.master_address
        if master is None:
            raise MasterUnread("no name server has told where the master of this pair is")
        request = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset))
        try:
            reply = await self._client.call(master, request, TIMEOUT_MS)
        except RemotingError as error:
            raise MasterUnread(str(error)) from error
        if reply.code == ResponseCode.SUCCESS:
            return bytes(reply.body or b"")
        if reply.code == ResponseCode.SYSTEM_ERROR:
            return None
        raise MasterUnread(f"{master} answers {reply.code}: {reply.remark or ''}")
