"""Requests in the name of a server: where the port asks for certificates, the sender's must speak for that server.

Invariant: a request that is refused here reaches no handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import broker_role
from mqruntime.repeatedfailures import RepeatedFailures
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Handler, Reply, Router

logger = logging.getLogger(__name__)

SOME_SERVER = ""
Claim = Callable[[RemotingCommand], str | None]
"""The address of the server in whose name a request comes: SOME_SERVER if any server may send it, None if anybody may."""

REMARK = "only {} may ask this, and your certificate does not speak for it"


class CertificateGuard:
    """Refusals of one host are logged at most every half minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused = RepeatedFailures()

    def guard(self, router: Router, claims: Mapping[int, Claim]) -> None:
        """From now on refuse requests of these codes, with NO_PERMISSION (16), to senders that may not make their claim, or are
        no broker of the set that the request names."""
        for code, claim in claims.items():
            router.handlers[int(code)] = partial(self._served, router.handlers[int(code)], claim)

    def _served(
        self, serve: Handler, claim: Claim, peer: Peer, request: RemotingCommand
    ) -> Reply | Awaitable[Reply]:
        if (
            peer.certificate.was_asked
            and (why := self._why_not(claim(request), request.ext.get("brokerName"), peer)) is not None
        ):
            host = peer.remote_address.rpartition(":")[0]
            if self._refused.failed((host, request.code), self._clock.monotonic_ms()):
                logger.warning(
                    "request refused", extra=fields(code=request.code, peer=peer.remote_address, why=why)
                )
            return request.reply(ResponseCode.NO_PERMISSION, why)
        return serve(peer, request)

    def _why_not(self, claimed: str | None, broker_name: str | None, peer: Peer) -> str | None:
        if claimed is None:
            return None
        if broker_name and not peer.certificate.may_be(broker_role(broker_name)):
            return REMARK.format(f"a broker of {broker_name}")
        if claimed == SOME_SERVER:
            return None if peer.certificate.is_of_server else REMARK.format("a server")
        return None if peer.certificate.speaks_for(claimed) else REMARK.format(claimed)


def named(field: str) -> Claim:
    """The claim of a request that has the address of its sender in an ext field. Without the field it is of some server."""
    return lambda request: request.ext.get(field, SOME_SERVER)
