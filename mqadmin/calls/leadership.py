"""Transfer a controller group's leadership to another of its members.

Invariant: a call returns only after the former leader has reported that it stepped down."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from mqadmin.admin import AdminClient, json_body
from mqadmin.errors import AdminError, RequestRefused, ServerUnreachable
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

REQUEST = RequestCode.DLEDGER_LEADERSHIP_TRANSFER
DONE = 200
ANY = -1
REFUSALS = {
    400: "this controller belongs to another group",
    401: "the group has no such member, or it leads; see getControllerMetaData",
    404: "it leads no more; ask again",
    418: "the other controller did not take over in time, and leads only if getControllerMetaData says so; is it running, "
    "and does its disk answer?",
    506: "it is handing over already",
}
"""DLedger's codes in the body of an answer, with their meanings."""


class Moved(NamedTuple):
    group: str
    former_id: str
    leader_id: str
    leader_address: str


async def transfer(client: AdminClient, controllers: str, transferee_id: str) -> Moved:
    """Ask the leader, which one of `controllers` names, to transfer leadership to `transferee_id`. If that is empty, the
    leader chooses a member. Raises `AdminError`. Nothing was changed then, unless the code is 418."""
    leader = await client.leader(controllers)
    before = await client.controller_metadata(leader)
    if before.group is None or before.leader_id is None:
        raise AdminError(f"{leader} leads no more; ask again")
    wish = {
        "code": DONE,
        "group": before.group,
        "leaderId": "",
        "localId": "",
        "remoteId": before.leader_id,
        "takeLeadershipLedgerIndex": ANY,
        "term": ANY,
        "transferId": before.leader_id,
        "transfereeId": transferee_id,
    }
    command = RemotingCommand.request(REQUEST, body=orjson.dumps(wish))
    try:
        reply = await client.remoting.call(leader, command, client.answer_ms_max)
    except RemotingError as error:
        raise ServerUnreachable(leader, REQUEST.name, error.why) from error
    code = json_body(leader, reply).get("code", reply.code)
    if code != DONE:
        raise RequestRefused(leader, REQUEST.name, code, reply.remark, REFUSALS.get(code, ""))
    after = await client.controller_metadata(leader)
    return Moved(before.group, before.leader_id, after.leader_id or "", after.leader_address or "")
