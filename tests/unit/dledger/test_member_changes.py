"""Members that are added and removed while a group runs: over the wire, on stores in memory, across
restarts."""

from __future__ import annotations

import pytest

from dledger.client import DLedgerClient, Refused
from dledger.raft.errors import MembersChanged
from dledger.raft.membership import Change, Members, Step, encode_members
from tests.unit.dledger.ledgergroup import played, until
from tests.unit.dledger.servedgroup import ChangingGroup, Clients, SavingGroup, written


def test_after_a_member_was_replaced_another_one_may_fail() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            await written(group, clients, b"+1")
            address = await group.newcomer("n3")
            reply = await clients.client.add("n3", address, 20_000)
            assert sorted(reply["voters"]) == ["n0", "n1", "n2"]
            assert sorted(reply["after"]["voters"]) == ["n0", "n1", "n2", "n3"]
            former = (await group.leader()).metadata.self_id
            await clients.client.remove(former)  # it hands over first
            await group.gone(former)
            shown = await clients.client.members()
            assert former not in shown["voters"] and len(shown["voters"]) == 3 and shown["committed"]
            last = await written(group, clients, b"+2")
            other = next(name for name in group.members if name not in ("n3", shown["leaderId"]))
            await group.stop(other)
            again = await written(group, clients, b"+3")
            assert again > last
            await until(lambda: group.members["n3"].metadata.applied_index >= again)

    played(story)


def test_a_client_with_an_old_list_sees_a_new_member_and_transfers_to_it() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            address = await group.newcomer("n3")
            await clients.client.add("n3", address, 20_000)
            await until(lambda: (known := group.members["n3"].metadata).committed_index == known.last_index)
            former = (await group.leader()).self_id
            old = DLedgerClient(
                {name: group.peers[name] for name in ("n0", "n1", "n2")}, "g", clients.remoting
            )
            assert await old.transfer("n3") == former
            await group.leader()
            fresh = DLedgerClient({name: group.peers[name] for name in ("n0", "n1")}, "g", clients.remoting)
            reply = await fresh.status()
            assert [name for name, each in reply.items() if isinstance(each, dict) and each["active"]] == [
                "n3"
            ]
            assert list(reply) == ["n0", "n1", "n2", "n3"] and fresh.peers["n3"] == address

    played(story)


def test_member_lists_in_the_log_override_the_configured_one() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            old = group.peers
            address = await group.newcomer("n3")
            await clients.client.add("n3", address, 20_000)
            await until(lambda: all(len(member.metadata.peers) == 4 for member in group.members.values()))
            end = await written(group, clients, b"x")
            await until(
                lambda: all(member.metadata.committed_index >= end for member in group.members.values())
            )
            group.peers = old  # as before the change
            for name in ("n0", "n1"):
                await group.stop(name)
                await group.start(name)
            group.peers = old | {"n3": address}
            await group.stop("n2")
            await group.start("n2")
            assert all(len(member.metadata.peers) == 4 for member in group.members.values())
            await written(group, clients, b"y")

    played(story)


def test_a_start_with_another_member_list_is_rejected_without_a_committed_entry() -> None:
    async def story() -> None:
        async with ChangingGroup() as group:
            await group.leader()
            await group.stop("n2")
            group.peers = group.peers | {"n3": "127.0.0.1:1"}
            with pytest.raises(MembersChanged):
                await group.start("n2")

    played(story)


def test_a_snapshot_and_a_checkpoint_know_the_members() -> None:
    async def story() -> None:
        async with SavingGroup() as group:
            async with Clients(group) as clients:
                first = await group.newcomer("n3")
                await clients.client.add("n3", first, 20_000)
                for _ in range(200):
                    await written(group, clients, b"1")
                leader = await group.leader()
                await until(lambda: leader.metadata.first_index > 20)
                second = await group.newcomer("n4")
                await clients.client.add("n4", second, 20_000)
                assert group.members["n4"].metadata.first_index > 0
                for name in list(group.members):
                    await group.stop(name)
                    await group.start(name)
                assert all(len(member.metadata.peers) == 5 for member in group.members.values())

    played(story)


def test_an_impossible_member_change_is_rejected_and_appends_nothing() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            leader = await group.leader()
            last = await written(group, clients, b"x")
            for change, dry_run, why in (
                (Change(Step.REMOVE, "n9"), False, "UNKNOWN_ID"),
                (Change(Step.PROMOTE, "n1"), False, "VOTES_ALREADY"),
                (Change(Step.ADD, "n1", "h:1"), True, "ID_TAKEN"),
                (Change(Step.REMOVE, leader.metadata.self_id), True, "LEADS"),
            ):
                with pytest.raises(Refused) as refused:
                    await clients.client.change(change, dry_run=dry_run)
                assert (refused.value.code, refused.value.why) == (520, why)
            reply = await clients.client.change(Change(Step.ADD, "n9", "127.0.0.1:1"), dry_run=True)
            assert reply["after"]["learners"] == {"n9": "127.0.0.1:1"} and reply["learners"] == {}
            with pytest.raises(ValueError, match="list of the group's members"):
                await leader.append(encode_members(Members(group.peers)))
            assert (await group.leader()).metadata.last_index == last

    played(story)


def test_a_learner_that_does_not_answer_gets_no_vote() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            with pytest.raises(Refused, match="stays a learner"):
                await clients.client.add("n9", "127.0.0.1:1", 200)
            assert (await clients.client.members())["learners"] == {"n9": "127.0.0.1:1"}
            await written(group, clients, b"x")
            await clients.client.remove("n9")
            assert (await clients.client.members())["learners"] == {}

    played(story)


def test_member_changes_have_these_json_fields() -> None:
    async def story() -> None:
        async with ChangingGroup() as group, Clients(group) as clients:
            leader = await group.leader()
            name = leader.metadata.self_id
            base = f'"group":"g","remoteId":"{name}"'
            others = {each: 0 for each in sorted(group.peers) if each != name}
            reply = await clients.raw(leader, 51022, f'{{"step":"show",{base}}}')
            while reply["missing"] != others:
                reply = await clients.raw(leader, 51022, f'{{"step":"show",{base}}}')
            assert reply == {
                "code": 200, "group": "g", "remoteId": name, "leaderId": name, "term": -1, "index": -1,
                "committed": True, "voters": group.peers, "learners": {}, "missing": others,
            }  # fmt: skip
            asked = f'{{"step":"remove","member":"{name}","address":"","dryRun":true,{base}}}'
            reply = await clients.raw(leader, 51022, asked)
            assert (reply["code"], reply["why"]) == (520, "LEADS")
            follower = group.members[next(iter(others))]
            asked = asked.replace(f'"remoteId":"{name}"', f'"remoteId":"{next(iter(others))}"')
            reply = await clients.raw(follower, 51022, asked)
            assert (reply["code"], reply["leaderAddress"]) == (404, group.peers[name])
            for text, code in (
                (f'{{"step":"burn","member":"n0","address":"","dryRun":true,{base}}}', 411),
                ('{"step":"show","group":"g","remoteId":"n9"}', 401),
                (f'{{"step":"show","group":"h","remoteId":"{name}"}}', 400),
            ):
                assert (await clients.raw(leader, 51022, text))["code"] == code

    played(story)
