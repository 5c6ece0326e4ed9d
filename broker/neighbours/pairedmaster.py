"""Requests to a pair's master, which Java masters answer too: for a record by its offset (VIEW_MESSAGE_BY_ID, 33) and for the
log's start (GET_BROKER_RUNTIME_INFO, 28). A Java master under controllers is also asked for the newest masterEpoch that it has
led (GET_ALL_TOPIC_CONFIG, 21).

Invariant: an answer with code 0 has the record at the offset, and code 1 means that there is no record. Any other answer counts
as no answer."""

from __future__ import annotations

from collections.abc import Callable

from broker.resync.logspan import log_span
from broker.role.membership import Membership
from ha.errors import MasterUnread
from remoting.bodies.topics import TopicConfigWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.headers.messages import ViewMessageHeader

TIMEOUT_MS = 3_000


class PairedMaster:
    """The master that `membership` names."""

    def __init__(self, membership: Membership, client: RemotingClient) -> None:
        self._membership = membership
        self._client = client

    async def record_at(self, offset: int) -> bytes | None:
        """See ha.classic.client.MasterRecords."""
        request = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset))
        reply = await self._asked(request)
        if reply.code == ResponseCode.SUCCESS:
            return bytes(reply.body or b"")
        if reply.code == ResponseCode.SYSTEM_ERROR:
            return None
        raise self._unread(reply)

    async def begins_at(self) -> int:
        reply = await self._asked(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        if reply.code != ResponseCode.SUCCESS:
            raise self._unread(reply)
        return log_span(reply.body).begins

    async def _asked(self, request: RemotingCommand) -> RemotingCommand:
        master = self._membership.master_address
        if master is None:
            raise MasterUnread("the master's address is not known")
        try:
            return await self._client.call(master, request, TIMEOUT_MS)
        except RemotingError as error:
            raise MasterUnread(str(error)) from error

    def _unread(self, reply: RemotingCommand) -> MasterUnread:
        return MasterUnread(f"{self._membership.master_address} answers {reply.code}: {reply.remark or ''}")


class ElectedMaster(PairedMaster):
    """The master that controllers named to `membership`. See ha.slave.client.MasterWitness."""

    def __init__(
        self, membership: Membership, client: RemotingClient, is_upstreams: Callable[[], bool]
    ) -> None:
        super().__init__(membership, client)
        self._is_upstreams = is_upstreams

    def names(self, epoch: int) -> bool:
        """Whether the master is the master of `epoch`. Between the grant and the change of role there may be two masters."""
        return self._membership.master_epoch == epoch

    async def leads(self) -> int | None:
        """The newest epoch that the master has led. When upstream's broker becomes master (`ReplicasManager.changeToMaster`),
        it keeps the masterEpoch in memory as stateVersion of its topics, independent of its epoch file."""
        if not self._is_upstreams():
            return None
        reply = await self._asked(RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG))
        if reply.code != ResponseCode.SUCCESS:
            raise self._unread(reply)
        try:
            return TopicConfigWrapper.decode(reply.body).data_version.state_version
        except BodyError as error:
            raise MasterUnread(str(error)) from error
