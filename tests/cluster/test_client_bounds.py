"""Invented names of clients, groups and topics use bounded memory and do not affect existing clients."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import orjson
import pytest

from accesscontrol.guard import NOBODY, Caller
from broker.clients import bounds, groups
from broker.clients.groups import ConsumerGroups
from broker.tables import autocreation, consumeroffsets
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics, system_topics
from remoting.bodies.body import REQUEST_BYTES_MAX
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.bodies.queues import LockQueuesBody
from remoting.bodies.topics import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.headers.admin import CloneGroupOffsetHeader
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.headers.offsets import ResetOffsetHeader, UpdateConsumerOffsetHeader
from remoting.peer import Peer
from tests.cluster.served import Served
from tests.support.doubles import ManualClock

ONE, OTHER = cast(Peer, "one connection"), cast(Peer, "another")


def beat(client: str, consumers: dict[str, list[str]], producers: list[str] | None = None) -> HeartbeatData:
    """A heartbeat; `consumers` maps groups to topics."""
    return HeartbeatData(
        client,
        [ProducerData(name) for name in producers or []],
        [
            ConsumerData(name, subscription_data_set=[SubscriptionData(topic) for topic in topics])
            for name, topics in consumers.items()
        ],
    )


def take(table: ConsumerGroups, peer: Peer, data: HeartbeatData, caller: Caller = NOBODY) -> None:
    table.check_room(peer, data, caller)
    table.heartbeat(peer, data, "JAVA", 479, caller)


def test_a_connection_joins_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "JOINED_MAX", 3)
    table, data = ConsumerGroups(), beat("c1", {"A": [], "B": []}, ["P"])
    take(table, ONE, data)
    take(table, ONE, data)
    with pytest.raises(BodyError, match="3 groups at most, this one into 4"):
        take(table, ONE, beat("c2", {"A": []}))
    take(table, OTHER, beat("c2", {"A": []}))
    table.leave("c1", "B", None)
    take(table, ONE, beat("c3", {"A": []}))


def test_kept_subscriptions_are_bounded_and_a_disconnect_releases_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = bounds.of_member("A", "c1")
    shared = bounds.SUBSCRIPTION_CHARACTERS  # the second one with the same text
    room = 3 * member + bounds.of_subscription(SubscriptionData("T")) + shared
    monkeypatch.setattr(groups, "KEPT_CHARACTERS_MAX", room)
    table, first = ConsumerGroups(), beat("c1", {"A": ["T"]}, ["P"])
    take(table, ONE, first)
    take(table, ONE, first)
    take(table, OTHER, beat("c2", {"A": ["T"]}))
    for more in (beat("c3", {"A": []}), beat("c1", {"A": ["T", "U"]}), beat("c4", {}, ["P"])):
        with pytest.raises(BodyError, match="connect fewer"):
            take(table, ONE, more)
    table.renew("A", "c1", [SubscriptionData("U")])
    assert table.subscription("A", "U") is None
    take(table, ONE, first)
    table.disconnected(ONE)
    table.disconnected(OTHER)
    take(table, OTHER, beat("c5", {"A": ["T"], "B": []}, ["P"]))


def test_the_clients_of_one_user_leave_half_of_the_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    mallory, alice = Caller("mallory", "10.0.0.1"), Caller("alice", "10.0.0.2")
    of_one = bounds.of_member("A", "c10") + bounds.of_subscription(SubscriptionData("T", "s10"))
    monkeypatch.setattr(groups, "KEPT_CHARACTERS_MAX", 20 * of_one)
    table = ConsumerGroups()

    def consumer(number: int) -> HeartbeatData:
        data = [SubscriptionData("T", f"s{number}")]
        return HeartbeatData(f"c{number}", [], [ConsumerData("A", subscription_data_set=data)])

    for number in range(10, 20):
        take(table, ONE, consumer(number), mallory)
    for refused in (consumer(20), beat("p", {}, ["P"])):
        with pytest.raises(BodyError, match="clients of user mallory take half of the room"):
            take(table, ONE, refused, mallory)
    take(table, ONE, consumer(10), mallory)  # as before
    for number in range(30, 39):
        take(table, OTHER, consumer(number), alice)
    table.leave("c10", "A", None, mallory)
    take(table, ONE, consumer(21), mallory)
    table.disconnected(ONE)
    for number in range(40, 50):
        take(table, ONE, consumer(number), mallory)
    assert table._of_users.keys() == {"mallory", "alice"}
    table.disconnected(ONE)
    table.disconnected(OTHER)
    assert not table._of_users and not table._shares and not table._characters


def test_a_changed_subscription_is_charged_by_its_new_size(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ConsumerGroups()
    take(table, ONE, beat("c1", {"A": ["T"]}))
    long = [SubscriptionData("T", "a" * 900, sub_version=1)]
    table.renew("A", "c1", long)
    table.renew("A", "c1", [SubscriptionData("T", sub_version=2)])
    kept = bounds.of_member("A", "c1") + bounds.of_subscription(SubscriptionData("T"))
    monkeypatch.setattr(groups, "KEPT_CHARACTERS_MAX", kept + bounds.of_member("B", "c1"))
    take(table, ONE, beat("c1", {"B": []}))


@pytest.mark.parametrize(
    "lists", [{"tagsSet": [""] * 20_000}, {"tagsSet": ["ab"] * 20_000}, {"codeSet": [1_000] * 20_000}, {}]
)
def test_a_subscription_is_charged_by_what_it_takes(lists: dict[str, list[Any]]) -> None:
    """A client chooses the lists, and its expression has up to 1,000 tags."""
    table, charged = ConsumerGroups(), 0
    tags = "||".join(f"t{number}" for number in range(999))
    tracemalloc.start()
    for number in range(20):
        made = {"topic": "T", "subString": f"{number}||{tags}" if not lists else f"{number}"} | lists
        data = SubscriptionData.from_json(orjson.loads(orjson.dumps(made)))
        charged += bounds.of_subscription(data) + bounds.of_member("A", f"c{number}")
        take(table, ONE, HeartbeatData(f"c{number}", [], [ConsumerData("A", subscription_data_set=[data])]))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.5 * charged


def test_client_and_group_names_over_255_characters_are_refused() -> None:
    table, long = ConsumerGroups(), "n" * 256
    for data in (beat(long, {}), beat("c1", {long: []}), beat("c1", {}, [long])):
        with pytest.raises(BodyError, match="255 characters"):
            take(table, ONE, data)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
    ],
)
def test_a_body_over_the_request_limit_is_not_parsed(served: Served, code: RequestCode) -> None:
    reply = served.ask(code, None, b" " * REQUEST_BYTES_MAX + LockQueuesBody("G", "c").encode())
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None and f"{REQUEST_BYTES_MAX} are read" in reply.remark


def test_automatic_creation_of_groups_stops_at_the_size_that_replicas_can_copy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(autocreation, "BYTES_MAX", 800)
    table = SubscriptionGroups(ManualClock(), auto_create=True, on_change=lambda: None)
    made = [table.find_or_create(name) for name in ("A", "B", "C", "A")]
    assert [group.group_name if group else None for group in made] == ["A", "B", None, "A"]
    assert "create with updateSubGroup what is needed" in caplog.text
    table.put(SubscriptionGroupConfig("C"))
    assert table.find_or_create("D") is None
    table.remove("A")
    table.remove("B")
    assert table.find_or_create("D") is not None


def test_automatic_creation_of_topics_stops_at_the_size_that_replicas_can_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = system_topics("DefaultCluster", "broker-a", auto_create=True, queue_nums=8)
    table = Topics(ManualClock(), system, lambda: None)
    used = sum(128 + 2 * len(each.topic_name) for each in system)
    monkeypatch.setattr(autocreation, "BYTES_MAX", used + 260)
    names = ("A", "%RETRY%B", "%RETRY%C", "D")
    made = [table.create_for_send(name, "TBW102", 4) is not None for name in names]
    assert made == [True, False, False, True]
    table.put(TopicConfig("by-hand"))
    assert table.create_for_send("E", "TBW102", 4) is None
    copied = Topics(ManualClock(), system, lambda: None)
    copied.replace(table.wrapper())
    assert copied.create_for_send("E", "TBW102", 4) is None
    for name in ("A", "by-hand"):
        copied.remove(name)
    assert copied.create_for_send("E", "TBW102", 4) is not None


def test_new_offsets_are_refused_beyond_the_size_that_slaves_can_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumeroffsets, "BYTES_MAX", 60)
    table = ConsumerOffsets()
    kept = [table.commit("G", "T", queue_id, 5) for queue_id in range(6)]
    assert kept == [True, True, True, True, False, False]
    assert table.commit("G", "T", 3, 6) and table.find("G", "T", 3) == 6
    copied = ConsumerOffsets()
    copied.decode(table.encode())
    assert not copied.commit("H", "T", 0, 1)
    copied.remove_group("G")
    assert copied.commit("H", "T", 0, 1)


def test_an_offset_of_an_impossible_queue_or_group_is_refused(served: Served) -> None:
    for header in (
        UpdateConsumerOffsetHeader("CG", "orders", 77, 2),
        UpdateConsumerOffsetHeader("CG", "orders", -1, 2),
        UpdateConsumerOffsetHeader("g" * 256, "orders", 1, 2),
    ):
        assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.INVALID_PARAMETER
    assert served.json(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"] == {}


def test_the_refusal_of_an_offset_without_room_names_the_remedy(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumeroffsets, "BYTES_MAX", 0)
    reply = served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    assert reply.code == ResponseCode.SYSTEM_ERROR and "deleteSubGroup" in (reply.remark or "")


def test_clones_and_resets_of_offsets_without_room_change_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("DG").encode())
    monkeypatch.setattr(consumeroffsets, "BYTES_MAX", 0)
    for code, header in (
        (RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetHeader("CG", "DG", "orders")),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetHeader("orders", "DG", 0, queue_id=1, offset=0),
        ),
    ):
        reply = served.ask(code, header)
        assert reply.code == ResponseCode.SYSTEM_ERROR and "deleteSubGroup" in (reply.remark or "")
    assert served.json(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"] == {"orders@CG": {"1": 2}}
    here = CloneGroupOffsetHeader("CG", "CG", "orders")
    assert served.ask(RequestCode.CLONE_GROUP_OFFSET, here).code == 0, "the offset is there already"


@pytest.mark.parametrize("name", ["", " ", "a@b", "a/../../b", "a.b", "g" * 256])
def test_a_group_name_that_upstream_refuses_is_created_by_no_request(served: Served, name: str) -> None:
    """Messages sent back to `a/../../b` would be unreadable: queues of their topic can have no folder."""
    stored = int(served.results[0].offset_message_id[16:], 16)
    asked: list[tuple[RequestCode, Any, bytes | None, ResponseCode]] = [
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackHeader(stored, name, 1),
            None,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            SubscriptionGroupConfig(name).encode(),
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetHeader(name, "orders", 1, 2),
            None,
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            RequestCode.CLONE_GROUP_OFFSET,
            CloneGroupOffsetHeader("CG", name, "orders"),
            None,
            ResponseCode.INVALID_PARAMETER,
        ),
    ]
    for code, header, body, expected in asked:
        assert served.ask(code, header, body).code == expected
    assert served.master.tables.groups.find(name) is None
    assert served.master.tables.topics.find(f"%RETRY%{name}") is None
    assert served.json(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"] == {}


def test_the_ids_of_clients_that_left_are_forgotten() -> None:
    table = ConsumerGroups()
    for number in range(3):
        take(table, ONE, beat(f"c{number}", {"A": []}, ["P"]))
        table.leave(f"c{number}", None, "P")
    assert [*table._clients] == ["c0", "c1", "c2"], "they consume"
    for number in range(2):
        table.leave(f"c{number}", "A", None)
    assert [*table._clients] == ["c2"]
    table.disconnected(ONE)
    assert table._clients == {}
