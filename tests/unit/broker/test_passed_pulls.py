"""A pull that is passed on says what its consumer wants: the successor may have been started a moment ago."""

from __future__ import annotations

import pytest

from broker.switchover.passedpulls import attach_subscriptions
from remoting.bodies.heartbeats import SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand


def pull(flags: str, **besides: str) -> RemotingCommand:
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE)
    command.ext = {"consumerGroup": "G", "topic": "orders", "sysFlag": flags, "subVersion": "7"} | besides
    return command


def known(group: str, topic: str) -> SubscriptionData | None:
    return (
        SubscriptionData("orders", "a > 5", sub_version=7, expression_type="SQL92")
        if (group, topic) == ("G", "orders")
        else None
    )


def long_one(group: str, topic: str) -> SubscriptionData:
    return SubscriptionData("orders", "\0" * 8_193, sub_version=7)


def test_what_the_heartbeats_said_goes_along() -> None:
    command = pull("3")
    attach_subscriptions([command], known)
    assert command.ext == {
        "consumerGroup": "G", "topic": "orders", "sysFlag": "7", "subVersion": "7", "subscription": "a > 5",
        "expressionType": "SQL92",
    }  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        pull("7", subscription="TagA"),
        pull("no number"),
        pull("3", topic="unknown"),
        pull("3", subVersion="8"),  # it wants something else than the heartbeats said
        pull("3", subVersion="no number"),
        RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET),
    ],
)
def test_what_says_it_itself_or_of_whom_nothing_is_known_stays_as_it_is(command: RemotingCommand) -> None:
    before = dict(command.ext)
    attach_subscriptions([command], known)
    assert command.ext == before


def test_an_expression_that_no_header_has_room_for_stays_away() -> None:
    command = pull("3")
    attach_subscriptions([command], long_one)
    assert "subscription" not in command.ext
