"""What clients ask for that is not built: they are told what it is, and an operator hears of it, for some clients take the
answer (3) for silence, and wait.

Invariant: of one client host and one thing there is one warning; after `TOLD_MAX` of them no more."""

from __future__ import annotations

import logging

from mqruntime.log import fields
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer

logger = logging.getLogger("broker.unserved")

TOLD_MAX = 1_000
UNKNOWN = "request {}"
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
ADMINISTRATION = {
    308: "correction of offsets by a filter server",
    316: "cleaning of unused topics: what they hold goes with retention",
    323: "taking up half messages that were given up",
    353: "groups that are forbidden to read a topic",
    354: "RocksDB stores",
    355: "RocksDB stores",
    513: "static topics",
    905: "masters that are lent (acting masters)",
    908: "flush offsets told by hand: slaves report theirs",
    **dict.fromkeys(range(2001, 2005), "control of cold reads"),
    **dict.fromkeys(range(3001, 3011), "access control"),
}
"""What administrators ask for."""
GROUPS = "consumerGroup", "producerGroup", "group", "subscriptionGroup"


class Unserved:
    """Of one broker."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def asked(self, peer: Peer, command: RemotingCommand) -> str:
        """Nobody answers this request but with code 3; what its remark says of it."""
        what = feature_of(command.code)
        words = "" if what == UNKNOWN.format(command.code) else f"; not built here: {what}"
        told = peer.remote_address.rpartition(":")[0], what
        if told in self._told or len(self._told) >= TOLD_MAX:
            return words
        self._told.add(told)
        group = next((command.ext[key] for key in GROUPS if key in command.ext), None)
        about = fields(client=peer.remote_address, code=command.code, **({"group": group} if group else {}))
        logger.warning("a client asks for what is not built: %s", what, extra=about)
        return words


def feature_of(code: int) -> str:
    """In an operator's words, or as upstream names the request."""
    if code in POP_CODES:
        return "POP consumption"
    if code in ADMINISTRATION:
        return ADMINISTRATION[code]
    try:
        request = RequestCode(code)
    except ValueError:
        return UNKNOWN.format(code)
    return FEATURES.get(request, request.name)
