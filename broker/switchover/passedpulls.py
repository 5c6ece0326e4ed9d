"""Pulls of consumers that send their subscriptions with heartbeats, completed for a successor that has not received those yet.

A broker that just started and became master knows no consumers: clients send heartbeats each 30 s. The former master that
passes their pulls on knows their subscriptions.

Invariant: no pull gets a subscription older than the one it was made with, which may skip messages for good, nor a
header for which its successor would close the connection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remoting.bodies.heartbeats import SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION
from remoting.wirefields import I32_RANGE, I64_RANGE, parse_integer

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SUBSCRIPTION_LENGTH_MAX = 8_192
"""Characters; one takes up to six bytes of a header."""
Subscribed = Callable[[str, str], SubscriptionData | None]
"""The subscription of a group to a topic that this broker knows."""


def attach_subscriptions(commands: Iterable[RemotingCommand], subscribed: Subscribed) -> None:
    """Add the known subscription to pulls among `commands` that have none."""
    for command in commands:
        if command.code not in PULLS:
            continue
        ext = command.ext
        flags = parse_integer(ext.get("sysFlag", ""), I32_RANGE)
        if flags is None or flags & SYS_FLAG_SUBSCRIPTION:
            continue  # it has its own, or the successor will reject it
        known = subscribed(ext.get("consumerGroup", ""), ext.get("topic", ""))
        version = parse_integer(ext.get("subVersion", ""), I64_RANGE)
        if known is None or version is None or known.sub_version < version:
            continue
        if len(known.sub_string) <= SUBSCRIPTION_LENGTH_MAX:
            ext["sysFlag"] = str(flags | SYS_FLAG_SUBSCRIPTION)
            ext["subscription"] = known.sub_string
            ext["expressionType"] = known.expression_type
