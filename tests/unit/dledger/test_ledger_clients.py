"""Responses to clients, byte by byte where upstream's client reads them, and our client."""

from __future__ import annotations

import pytest

from dledger import NotLeader, OutcomeUnknown
from dledger.client import Refused
from remoting.errors import FrameTooLong
from tests.unit.dledger.ledgergroup import Sum, played, until
from tests.unit.dledger.servedgroup import Clients, ServedGroup


def test_a_request_as_upstreams_client_writes_it_is_served() -> None:
    async def story() -> None:
        async with ServedGroup() as group, Clients(group) as clients:
            leader = await group.leader()
            name, term = leader.metadata.self_id, leader.metadata.term
            ours = {"group": "g", "remoteId": name, "leaderId": name}
            base = f'"code":200,"group":"g","remoteId":"{name}","term":-1'
            answer = await clients.raw(leader, 50001, f'{{"body":"aGkhPw==",{base}}}')
            index = answer["index"]
            assert answer == ours | {"code": 200, "term": term, "index": index, "pos": 48}
            answer = await clients.raw(leader, 50002, f'{{"beginIndex":{index},{base},"maxSize":0}}')
            assert answer["entries"] == [
                {
                    "body": "aGkhPw==",
                    "bodyCrc": 0,
                    "chainCrc": 0,
                    "channel": 0,
                    "index": index,
                    "magic": 1,
                    "pos": -1,
                    "size": 52,
                    "term": term,
                }
            ]
            answer = await clients.raw(leader, 50000, f"{{{base}}}")
            assert (answer["code"], answer["leaderId"], answer["peers"]) == (200, name, group.peers)
            target = next(other for other in group.peers if other != name)
            wish = f'"takeLeadershipLedgerIndex":0,"transferId":"{name}","transfereeId":"{target}"'
            answer = await clients.raw(leader, 51005, f"{{{base},{wish}}}")
            assert answer["code"] == 200 and (await group.leader()).metadata.self_id == target

    played(story)


@pytest.mark.parametrize(
    ("code", "text", "result"),
    [
        (50001, '{"group":"g","remoteId":"n0"}', 411),
        (50001, '{"group":"g","remoteId":"n0","body":""}', 411),
        (50001, '{"group":"g","remoteId":"n0","body":"?"}', 411),
        (50001, '{"group":"g","remoteId":"n0","batchMsgs":7}', 411),
        (50001, '{"group":"g","remoteId":"n9","body":"eA=="}', 401),
        (50001, '{"group":"h","remoteId":"n0","body":"eA=="}', 400),
        (50002, '{"group":"g","remoteId":"n0","beginIndex":99}', 410),
        (50002, '{"group":"g","remoteId":"n0","beginIndex":-1}', 411),
        (50000, "[]", 411),
        (50000, "", 411),
    ],
)
def test_a_request_that_cannot_be_served_gets_its_error_code(code: int, text: str, result: int) -> None:
    async def story() -> None:
        async with ServedGroup(1) as group, Clients(group) as clients:
            assert (await clients.raw(await group.leader(), code, text))["code"] == result

    played(story)


def test_a_client_finds_the_leader_and_follows_it() -> None:
    async def story() -> None:
        async with ServedGroup(machine=lambda name: Sum()) as group, Clients(group) as clients:
            client = clients.client
            first = await group.leader()
            answer = await client.append([b"1", b"one", b"2"])
            assert {number: str(why) for number, why in answer.refusals.items()} == {1: "b'one' is no number"}
            assert (await client.get(answer.first_index + 2)).body == b"2"
            target = next(name for name in group.peers if name != first.metadata.self_id)
            assert await client.transfer(target) == first.metadata.self_id
            assert (await client.append([b"3"])).first_index > answer.first_index + 2
            assert (await group.leader()).metadata.self_id == target
            term = first.term
            assert await client.transfer(target) == target and first.term == term
            with pytest.raises(Refused, match="n7 is not among n0, n1, n2, or does not vote"):
                await client.transfer("n7")
            with pytest.raises(Refused, match="no entry with this index is committed yet"):
                await client.get(1000)
            other = await clients.raw(
                first, 50001, f'{{"group":"g","remoteId":"{first.metadata.self_id}","body":"MQ=="}}'
            )
            assert (other["code"], other["leaderId"]) == (404, target)
            status = await client.status()
            assert [each["role"] for each in status.values() if isinstance(each, dict)].count("LEADER") == 1

    played(story)


def test_an_append_reports_an_unknown_outcome_or_a_missing_leader() -> None:
    async def story() -> None:
        async with ServedGroup() as group, Clients(group, timeout_ms=200) as clients:
            leader = await group.leader()
            await clients.client.append([b"1"])
            for name in set(group.peers) - {leader.metadata.self_id}:
                await group.stop(name)
            with pytest.raises(OutcomeUnknown):
                await clients.client.append([b"2"])
            await until(lambda: not leader.metadata.is_active)
            with pytest.raises(NotLeader):
                await clients.client.append([b"3"])

    played(story)


def test_an_append_that_is_too_large_is_rejected_by_its_size() -> None:
    async def story() -> None:
        async with ServedGroup(1) as group, Clients(group) as clients:
            with pytest.raises(FrameTooLong, match="was not sent"):
                await clients.client.append([b"x" * (1 << 20)] * 16)
            with pytest.raises(Refused, match="1 to 1024 bytes, not 1025"):
                await clients.client.append([b"x" * 1025])
            with pytest.raises(Refused, match="1 to 10000 bodies, not 10001"):
                await clients.client.append([b"x"] * 10_001)
            assert (await group.leader()).metadata.last_index == 0

    played(story)
