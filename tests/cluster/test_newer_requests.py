"""Requests of RocketMQ 5.4.0 to 5.5.1 that 5.3.3 does not know, in its own frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.admin.lists import DELETED_MAX
from messagestore.index.table import TagsSince
from mqclient.message import decode_messages
from remoting.bodies.groups import DeleteGroupsBody, SubscriptionGroupConfig, SubscriptionGroupWrapper
from remoting.bodies.routes import TopicList
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.frame import FrameReader
from remoting.headers.admin import CreateTopicHeader, GroupHeader, TopicHeader
from remoting.headers.messages import QueryMessageHeader
from remoting.headers.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from tests.cluster.served import Served

FRAMES = Path(__file__).parents[1] / "vectors" / "remoting" / "frames-5.5.1"
FORMS = ("JSON", "ROCKETMQ")
DELETE_TOPICS, DELETE_GROUPS = (
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
)  # fmt: skip


def frame(name: str) -> RemotingCommand:
    (command,) = FrameReader().receive((FRAMES / f"{name}.bin").read_bytes())
    return command


def asked(served: Served, command: RemotingCommand) -> RemotingCommand:
    return served.ask(command.code, command.ext, bytes(command.body or b"") or None)


def make(served: Served, topics: list[str], groups: list[str]) -> None:
    for topic in topics:
        header = CreateTopicHeader(topic, "TBW102", 1, 1, 6)
        assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    for group in groups:
        body = SubscriptionGroupConfig(group).encode()
        assert served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body).code == 0


def topics(served: Served, *, slave: bool = False) -> set[str]:
    table = TopicConfigWrapper.from_json(served.json(RequestCode.GET_ALL_TOPIC_CONFIG, slave=slave))
    return set(table.topic_config_table)


def groups(served: Served, *, slave: bool = False) -> set[str]:
    table = SubscriptionGroupWrapper.from_json(
        served.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, slave=slave)
    )
    return set(table.subscription_group_table)


@pytest.mark.parametrize("form", FORMS)
def test_topics_and_groups_are_deleted_by_lists(served: Served, form: str) -> None:
    deletion, cleaning = frame(f"05002-request-{form}"), frame(f"05003-request-{form}")
    named = TopicList.decode(deletion.body).topic_list
    group_names = DeleteGroupsBody.decode(cleaning.body)
    assert named and group_names.group_name_list and group_names.clean_offset
    make(served, [*named, "kept"], [*group_names.group_name_list, "Kept"])
    committed = UpdateConsumerOffsetHeader(group_names.group_name_list[0], "orders", 1, 2)
    assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, committed).code == 0
    assert asked(served, deletion).code == 0 and asked(served, cleaning).code == 0
    for slave in (False, True):
        assert topics(served, slave=slave) & {*named, "kept"} == {"kept"}
        assert groups(served, slave=slave) & {*group_names.group_name_list, "Kept"} == {"Kept"}
    offset = QueryConsumerOffsetHeader(
        group_names.group_name_list[0], "orders", 1, set_zero_if_not_found=False
    )
    assert served.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset).code == ResponseCode.QUERY_NOT_FOUND


def test_a_slave_forwards_a_deletion_of_topics_to_its_master(served: Served) -> None:
    make(served, ["one", "two"], [])
    body = TopicList(["one", "two"]).encode()
    assert served.ask(DELETE_TOPICS, None, body, slave=True).code == 0
    assert not topics(served) & {"one", "two"}


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (DELETE_TOPICS, TopicList(["one", " "]).encode(), "blank topic"),
        (DELETE_TOPICS, TopicList(["one", "TBW102"]).encode(), "conflict with system topic"),
        (DELETE_TOPICS, b"{}", "names no topic"),
        (
            DELETE_TOPICS,
            TopicList(["one"] * (DELETED_MAX + 1)).encode(),
            f"{DELETED_MAX} are deleted at once",
        ),
        (DELETE_GROUPS, DeleteGroupsBody(["One", ""]).encode(), "blank group"),
        (DELETE_GROUPS, b"{}", "names no group"),
        (DELETE_GROUPS, DeleteGroupsBody(["One"] * (DELETED_MAX + 1)).encode(), "are deleted at once"),
    ],
)
def test_a_list_with_an_impossible_name_deletes_nothing(
    served: Served, code: RequestCode, body: bytes, why: str
) -> None:
    make(served, ["one"], ["One"])
    reply = served.ask(code, None, body)
    assert reply.code == ResponseCode.INVALID_PARAMETER and why in (reply.remark or "")
    assert "one" in topics(served) and "One" in groups(served)


def test_other_work_runs_between_two_deletions_of_a_list(served: Served) -> None:
    make(served, [f"t{number}" for number in range(50)], [])
    before = served.master.tables.delete_topic
    waiting: list[str] = []
    seen: list[int] = []

    def noted(name: str, end: int) -> None:
        seen.append(len(waiting))
        before(name, end)
        served.world.loop.call_soon(waiting.append, name)

    served.master.tables.delete_topic = noted  # type: ignore[method-assign]
    body = TopicList([f"t{number}" for number in range(50)]).encode()
    assert served.ask(DELETE_TOPICS, None, body).code == 0
    assert seen == list(range(50)), "work scheduled by one deletion ran before the next one"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", [21, 201])
def test_a_request_for_a_page_gets_the_whole_table_and_no_total(served: Served, code: int, form: str) -> None:
    """Upstream takes an answer without a total for the whole table."""
    page = asked(served, frame(f"{code:05}-request-page-0-{form}"))
    whole = served.ask(code)
    assert page.code == 0 and bytes(page.body or b"") == bytes(whole.body or b"")
    assert not [key for key in page.ext if key.startswith("total")]


def test_unknown_attributes_are_kept_and_copied_to_slaves(served: Served) -> None:
    topic = TopicConfig("lite", 4, 4, attributes={"lite.topic.expiration": "60"})
    group = SubscriptionGroupConfig("Lite", attributes={"lite.bind.topic": "lite", "priority.factor": "7"})
    served.master.tables.topics.put(topic)
    served.master.tables.groups.put(group)
    served.world.run_for_ms(1_000)
    assert TopicConfig.from_json(
        served.json(RequestCode.GET_TOPIC_CONFIG, TopicHeader("lite"), slave=True)
    ).attributes == topic.attributes  # fmt: skip
    assert SubscriptionGroupConfig.from_json(
        served.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("Lite"), slave=True)
    ).attributes == group.attributes  # fmt: skip


@pytest.mark.parametrize("code", range(200_070, 200_080))
def test_requests_about_lite_topics_are_refused_by_name(served: Served, code: int) -> None:
    reply = served.ask(code, {"parentTopic": "orders"})
    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (reply.remark or "").endswith("not built here: lite topics")


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP])
def test_a_lite_topic_is_not_read_as_its_parent(served: Served, code: RequestCode) -> None:
    ext = {
        "consumerGroup": "CG", "topic": "orders", "queueId": "1", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
        "timestamp": "0",
    }  # fmt: skip
    make(served, [], ["CG"])
    for lite, answered in (({}, True), ({"liteTopic": ""}, True), ({"liteTopic": "chat-7"}, False)):
        reply = served.ask(code, {**ext, **lite})
        assert (reply.code == 0) is answered, reply.remark
    assert reply.code == ResponseCode.INVALID_PARAMETER and "lite topics" in (reply.remark or "")


@pytest.mark.parametrize(("length", "made"), [(120, True), (121, False)])
def test_a_new_group_name_over_upstreams_limit_is_refused(served: Served, length: int, made: bool) -> None:
    group = SubscriptionGroupConfig("g" * length)
    reply = served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.encode())
    assert (reply.code == 0) is made
    if not made:
        assert "120 characters at most" in (reply.remark or "") and "has 121" in (reply.remark or "")
        served.master.tables.groups.put(group)  # as a client or an older version created it
        reply = served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.encode())
        assert reply.code == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_query_uses_the_index_type_of_its_header(served: Served, form: str) -> None:
    by_tag = frame(f"00012-request-by-tag-{form}")
    assert by_tag.ext["indexType"] == "T"
    asked_for = {**by_tag.ext, "topic": "orders", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
    reply = served.ask(by_tag.code, {**asked_for, "key": "two"})
    (message,) = decode_messages(reply.body or b"")
    assert (reply.code, reply.remark, message.body) == (0, None, b"two")
    reply = served.ask(by_tag.code, {**asked_for, "key": "none"})
    assert (reply.code, reply.remark) == (
        ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct",
    )  # fmt: skip
    reply = served.ask(by_tag.code, {**asked_for, "key": "two", "indexType": "X"})
    assert reply.code == ResponseCode.INVALID_PARAMETER and "indexType=X" in (reply.remark or "")
    message_id = served.results[0].message_ids[0]
    unique = {**asked_for, "key": message_id, "_UNIQUE_KEY_QUERY": "true"}
    assert served.ask(by_tag.code, unique).code == 0, "upstream uses this property"
    for kind in ("K", "U", "", None):
        ext = {
            **by_tag.ext,
            "topic": "orders",
            "key": message_id,
            "endTimestamp": str((1 << 63) - 1),
            "lastKey": "",
        }
        ext |= {"indexType": kind or ""} if kind is not None else {}
        if kind is None:
            del ext["indexType"]
        assert served.ask(by_tag.code, ext).code == 0


@pytest.mark.parametrize("tag", ["two", "none"])
def test_a_query_by_tag_warns_of_index_files_of_older_versions(served: Served, tag: str) -> None:
    """The warning appears only if the queried time reaches back that far."""
    index: Any = served.master.store._index
    index.tags_since = TagsSince(1 << 40, 1_000)
    for begin_ms, warned in ((0, True), (1_000, True), (1_001, False)):
        header = QueryMessageHeader("orders", tag, 9, begin_ms, (1 << 63) - 1, None, "T")
        reply = served.ask(RequestCode.QUERY_MESSAGE, header)
        assert reply.code == (0 if tag == "two" else ResponseCode.QUERY_NOT_FOUND)
        assert ("stored up to 1000 (ms) may be missing" in (reply.remark or "")) is warned
    by_key = QueryMessageHeader("orders", served.results[0].message_ids[0], 9, 0, (1 << 63) - 1)
    assert served.ask(RequestCode.QUERY_MESSAGE, by_key).remark is None
