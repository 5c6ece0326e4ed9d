"""Offsets of queues, commits of groups, and resets by administrators."""

from __future__ import annotations

import pytest

from messagestore.store.brokerstore import BrokerStore
from mqclient.client import Client
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.queues import MessageQueue, ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import (
    GetMaxOffsetHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from simulation.kernel.node import EPOCH_MS
from tests.cluster.served import Served
from tests.support.pullbench import pull


def test_a_queue_reports_its_bounds_and_earliest_store_time(served: Served) -> None:
    assert served.ext(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 1)) == {"offset": "3"}
    assert served.ext(RequestCode.GET_MIN_OFFSET, QueueHeader("orders", 1)) == {"offset": "0"}
    assert served.ext(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3)) == {"offset": "0"}
    earliest = int(served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 1))["timestamp"])
    assert earliest > EPOCH_MS
    none = served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 3))
    assert none == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("since", "boundary", "offset"), [(-1, None, "0"), (100_000, None, "3"), (0, "UPPER", "0")]
)
def test_an_offset_is_found_by_store_time(
    served: Served, since: int, boundary: str | None, offset: str
) -> None:
    earliest = int(served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 1))["timestamp"])
    header = SearchOffsetHeader("orders", 1, earliest + since, boundary)
    assert served.ext(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == {"offset": offset}


def test_a_group_finds_the_offset_that_it_committed(served: Served) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    header = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, header) == {"offset": "2"}


def test_a_group_without_a_commit_starts_at_zero_unless_the_header_forbids_it(served: Served) -> None:
    new = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, new) == {"offset": "0"}
    strict = QueryConsumerOffsetHeader("CG", "orders", 1, set_zero_if_not_found=False)
    assert served.ask(RequestCode.QUERY_CONSUMER_OFFSET, strict).code == ResponseCode.QUERY_NOT_FOUND


def test_a_commit_for_an_unknown_topic_is_refused(served: Served) -> None:
    header = UpdateConsumerOffsetHeader("CG", "unknown", 1, 2)
    assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.TOPIC_NOT_EXIST


async def pulled(client: Client, address: str, offset: int) -> RemotingCommand:
    request = pull(queueId=1, queueOffset=offset, sysFlag=5, commitOffset=offset)
    return await client.remoting.call(address, request)


def test_a_reset_group_gets_the_new_offset_with_its_next_pull_and_earlier_commits_are_ignored(
    served: Served,
) -> None:
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("CG").encode())
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    reply = served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetHeader("orders", "CG", 0))
    table = ResetOffsetBody.decode(reply.body).offset_table
    assert table == {MessageQueue("orders", "broker-a", queue_id): 0 for queue_id in range(4)}
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    query = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, query) == {"offset": "0"}

    async def pull_again() -> None:
        address = served.master.address
        async with served.cluster.client() as client:
            reply = await pulled(client, address, 3)
            assert (reply.code, reply.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
            assert (reply.ext["nextBeginOffset"], reply.ext["minOffset"], reply.ext["maxOffset"]) == (
                "0",
                "0",
                "3",
            )
            assert (await pulled(client, address, 0)).code == 0

    served.cluster.run(pull_again())
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, query) == {"offset": "2"}
    served.world.run_for_ms(2_000)
    assert served.slave.tables.offsets.find("CG", "orders", 1) == 2


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (ResetOffsetHeader("none", "CG", 0), ResponseCode.TOPIC_NOT_EXIST),
        (ResetOffsetHeader("orders", "none", 0), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=4), ResponseCode.SYSTEM_ERROR),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=4), ResponseCode.SYSTEM_ERROR),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=2), ResponseCode.SUCCESS),
        (ResetOffsetHeader("orders", "CG", -1, queue_id=1, offset=-1), ResponseCode.SUCCESS),
    ],
)
def test_an_offset_reset_to_an_impossible_position_is_refused(
    served: Served, header: ResetOffsetHeader, code: int
) -> None:
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("CG").encode())
    assert served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header).code == code
    assert served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, slave=True).code == 1


@pytest.mark.parametrize("queue_id", [-1, 4, 99, (1 << 31) - 1])
def test_a_commit_for_a_queue_outside_the_topic_is_refused(served: Served, queue_id: int) -> None:
    table = served.master.tables.offsets
    before = table.encode()
    made_up = UpdateConsumerOffsetHeader("CG", "orders", queue_id, 7)
    assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, made_up).code == ResponseCode.INVALID_PARAMETER
    assert table.encode() == before


def test_many_messages_of_one_time_cost_a_search_no_more_than_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may have 190,000 of them, which a search for the last one looked at one by one."""
    ext = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0", "i": "",
        "j": "0", "k": "false", "m": "true",
    }  # fmt: skip
    member = (22).to_bytes(4) + bytes(18)
    assert served.ask(RequestCode.SEND_BATCH_MESSAGE, ext, member * 500).code == 0
    looked: list[int] = []
    kept = BrokerStore.store_time_at

    async def store_time_at(store: BrokerStore, topic: str, queue_id: int, offset: int) -> int:
        looked.append(offset)
        return await kept(store, topic, queue_id, offset)

    monkeypatch.setattr(BrokerStore, "store_time_at", store_time_at)
    at = served.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 0)).ext["timestamp"]
    header = SearchOffsetHeader("orders", 0, int(at), "UPPER")
    end = served.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 0)).ext["offset"]
    found = served.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header).ext["offset"]
    assert (int(found), looked) == (int(end) - 1, [0])
