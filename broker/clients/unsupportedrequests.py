"""Unsupported requests of clients. The client gets the reason, and the reason is logged. Such requests are not implemented or
belong to another server; pulls that are rejected permanently are handled in the same way. Java's consumers log the answer and
repeat the request for ever, and their applications are not notified.

Invariant: there is one warning for each client host, group and feature. After `LOGGED_MAX` warnings there are no more. Of texts
that clients choose only the beginning is kept and logged."""

from __future__ import annotations

import logging

from broker.clients.refusals import LITE_TOPICS, ClientRefused
from mqruntime.log import fields
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.servers import Server, directions, who_else

logger = logging.getLogger("broker.unsupportedrequests")

LOGGED_MAX = 1_000
SHOWN_MAX = 255
"""Characters of a text that a client chose. A header may have 1 MiB."""
UNKNOWN = "request {}"
FEATURES = {
    RequestCode.RECALL_MESSAGE: "timer messages",
    RequestCode.GET_TIMER_CHECK_POINT: "timer messages",
    RequestCode.GET_TIMER_METRICS: "timer messages",
    RequestCode.SET_MESSAGE_REQUEST_MODE: "POP consumption",
}
LITE_CODES = range(200_070, 200_080)
POP_CODES = range(200_050, 200_152)
ADMINISTRATION = {
    308: "correction of offsets by a filter server",
    316: "cleaning of unused topics: retention deletes their messages",
    323: "taking up half messages that were given up",
    353: "groups that are forbidden to read a topic",
    354: "RocksDB stores",
    355: "RocksDB stores",
    513: "static topics",
    5001: "a choice between timer engines",
    905: "masters that are lent (acting masters)",
    908: "flush offsets set by hand: slaves report theirs",
    **dict.fromkeys(range(2001, 2005), "control of cold reads"),
}
"""Requests of administrators."""
GROUPS = "consumerGroup", "producerGroup", "group", "subscriptionGroup"
BODIES_WITH_GROUPS = RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE
SMALL_BODY = 4_096
LASTING = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)
"""The codes that the next pull will get too. Other codes are temporary, for example while there is no role or no heartbeat."""


class UnsupportedRequests:
    """Logs the unsupported requests of one broker."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str, str]] = set()

    def asked(self, peer: Peer, command: RemotingCommand) -> str:
        """Log a request that is answered with REQUEST_CODE_NOT_SUPPORTED (3). Returns the end of the answer's remark."""
        if others := who_else(command.code, Server.BROKER):
            self._log_once("request for %s sent to a broker", others, peer, command)
            return directions(command.code, Server.BROKER)
        what = feature_of(command.code)
        self._log_once("unsupported request: %s", what, peer, command)
        return "" if what == UNKNOWN.format(command.code) else f"; not built here: {what}"

    def refused(self, peer: Peer, command: RemotingCommand, refusal: ClientRefused) -> None:
        """Log this pull if it is rejected permanently."""
        if refusal.code in LASTING:
            self._log_once("pull rejected permanently: %s", refusal.remark, peer, command)

    def _log_once(self, event: str, what: str, peer: Peer, command: RemotingCommand) -> None:
        group, what = group_of(command)[:SHOWN_MAX], what[:SHOWN_MAX]
        key = peer.remote_address.rpartition(":")[0], group, what
        if key in self._logged or len(self._logged) >= LOGGED_MAX:
            return
        self._logged.add(key)
        about = fields(client=peer.remote_address, code=command.code, **({"group": group} if group else {}))
        logger.warning(event, what, extra=about)


def feature_of(code: int) -> str:
    """The feature's name for operators, or upstream's name of the request."""
    if code in LITE_CODES:
        return LITE_TOPICS
    if code in POP_CODES:
        return "POP consumption"
    if code in ADMINISTRATION:
        return ADMINISTRATION[code]
    try:
        request = RequestCode(code)
    except ValueError:
        return UNKNOWN.format(code)
    return FEATURES.get(request, request.name)


def group_of(command: RemotingCommand) -> str:
    """The group of the request; "" if the request has no group."""
    named = next((command.ext[key] for key in GROUPS if key in command.ext), "")
    content = command.body or b""
    if named or command.code not in BODIES_WITH_GROUPS or not 0 < len(content) <= SMALL_BODY:
        return named
    try:
        body = fastjson.loads(content, dialect_max=fastjson.REQUEST_DIALECT_MAX)
    except fastjson.FastJsonError:
        return ""
    group = body.get("consumerGroup") if isinstance(body, dict) else None
    return group if isinstance(group, str) else ""
