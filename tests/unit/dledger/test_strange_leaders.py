"""Nodes that are no members and send made-up lists of members, and members that a member which was away must believe."""

from __future__ import annotations

import asyncio

from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.entries import Entry
from dledger.raft.membership import peer_list
from dledger.raft.messages import (
    CODE_OF,
    HeartBeatRequest,
    InstallRequest,
    PushRequest,
    PushType,
    RecoveryRequest,
    Request,
    TransferRequest,
    VoteRequest,
)
from remoting.command import RemotingCommand
from tests.unit.dledger.ledgergroup import LedgerGroup, Sum, played, until
from tests.unit.dledger.servedgroup import ChangingGroup, Clients, written

INDEX = 10**9
MADE_UP_BODY = b"1000000"


def forged(term: int, at: int, at_term: int, receiver: str) -> list[Request]:
    """One request of each kind in `term`, as of a leader or candidate with entry `at` + 1."""
    entry = (Entry(at + 1, term, MADE_UP_BODY),)
    return [
        HeartBeatRequest(term),
        PushRequest(term, PushType.APPEND, at, at_term, at + 1, entry),
        PushRequest(term, PushType.COMPARE, at, at_term, at),
        VoteRequest(term, at + 1, term - 1),
        VoteRequest(term, at + 1, term - 1, transfer=True),
        VoteRequest(term, at + 1, term - 1, pre_vote=True),
        TransferRequest(term, "stranger", receiver, at),
        InstallRequest(term, at + 1, term, 1, 0xE8B7BE43, 0, b"a"),
        RecoveryRequest(term, 7),
    ]


async def attack(group: LedgerGroup, clients: Clients, sender: str, made_up: str, index: int) -> None:
    """`sender` sends each kind of request to each member with this list, and again when the members have asked each other."""
    leader = await group.leader()
    at, term = leader.metadata.last_index, leader.metadata.term
    for _ in range(2):
        for member in group.members:
            envelope = Envelope("g", sender, member, made_up, members_index=index)
            for request in forged(term + 1, at, term, member):
                command = RemotingCommand.request(
                    CODE_OF[type(request)], body=encode_request(envelope, request)
                )
                reply = await clients.remoting.call(group.peers[member], command, 2_000)
                assert reply.body is not None and b"ACCEPT" not in bytes(reply.body)
        await asyncio.sleep(0.1)
    for member in group.members.values():
        seen = member.metadata
        assert (seen.term, seen.leader_id, seen.last_index) == (term, leader.metadata.self_id, at)


def test_a_stranger_with_a_made_up_list_changes_nothing() -> None:
    sums: dict[str, Sum] = {}

    def machine(name: str) -> Sum:
        return sums.setdefault(name, Sum())

    async def story() -> None:
        async with LedgerGroup(3, machine) as group, Clients(group) as clients:
            leader = await group.leader()
            await leader.append(b"5")
            await until(lambda: all(each.value == 5 for each in sums.values()))
            made_up = peer_list(group.peers | {"stranger": "127.0.0.1:1"})
            for index in (1, INDEX):
                await attack(group, clients, "stranger", made_up, index)
            assert {each.value for each in sums.values()} == {5}

    played(story)


def test_a_removed_member_with_a_made_up_list_changes_nothing() -> None:
    async def story() -> None:
        async with ChangingGroup(4) as group, Clients(group) as clients:
            await written(group, clients, b"x")
            leader = (await group.leader()).self_id
            removed = next(name for name in group.peers if name != leader)
            former = group.peers
            await clients.client.remove(removed)
            await group.gone(removed)
            end = await written(group, clients, b"y")
            await until(lambda: all(each.metadata.last_index >= end for each in group.members.values()))
            shown = await clients.client.members()
            for ahead in (1, INDEX):
                await attack(group, clients, removed, peer_list(former), int(shown["index"]) + ahead)

    played(story)


def test_a_member_that_was_away_follows_a_leader_that_it_never_knew() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            old = group.peers
            address = await group.newcomer("n3")
            await clients.client.add("n3", address, 20_000)
            await clients.client.remove("n3")  # with its disk it may vote again although a member is away
            end = await written(group, clients, b"x")
            await until(lambda: all(group.members[name].metadata.last_index >= end for name in old))
            first = await group.leader()
            away = next(name for name in old if name != first.self_id)
            await group.stop(away)
            await clients.client.add("n3", address, 20_000)
            await first.transfer("n3")
            await until(lambda: group.members["n3"].metadata.is_active)
            former = next(name for name in old if name != away)
            await clients.client.remove(former)
            await group.gone(former)  # one member is left of those that it knows
            end = await written(group, clients, b"y")
            present, group.peers = group.peers, old
            back = await group.start(away)
            group.peers = present
            await until(lambda: back.metadata.applied_index >= end)
            assert back.metadata.leader_id == "n3" and sorted(back.metadata.peers) == sorted(present)

    played(story)


def test_a_member_with_an_empty_disk_and_an_old_list_finds_the_present_leader() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            first = await group.leader()
            emptied = next(name for name in group.peers if name != first.self_id)
            old = group.peers
            await clients.client.add("n3", await group.newcomer("n3"), 20_000)
            await first.transfer("n3")
            await until(lambda: group.members["n3"].metadata.is_active)
            await group.stop(emptied)
            end = await written(group, clients, b"y")
            present, group.peers = group.peers, old
            group.files[emptied] = type(group.files[emptied])()
            back = await group.start(emptied)
            group.peers = present
            await until(lambda: back.metadata.applied_index >= end)

    played(story)
