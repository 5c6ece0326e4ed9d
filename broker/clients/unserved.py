"""What clients ask for that is not built: an operator hears of it, for some clients take the answer (3) for silence, and wait.

Invariant: of one client host and one thing there is one warning; after `TOLD_MAX` of them no more."""

from __future__ import annotations

import logging

from mqruntime.log import fields
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer

logger = logging.getLogger("broker.unserved")

TOLD_MAX = 1_000
FEATURES = {
    RequestCode.SEND_REPLY_MESSAGE: "request and reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "request and reply",
    RequestCode.RECALL_MESSAGE: "timer messages",
    RequestCode.GET_TIMER_CHECK_POINT: "timer messages",
    RequestCode.GET_TIMER_METRICS: "timer messages",
    RequestCode.QUERY_ASSIGNMENT: "queues assigned by the broker",
    RequestCode.SET_MESSAGE_REQUEST_MODE: "queues assigned by the broker",
}
POP_CODES = range(200_050, 200_152)
GROUPS = "consumerGroup", "producerGroup", "group", "subscriptionGroup"


class Unserved:
    """Of one broker."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def asked(self, peer: Peer, command: RemotingCommand) -> None:
        """Nobody answers this request but with code 3."""
        what = feature_of(command.code)
        told = peer.remote_address.rpartition(":")[0], what
        if told in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(told)
        group = next((command.ext[key] for key in GROUPS if key in command.ext), None)
        about = fields(client=peer.remote_address, code=command.code, **({"group": group} if group else {}))
        logger.warning("a client asks for what is not built: %s", what, extra=about)


def feature_of(code: int) -> str:
    """In an operator's words, or as upstream names the request."""
    if code in POP_CODES:
        return "POP consumption"
    try:
        request = RequestCode(code)
    except ValueError:
        return f"request {code}"
    return FEATURES.get(request, request.name)
