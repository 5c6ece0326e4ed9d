"""Hosts of this broker's controllers. Only these hosts may send HAND_OVER, after which a master holds sends back.

Invariant: a request is accepted from a host in `controllerAddr`, or from the host of the leader that these controllers named.
Names are resolved at most once in `READ_AGAIN_MS`, however many requests arrive. Other programs on a controller's host are
accepted, too."""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial

from broker.role.controllerclient import ControllerClient
from broker.role.replicatable import addresses_of
from ha.master.admittance import LOOPBACK, newcomer_of
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import CONTROLLER
from mqruntime.repeatedfailure import RepeatedFailure
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Handler, Reply, Router

logger = logging.getLogger("broker.controllerhosts")

READ_AGAIN_MS = 5_000
ELSEWHERE = (
    "only a controller may ask this, and controllerAddr names none at your host; if that is one and it comes over another "
    "network or through address translation, set haSlaveHostCheck=false on all brokers of the set"
)
OTHER_CERTIFICATE = (
    "only a controller may ask this, and your certificate speaks for none of those in controllerAddr"
)


class ControllerHosts:
    """`checks_hosts` is haSlaveHostCheck."""

    def __init__(self, controllers: ControllerClient, clock: Clock, *, checks_hosts: bool) -> None:
        self._controllers = controllers
        self._clock = clock
        self._checks_hosts = checks_hosts
        self._hosts: frozenset[str] = frozenset()
        self._read_of: frozenset[str] = frozenset()
        self._read_ms: int | None = None
        self._reading = asyncio.Lock()
        self._refused = RepeatedFailure()

    def guard(self, router: Router) -> None:
        """From now on reject HAND_OVER from other hosts with NO_PERMISSION (16)."""
        router.handlers[RequestCode.HAND_OVER] = partial(self._one, router.handlers[RequestCode.HAND_OVER])

    async def _one(self, serve: Handler, peer: Peer, command: RemotingCommand) -> Reply:
        certificate = peer.certificate
        if not (certificate.may_be(CONTROLLER) and certificate.speaks_for_one_of(self._addresses())):
            return self._reject(peer, command, OTHER_CERTIFICATE)
        if self._checks_hosts and not await self._is_one(peer):
            return self._reject(peer, command, ELSEWHERE)
        result = serve(peer, command)
        return await result if inspect.isawaitable(result) else result

    def _reject(self, peer: Peer, command: RemotingCommand, why: str) -> RemotingCommand:
        if self._refused.failed(why, self._clock.monotonic_ms()):
            logger.warning("hand-over rejected", extra=fields(peer=peer.remote_address, why=why))
        return command.reply(ResponseCode.NO_PERMISSION, why)

    def _addresses(self) -> frozenset[str]:
        leader = self._controllers.leader
        return frozenset([*self._controllers.addresses, *([leader] if leader else [])])

    async def _is_one(self, peer: Peer) -> bool:
        host = peer.remote_address.rpartition(":")[0]
        asks = newcomer_of(0, host, peer.own_host)
        if not self._may_be(asks.host, peer, asks.on_this_machine):
            async with self._reading:
                await self._read()
        return self._may_be(asks.host, peer, asks.on_this_machine)

    def _may_be(self, host: str, peer: Peer, on_this_machine: bool) -> bool:
        here = {LOOPBACK, newcomer_of(0, peer.own_host, "").host}
        return host in self._hosts or (on_this_machine and not here.isdisjoint(self._hosts))

    async def _read(self) -> None:
        addresses = self._addresses()
        now_ms = self._clock.monotonic_ms()
        if (
            self._read_ms is not None
            and addresses == self._read_of
            and now_ms < self._read_ms + READ_AGAIN_MS
        ):
            return
        self._read_of, self._read_ms = addresses, now_ms
        hosts = sorted(address.rpartition(":")[0] for address in addresses)
        self._hosts = frozenset().union(*await asyncio.gather(*map(addresses_of, hosts)))
