"""Attributes of topics and groups: changes, unchanged attributes and malformed changes."""

from __future__ import annotations

import pytest

from broker.admin.attributes import AttributesRefused, changed, changes_in
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.bodies.topics import TopicConfig, TopicConfigList
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import CreateTopicHeader, GroupHeader, TopicHeader
from tests.cluster.served import Served

WRONG = [
    "cleanup.policy=COMPACTION",
    "+k",
    "+k=",
    "-k=v",
    "-k=",
    "+a=1,,+b=2",
    "+a=1,+a=2",
    "+a=1,-a",
    "+=v",
    "-",
    "nonsense",
]


def after(before: dict[str, str], text: str | None) -> dict[str, str]:
    return changed(before, changes_in(text))


def test_plus_and_minus_change_attributes_and_leave_the_others() -> None:
    assert after({"a": "1", "b": "2"}, "+c=3,-a,+b=4=5") == {"b": "4=5", "c": "3"}
    assert after({"a": "1"}, None) == after({"a": "1"}, "") == after({"a": "1"}, "-b,") == {"a": "1"}
    assert changed({"a": "1", "b": "2"}, {"+a": "3", "-b": "", "c": "4"}) == {"a": "3", "c": "4"}


@pytest.mark.parametrize("text", WRONG)
def test_malformed_attribute_changes_are_refused_with_the_expected_form(served: Served, text: str) -> None:
    with pytest.raises(AttributesRefused, match="write .key=value to set and -key to drop"):
        after({}, text)
    header = CreateTopicHeader("fresh", "TBW102", 2, 3, 6, attributes=text)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.INVALID_PARAMETER
    assert served.ask(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh")).code == ResponseCode.TOPIC_NOT_EXIST


def attributes_of_topic(served: Served) -> dict[str, str]:
    return TopicConfig.from_json(served.json(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh"))).attributes


def test_lists_of_topics_change_attributes_as_single_requests_do(served: Served) -> None:
    def put(attributes: dict[str, str]) -> int:
        listed = TopicConfigList([TopicConfig("fresh", attributes=attributes)])
        return served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, listed.encode()).code

    assert put({"+message.type": "NORMAL", "own": "1"}) == 0
    assert attributes_of_topic(served) == {"message.type": "NORMAL", "own": "1"}
    assert put({}) == 0
    assert put({"-own": ""}) == 0
    assert attributes_of_topic(served) == {"message.type": "NORMAL"}
    assert put({"+cleanup.policy": "COMPACTION"}) == put({"+": "x"}) == ResponseCode.INVALID_PARAMETER
    assert attributes_of_topic(served) == {"message.type": "NORMAL"}
    assert served.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("fresh")).code == 0


def test_groups_change_attributes_as_topics_do(served: Served) -> None:
    def put(attributes: dict[str, str], *, listed: bool) -> int:
        group = SubscriptionGroupConfig("Fresh", attributes=attributes)
        if listed:
            code, body = (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                SubscriptionGroupList([group]).encode(),
            )
        else:
            code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode()
        return served.ask(code, None, body).code

    def shown() -> dict[str, str]:
        config = served.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("Fresh"))
        return SubscriptionGroupConfig.from_json(config).attributes

    assert put({"+priority.factor": "7"}, listed=False) == 0
    assert shown() == {"priority.factor": "7"}
    assert put({"+own": "1"}, listed=True) == put({}, listed=False) == 0
    assert shown() == {"priority.factor": "7", "own": "1"}
    assert put({"-priority.factor": ""}, listed=False) == 0
    assert shown() == {"own": "1"}
    assert put({"+own": "2", "-own": ""}, listed=True) == ResponseCode.INVALID_PARAMETER
