"""Forwarded pulls carry the subscription of their consumer: a new successor knows no consumer."""

from __future__ import annotations

import pytest

from broker.switchover.passedpulls import attach_subscriptions
from remoting.bodies.heartbeats import SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.passedfields import FORMER_FIELDS, as_it_came


def pull(flags: str, **fields: str) -> RemotingCommand:
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE)
    command.ext = {"consumerGroup": "G", "topic": "orders", "sysFlag": flags, "subVersion": "7"} | fields
    return command


def known(group: str, topic: str) -> SubscriptionData | None:
    return (
        SubscriptionData("orders", "a > 5", sub_version=7, expression_type="SQL92")
        if (group, topic) == ("G", "orders")
        else None
    )


def long_one(group: str, topic: str) -> SubscriptionData:
    return SubscriptionData("orders", "\0" * 8_193, sub_version=7)


def test_a_forwarded_pull_carries_the_subscription_of_the_heartbeat() -> None:
    command = pull("3")
    sent = dict(command.ext)
    attach_subscriptions([command], known)
    former = {FORMER_FIELDS: command.ext.get(FORMER_FIELDS, "")}
    assert command.ext == former | {
        "consumerGroup": "G", "topic": "orders", "sysFlag": "7", "subVersion": "7", "subscription": "a > 5",
        "expressionType": "SQL92",
    }  # fmt: skip
    assert as_it_came(command.ext) == sent


@pytest.mark.parametrize(
    "command",
    [
        pull("7", subscription="TagA"),
        pull("no number"),
        pull("3", topic="unknown"),
        pull("3", subVersion="8"),  # another version than that of the heartbeat
        pull("3", subVersion="no number"),
        RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET),
    ],
)
def test_a_command_with_its_own_or_an_unknown_subscription_is_forwarded_unchanged(
    command: RemotingCommand,
) -> None:
    before = dict(command.ext)
    attach_subscriptions([command], known)
    assert command.ext == before


def test_an_expression_too_long_for_a_header_is_not_attached() -> None:
    command = pull("3")
    attach_subscriptions([command], long_one)
    assert "subscription" not in command.ext
