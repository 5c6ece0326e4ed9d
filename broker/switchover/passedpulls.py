"""Adds subscriptions to pulls that a former master passes on, for a successor that has not received heartbeats with them yet.

A broker that has just started and become master knows no consumers, because clients send heartbeats every 30 s only. The former
master that passes on the pulls knows the subscriptions.

Invariant: no pull gets a subscription that is older than the consumer's, because that may skip messages for good. No pull gets
a header so long that the successor would close the connection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remoting.bodies.heartbeats import SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION
from remoting.passedfields import change
from remoting.wirefields import I32_RANGE, I64_RANGE, parse_integer

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SUBSCRIPTION_LENGTH_MAX = 8_192
"""In characters; a character takes up to six bytes of a header."""
Subscribed = Callable[[str, str], SubscriptionData | None]
"""Returns the subscription of a group to a topic; None if this broker does not know it."""


def attach_subscriptions(commands: Iterable[RemotingCommand], subscribed: Subscribed) -> None:
    """Add the known subscription to pulls among `commands` that have none."""
    for command in commands:
        if command.code not in PULLS:
            continue
        ext = command.ext
        flags = parse_integer(ext.get("sysFlag", ""), I32_RANGE)
        if flags is None or flags & SYS_FLAG_SUBSCRIPTION:
            continue  # the pull has its own subscription, or the successor will reject the pull
        known = subscribed(ext.get("consumerGroup", ""), ext.get("topic", ""))
        version = parse_integer(ext.get("subVersion", ""), I64_RANGE)
        if known is None or version is None or known.sub_version < version:
            continue
        if len(known.sub_string) <= SUBSCRIPTION_LENGTH_MAX:
            changes = {
                "sysFlag": str(flags | SYS_FLAG_SUBSCRIPTION),
                "subscription": known.sub_string,
                "expressionType": known.expression_type,
            }
            change(ext, changes)
