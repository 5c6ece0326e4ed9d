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
HOSTS_MAX = 1_024
"""Limit of the hosts whose refusals are counted. Beyond it the oldest are forgotten, and further ones are not written until
`REMIND_MS` later."""
TARGETS = (
    "topic", "b", "consumerGroup", "group", "groupName", "username", "subject", "brokerName", "brokerAddr", "brokerId",
    "namespace", "key",
)  # fmt: skip
"""Ext fields that name what a request is about."""
SHOWN_MAX = 128
KNOWN_CODES = frozenset(map(int, RequestCode))
OF_ONE_HOST_MAX = 64
"""Limit of the kinds of refusals of one host that are written in `REMIND_MS`."""
OTHERS = "others", -1


class AuditLog:
    """`name` of the server kind is in each event."""

    def __init__(self, server: str, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._kinds_of: OrderedDict[str, dict[tuple[str, int], tuple[int, int]]] = OrderedDict()
        """By host, the one last written of at the end; then by reason and code: when that was written last (monotonic ms), and
        how often it happened since."""
        self.refusals: Counter[str] = Counter()
        """By kind."""

    def served(self, peer: Peer, request: RemotingCommand, user: str, outcome: int, remark: str) -> None:
        """An administrative request was answered with code `outcome`; -1 if it was not answered."""
        shown = {"outcome": outcome, "remark": remark[:SHOWN_MAX]} if remark else {"outcome": outcome}
        logger.info("administrative request", extra=fields(**self._about(peer, request, user), **shown))

    def refused(self, peer: Peer, request: RemotingCommand, user: str, kind: str, why: str) -> None:
        """A request was refused for the reason `why`, which is one of few kinds."""
        self.refusals[kind] += 1
        before = self._unwritten(_host_of(peer), (f"{kind} {user[:SHOWN_MAX]}", _known(request.code)))
        if before is None:
            return
        more = {"repeated": before} if before else {}
        logger.warning(
            "request refused", extra=fields(**self._about(peer, request, user), why=why[:SHOWN_MAX], **more)
        )

    def _unwritten(self, host: str, kind: tuple[str, int]) -> int | None:
        """How many refusals of this kind were not written since the last one; None if this one is not written, either."""
        now_ms = self._clock.monotonic_ms()
        kinds = self._kinds(host, now_ms)
        if kinds is None:
            return None
        if kind not in kinds and len(kinds) >= OF_ONE_HOST_MAX:
            for outdated in [
                each for each, (written_ms, _) in kinds.items() if now_ms - written_ms >= REMIND_MS
            ]:
                del kinds[outdated]
            if len(kinds) >= OF_ONE_HOST_MAX:
                kind = OTHERS
        written = kinds.get(kind)
        if written is not None and now_ms - written[0] < REMIND_MS:
            kinds[kind] = written[0], written[1] + 1
            return None
        self._kinds_of.move_to_end(host)
        kinds[kind] = now_ms, 0
        return 0 if written is None else written[1]

    def _kinds(self, host: str, now_ms: int) -> dict[tuple[str, int], tuple[int, int]] | None:
        """What was refused to the host; None if too many other hosts are refused requests."""
        if host not in self._kinds_of:
            if len(self._kinds_of) >= HOSTS_MAX:
                oldest, kinds = next(iter(self._kinds_of.items()))
                if now_ms - max(written_ms for written_ms, _ in kinds.values()) < REMIND_MS:
                    return None
                del self._kinds_of[oldest]
            self._kinds_of[host] = {}
        return self._kinds_of[host]

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
        shown = ";".join(f"{key}:{_plain(value)}" for key, value in target.items())
        return about | ({"target": shown} if shown else {})


def _known(code: int) -> int:
    """The code; -1 for all that are unknown."""
    return code if code in KNOWN_CODES else -1


def _host_of(peer: Peer) -> str:
    return peer.remote_address.rpartition(":")[0]


def _plain(value: str) -> str:
    """Without the marks between targets."""
    return value.replace(";", "%3B").replace(":", "%3A")


def _name_of(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return "unknown"


def _shown(certificate: PeerCertificate) -> str:
    names = certificate.addresses or certificate.hosts
    return ";".join(sorted(names))[:SHOWN_MAX]
