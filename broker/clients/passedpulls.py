"""Pulls of consumers that say with their heartbeats what they want, as a successor reads them that has not heard those yet.

A broker that was started a moment ago, and is master now, knows no consumer: clients tell brokers of themselves each 30 s. Who
passes their pulls on knows what they said.

Invariant: no pull gets a subscription that is older than the one it was made with, which may skip messages for good, nor a
header that its successor would end the connection for. Pure."""

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
"""What a group wants of a topic, as this broker was told."""


def say_what_they_want(commands: Iterable[RemotingCommand], subscribed: Subscribed) -> None:
    """Pulls among `commands` that name no subscription get the one that is known here."""
    for command in commands:
        if command.code not in PULLS:
            continue
        ext = command.ext
        flags = parse_integer(ext.get("sysFlag", ""), I32_RANGE)
        if flags is None or flags & SYS_FLAG_SUBSCRIPTION:
            continue  # it says so itself, or the successor will say what is wrong
        known = subscribed(ext.get("consumerGroup", ""), ext.get("topic", ""))
        version = parse_integer(ext.get("subVersion", ""), I64_RANGE)
        if known is None or version is None or known.sub_version < version:
            continue
        if len(known.sub_string) <= SUBSCRIPTION_LENGTH_MAX:
            ext["sysFlag"] = str(flags | SYS_FLAG_SUBSCRIPTION)
            ext["subscription"] = known.sub_string
            ext["expressionType"] = known.expression_type
