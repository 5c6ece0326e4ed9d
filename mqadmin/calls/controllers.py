"""Changes a controller group's members through its leader: DLEDGER_CHANGE_MEMBERS (51022).

Invariant: a call returns only after the leader has reported the change as committed. An added member votes, or the error says
that it is still a learner."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import orjson

from mqadmin.admin import AdminClient, json_body
from mqadmin.calls import leadership
from mqadmin.errors import AdminError, RequestRefused, ServerUnreachable
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

REQUEST = RequestCode.DLEDGER_CHANGE_MEMBERS
DONE, UNKNOWN = 200, 502
LEVEL_MS, TRY_LEVEL_MS = 60_000, 200
PASSES = {"NOT_LEVEL", "UNDER_WAY", "NOT_BEGUN", "HANDING_OVER"}
"""Reasons of rejections after which the same request may succeed a moment later."""
REFUSALS = {
    404: "it leads no more; ask again",
    411: "it cannot read that; an address is HOST:PORT",
    UNKNOWN: "the change may be committed later; see getControllerMetaData before you ask again",
}


class Group(NamedTuple):
    """Ids -> "host:port"."""

    voters: dict[str, str]
    learners: dict[str, str]


class Changed(NamedTuple):
    before: Group
    after: Group


class MemberChangeRefused(RequestRefused):
    """`reason` is one of dledger.raft.errors.Why."""

    def __init__(self, leader: str, answer: dict[str, Any]) -> None:
        code = answer["code"]
        super().__init__(leader, REQUEST.name, code, answer.get("remark"), REFUSALS.get(code, ""))
        self.reason = answer.get("why", "")


async def add(client: AdminClient, controllers: str, member: str, address: str, *, dry_run: bool) -> Changed:
    """Add a member, first as a learner, and as a voter once it has caught up. Raises `AdminError`. Nothing was changed, unless
    the error says so."""
    asked = await ask(client, controllers, "show")
    if asked["learners"].get(member) == address and not dry_run:
        first = changed(asked, asked)
    else:
        first = await change(client, controllers, "add", member, address, dry_run=dry_run)
    if dry_run:
        return first
    for _ in range(LEVEL_MS // TRY_LEVEL_MS):
        try:
            return first._replace(after=(await change(client, controllers, "promote", member)).after)
        except MemberChangeRefused as refusal:
            if refusal.reason not in PASSES:
                raise
            last = refusal
        await asyncio.sleep(TRY_LEVEL_MS / 1000)
    raise AdminError(
        f"{member} is still a learner, not a voter: {last}; repeat the command once it runs and has caught up"
    )


async def remove(client: AdminClient, controllers: str, member: str, *, dry_run: bool) -> Changed:
    """Remove a member. If it leads, it transfers the leadership first. Raises `AdminError`."""
    while True:
        try:
            return await change(client, controllers, "remove", member, dry_run=dry_run)
        except MemberChangeRefused as refusal:
            if refusal.reason != "LEADS" or dry_run:
                raise
        await leadership.transfer(client, controllers, "")


async def change(
    client: AdminClient, controllers: str, step: str, member: str, address: str = "", *, dry_run: bool = False
) -> Changed:
    before = await ask(client, controllers, step, member=member, address=address, dryRun=dry_run)
    return changed(before, before["after"])


def changed(before: dict[str, Any], after: dict[str, Any]) -> Changed:
    return Changed(*(Group(each["voters"], each["learners"]) for each in (before, after)))


async def ask(client: AdminClient, controllers: str, step: str, **wish: object) -> dict[str, Any]:
    """Send the request to the leader and return the answer. Raises `AdminError`."""
    leader = await client.leader(controllers)
    known = await client.controller_metadata(leader)
    fields = {"group": known.group, "remoteId": known.leader_id, "step": step, **wish}
    command = RemotingCommand.request(REQUEST, body=orjson.dumps(fields))
    try:
        reply = await client.remoting.call(leader, command, client.answer_ms_max)
    except RemotingError as error:
        raise ServerUnreachable(leader, REQUEST.name, error.why) from error
    if reply.body is None:
        raise RequestRefused(leader, REQUEST.name, reply.code, reply.remark, "it runs a version without this")
    answer: dict[str, Any] = json_body(leader, reply)
    if answer.get("code") != DONE:
        raise MemberChangeRefused(leader, answer)
    return answer
