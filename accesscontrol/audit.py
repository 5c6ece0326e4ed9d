"""The audit log: one event for each administrative request and for each refusal.

Invariant: an event has no password, signature or body. Refusals of one host for one reason are written at most once in
`REMIND_MS`, with the number of those in between, so that a flood costs no disk."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict

from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import PeerCertificate
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer

logger = logging.getLogger("audit")  # settings.AUDIT

REMIND_MS = 30_000
KEPT_MAX = 1_024
"""Limit of the hosts and reasons that are counted. Beyond it the oldest are forgotten, and further ones are not written until
`REMIND_MS` later."""
TARGETS = (
    "topic", "b", "consumerGroup", "group", "groupName", "username", "subject", "brokerName", "brokerAddr", "brokerId",
    "namespace", "key",
)  # fmt: skip
"""Ext fields that name what a request is about."""
SHOWN_MAX = 128


class AuditLog:
    """`name` of the server kind is in each event."""

    def __init__(self, server: str, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._counted: OrderedDict[tuple[str, str, int], tuple[int, int]] = OrderedDict()
        """By host, reason and code: when it was written last (monotonic ms), and how often it happened since."""
        self.refusals: Counter[str] = Counter()
        """By kind."""

    def served(self, peer: Peer, request: RemotingCommand, user: str, outcome: int, remark: str) -> None:
        """An administrative request was answered with code `outcome`; -1 if it was not answered."""
        shown = {"outcome": outcome, "remark": remark[:SHOWN_MAX]} if remark else {"outcome": outcome}
        logger.info("administrative request", extra=fields(**self._about(peer, request, user), **shown))

    def refused(self, peer: Peer, request: RemotingCommand, user: str, kind: str, why: str) -> None:
        """A request was refused for the reason `why`, which is one of few kinds."""
        self.refusals[kind] += 1
        before = self._unwritten((_host_of(peer), kind, request.code))
        if before is None:
            return
        more = {"repeated": before} if before else {}
        logger.warning(
            "request refused", extra=fields(**self._about(peer, request, user), why=why[:SHOWN_MAX], **more)
        )

    def _unwritten(self, key: tuple[str, str, int]) -> int | None:
        """How many refusals of this kind were not written since the last one; None if this one is not written, either."""
        now_ms = self._clock.monotonic_ms()
        written = self._counted.get(key)
        if written is not None and now_ms - written[0] < REMIND_MS:
            self._counted[key] = written[0], written[1] + 1
            return None
        if written is None and len(self._counted) >= KEPT_MAX:
            oldest, (written_ms, _) = next(iter(self._counted.items()))
            if now_ms - written_ms < REMIND_MS:
                return None
            del self._counted[oldest]
        self._counted.pop(key, None)
        self._counted[key] = now_ms, 0
        return 0 if written is None else written[1]

    def _about(self, peer: Peer, request: RemotingCommand, user: str) -> dict[str, object]:
        about: dict[str, object] = {
            "server": self._server,
            "user": user[:SHOWN_MAX] or "-",
            "peer": peer.remote_address,
            "code": request.code,
            "request": _name_of(request.code),
        }
        if certificate := _shown(peer.certificate):
            about["certificate"] = certificate
        target = {key: request.ext[key][:SHOWN_MAX] for key in TARGETS if request.ext.get(key)}
        return about | (
            {"target": ";".join(f"{key}:{value}" for key, value in target.items())} if target else {}
        )


def _host_of(peer: Peer) -> str:
    return peer.remote_address.rpartition(":")[0]


def _name_of(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return "unknown"


def _shown(certificate: PeerCertificate) -> str:
    names = certificate.addresses or certificate.hosts
    return ";".join(sorted(names))[:SHOWN_MAX]
