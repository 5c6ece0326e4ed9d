"""A node that was never a member, and sends a made-up list of members with a high index."""

from __future__ import annotations

import asyncio

import pytest

from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.entries import Entry
from dledger.raft.messages import CODE_OF, HeartBeatRequest, PushRequest, PushType
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from tests.unit.dledger.ledgergroup import LedgerGroup, Sum, played

INDEX = 10**9
REFUSED = "a member that lags cannot tell a made-up newer list from that of a new leader; docs/security.md says what helps"


@pytest.mark.xfail(reason=REFUSED, strict=True)
def test_a_stranger_with_a_made_up_list_changes_nothing() -> None:
    sums: dict[str, Sum] = {}

    def machine(name: str) -> Sum:
        return sums.setdefault(name, Sum())

    async def story() -> None:
        async with LedgerGroup(3, machine) as group:
            leader = await group.leader()
            await leader.append(b"5")
            at, term = leader.metadata.last_index, leader.metadata.term
            peers = sorted({**group.peers, "stranger": "127.0.0.1:1"}.items())
            made_up = ";".join(f"{member}-{address}" for member, address in peers)
            client = RemotingClient(clock=SystemClock())
            for member, address in group.peers.items():
                envelope = Envelope("g", "stranger", member, made_up, members_index=INDEX)
                forged = (Entry(at + 1, term + 1, b"1000000"),)
                push = PushRequest(term + 1, PushType.APPEND, at, term, at + 1, forged)
                for request in (HeartBeatRequest(term + 1), push):
                    body = encode_request(envelope, request)
                    await client.call(
                        address, RemotingCommand.request(CODE_OF[type(request)], body=body), 2_000
                    )
            await client.close()
            await asyncio.sleep(0.2)
            assert all(each.value <= 5 for each in sums.values())

    played(story)
