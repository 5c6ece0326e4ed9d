"""Rejections of requests that need controllers, in Raft mode and in a pair.

Invariant: a rejected request changes nothing, and the remark names the alternative."""

from __future__ import annotations

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

ELECTS_ITSELF = (
    "in Raft mode a set elects its master itself and has no controllers; python -m dledger status, members and transfer ask "
    "its members, getBrokerEpoch and haStatus its brokers"
)
RESYNC = "in Raft mode stop a member that needs a resync, empty its store, and start it: its group gives it the log"
APPOINTED = (
    "a broker of a pair has the role that its configuration says (brokerRole, brokerId) and asks no controllers; for a master "
    "that is elected set enableControllerMode=true and controllerAddr"
)
REMARKS = {
    RequestCode.RESYNC_BROKER: RESYNC,
    **dict.fromkeys(
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            RequestCode.CONTROLLER_ELECT_MASTER,
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
            RequestCode.CONTROLLER_GET_METADATA_INFO,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            RequestCode.HAND_OVER,
        ),
        ELECTS_ITSELF,
    ),
}


def refuse_controllers_requests(router: Router) -> None:
    """Add the handlers that a Raft-mode broker needs."""
    for code in REMARKS:
        router.handlers[code] = _refused


def refuse_role_changes(router: Router) -> None:
    """Add the handlers that a broker of a pair needs, because its role cannot be changed."""
    for code in (RequestCode.NOTIFY_BROKER_ROLE_CHANGED, RequestCode.HAND_OVER):
        router.handlers[code] = _appointed


def _refused(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, REMARKS[RequestCode(command.code)])


def _appointed(peer: Peer, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, APPOINTED)
