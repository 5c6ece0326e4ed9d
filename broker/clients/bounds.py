"""Limits of the data that clients register. The data is kept while the clients are connected.

Pure."""

from __future__ import annotations

from remoting.bodies.heartbeats import HeartbeatData, SubscriptionData
from remoting.errors import BodyError

NAME_LENGTH_MAX = 255
"""Limit of the name of a group, and of a client id."""
JOINED_MAX = 2_000
"""Limit of the pairs of group and client id of one connection."""
KEPT_CHARACTERS_MAX = 64 << 20
"""Limit of the total size, over all connected clients."""
JOIN_CHARACTERS = SUBSCRIPTION_CHARACTERS = 200
"""The size counted for a member and for a subscription, in addition to their texts."""
ELEMENT_CHARACTERS = 64
"""The same for each tag, also an empty one, and each code of a tag. The filter has a code for each tag of the expression."""


def check_names(data: HeartbeatData) -> None:
    """Raises BodyError for an invalid name."""
    producers = [each.group_name for each in data.producer_data_set]
    consumers = [each.group_name for each in data.consumer_data_set]
    if any(len(name) > NAME_LENGTH_MAX for name in (data.client_id, *producers, *consumers)):
        raise BodyError(f"a group and a client id have {NAME_LENGTH_MAX} characters at most")


def of_member(group: str, client_id: str) -> int:
    """The size counted for a client in a group."""
    return JOIN_CHARACTERS + len(group) + len(client_id)


def of_subscription(data: SubscriptionData) -> int:
    """The size counted for a subscription of a group."""
    texts = len(data.topic) + len(data.sub_string) + len(data.expression_type) + sum(map(len, data.tags_set))
    elements = len(data.tags_set) + len(data.code_set) + data.sub_string.count("||")
    return SUBSCRIPTION_CHARACTERS + texts + ELEMENT_CHARACTERS * elements
