"""A message as a consumer of a group gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mqclient.message import StoredMessage
from mqclient.route import MessageQueue


@dataclass(slots=True, eq=False)
class ReceivedMessage:
    """A message of `queue`, to be finished once. `attempt` is 1 the first time that the group gets it."""

    stored: StoredMessage
    queue: MessageQueue
    attempt: int

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also if it comes from the group's retry topic."""
        return self.stored.properties.get("RETRY_TOPIC") or self.stored.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises `CompressionUnsupported` if the library for its compression is not installed, and
        ValueError for a damaged body."""
        return self.stored.plain_body()

    @property
    def tags(self) -> str:
        return self.stored.properties.get("TAGS", "")

    @property
    def keys(self) -> str:
        """The index keys, separated by blanks."""
        return self.stored.properties.get("KEYS", "")

    @property
    def properties(self) -> Mapping[str, str]:
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The id that its producer gave it, which stays the same at each attempt; "" if there is none."""
        return self.stored.message_id

    @property
    def offset(self) -> int:
        return self.stored.queue_offset

    @property
    def born_timestamp_ms(self) -> int:
        return self.stored.born_timestamp_ms
