"""Calls to the controllers' leader, and heartbeats to all controllers.

Invariant: `leader` was named by a controller and has not failed since. After any failure, and after an answer "not leader",
the next call looks for the leader first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mqruntime.log import fields
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectFailed, HeaderError, RemotingError
from remoting.headers.controller import BrokerHeartbeatHeader, GetMetadataResponseHeader

logger = logging.getLogger("broker.controllerclient")

DISCOVERY_TIMEOUT_MS = 1000
CALL_TIMEOUT_MS = 3000


class ControllerClient:
    """`addresses` are the addresses in controllerAddr. One connection to each controller carries all requests."""

    def __init__(self, client: RemotingClient, addresses: list[str]) -> None:
        self._client = client
        self.addresses = addresses
        self.leader: str | None = None
        self._first = 0  # index of the controller to believe first, if several name a leader

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        """Send `command` to the leader and return the answer. Raises NotSent if the request was certainly not sent, another
        RemotingError if the leader may have carried it out."""
        for _ in range(2):
            leader = await self._leader()
            try:
                reply = await self._client.call(leader, command, CALL_TIMEOUT_MS)
            except RemotingError:
                self._distrust(leader)
                raise
            if reply.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return reply
            self._distrust(leader)
        return reply

    async def ask_all(
        self, request: Callable[[], RemotingCommand], on_answer: Callable[[RemotingCommand], None]
    ) -> bool:
        """Send a `request()` to all controllers at once, and to the leader if it is not among them. `on_answer` gets each
        answer as it arrives, except "not leader". Returns whether `on_answer` got an answer."""
        addresses = dict.fromkeys([*self.addresses, *([self.leader] if self.leader else [])])
        asked = [self._ask_one(address, request(), on_answer) for address in addresses]
        return any(await asyncio.gather(*asked))

    async def _ask_one(
        self, address: str, request: RemotingCommand, on_answer: Callable[[RemotingCommand], None]
    ) -> bool:
        try:
            reply = await self._client.call(address, request, DISCOVERY_TIMEOUT_MS)
        except RemotingError as error:
            logger.debug("controller does not answer", extra=fields(address=address, why=error))
            return False
        if reply.code == ResponseCode.CONTROLLER_NOT_LEADER:
            return False
        on_answer(reply)
        return True

    async def discover(self) -> None:
        """Look for the leader even if the present one has not failed."""
        found = await self._ask_around()
        if found is not None and found != self.leader:
            logger.info("controller leader found", extra=fields(leader=found))
            self.leader = found

    async def heartbeat_to_leader(self, header: BrokerHeartbeatHeader) -> None:
        """Send a heartbeat on the connection that the next call uses, so the heartbeat arrives before that call. Raises
        RemotingError."""
        await self.heartbeat(await self._leader(), header)

    async def heartbeat(self, address: str, header: BrokerHeartbeatHeader) -> None:
        """Send a heartbeat to one controller. Raises NotSent."""
        await self._client.one_way(address, RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header))

    async def _leader(self) -> str:
        if self.leader is None:
            self.leader = await self._ask_around()
            if self.leader is None:
                raise ConnectFailed(";".join(self.addresses), "no controller names a leader")
            logger.info("controller leader found", extra=fields(leader=self.leader))
        return self.leader

    def _distrust(self, leader: str) -> None:
        """Forget the leader that failed. If two calls fail, the second must not drop a leader found after the first."""
        if self.leader == leader:
            self.leader = None
            self._first += 1

    async def _ask_around(self) -> str | None:
        """The leader that a controller names; None if no controller names one. A controller that claims to be leader is
        believed at once, so a silent controller costs no time. Claims about another leader count once all have answered."""
        count = len(self.addresses)
        order = [self.addresses[(self._first + at) % count] for at in range(count)]
        asked = [asyncio.create_task(self._ask(address), name=f"discovery {address}") for address in order]
        answers: list[GetMetadataResponseHeader] = []
        try:
            waiting = set(asked)
            while waiting:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                answers = [answer for task in asked if task.done() and (answer := task.result()) is not None]
                for answer in answers:
                    if answer.is_leader and answer.controller_leader_address:
                        return answer.controller_leader_address
        finally:
            for task in asked:
                task.cancel()
        return next(
            (answer.controller_leader_address for answer in answers if answer.controller_leader_address), None
        )

    async def _ask(self, address: str) -> GetMetadataResponseHeader | None:
        request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            reply = await self._client.call(address, request, DISCOVERY_TIMEOUT_MS)
            return (
                GetMetadataResponseHeader.from_ext(reply.ext) if reply.code == ResponseCode.SUCCESS else None
            )
        except (RemotingError, HeaderError) as error:
            logger.debug("controller does not answer", extra=fields(address=address, why=error))
            return None
