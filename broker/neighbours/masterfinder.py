"""A slave asks its master for the HA address (EXCHANGE_BROKER_HA_INFO, 906) until the master answers.

Invariant: an answer counts only for the masterEpoch under which the slave asked, and only if it comes from the master itself.
Upstream gets the address only from name servers, which takes up to a registration period after each election. Here name servers
are only the fallback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mqruntime.log import fields
from mqruntime.waking import wait_event
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.headers.group import ExchangeHAInfoHeader

logger = logging.getLogger("broker.masterfinder")

ASK_SOON_MS, ASK_AGAIN_MS = 10, 200
"""The first and the longest interval. An elected master usually takes its role at once; if it does not, the interval grows."""
KNOWN_AGAIN_MS = 5_000  # a master that restarted in its epoch may have another HA port
TIMEOUT_MS = 1_000
REFUSALS_PER_CONNECTION = 10


class MasterFinder:
    """The finder. `on_found(ha_address, master_epoch)` is called for each new address."""

    def __init__(self, client: RemotingClient, on_found: Callable[[str, int], None]) -> None:
        self._client = client
        self._on_found = on_found
        self._master: tuple[str, int] | None = None
        self._known: str | None = None
        self._again_ms = ASK_SOON_MS
        self._refusals = 0
        self._retired = False
        self._changed = asyncio.Event()

    def follow(self, master_address: str, master_epoch: int) -> None:
        """Find the HA address of the master with the remoting address `master_address`."""
        if self._retired:
            return
        self._master, self._known = (master_address, master_epoch), None
        self._again_ms = ASK_SOON_MS
        self._changed.set()

    def forget(self) -> None:
        """Stop asking, because this broker has no master."""
        self._master = None
        self._changed.set()

    def retire(self) -> None:
        """Stop asking for ever, also for any later master."""
        self._retired = True

    def offered_by_name_server(self, master_address: str, ha_address: str) -> None:
        """Use an address from a registration reply, if the reply names the present master and the master itself has not
        answered."""
        if self._master is not None and self._master[0] == master_address and self._known is None:
            self._on_found(ha_address, self._master[1])

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._master is None:
                await self._changed.wait()
                continue
            await self._ask(*self._master)
            again_ms, self._again_ms = self._again_ms, min(2 * self._again_ms, ASK_AGAIN_MS)
            await wait_event(self._changed, again_ms if self._known is None else KNOWN_AGAIN_MS)

    async def _ask(self, master_address: str, master_epoch: int) -> None:
        request = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            reply = await self._client.call(master_address, request, TIMEOUT_MS)
            answer = ExchangeHAInfoHeader.from_ext(reply.ext)
        except (RemotingError, HeaderError) as error:
            logger.debug(
                "master does not return its HA address", extra=fields(master=master_address, why=error)
            )
            return
        found = answer.master_ha_address
        if answer.master_address not in (None, master_address):
            logger.warning(
                "another broker answers at the master's address",
                extra=fields(master=master_address, answered=answer.master_address),
            )
            self._client.disconnect(master_address)  # the next request opens a new connection
            return
        if reply.code != ResponseCode.SUCCESS or not found:
            self._refusals += 1
            if self._refusals % REFUSALS_PER_CONNECTION == 0:  # another broker may have the address now
                self._client.disconnect(master_address)
            return
        if self._master != (master_address, master_epoch):
            return
        self._refusals = 0
        if found != self._known:
            self._known = found
            self._on_found(found, master_epoch)
