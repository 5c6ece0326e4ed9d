"""Finds the track of a message: for each group that reads the message's topic, whether the group has consumed the message.

Invariant: a group counts as having consumed a message only if its committed offset is beyond the message."""

from __future__ import annotations

from dataclasses import dataclass

from mqadmin.admin import AdminClient
from mqadmin.calls import groups, topics
from mqclient.message import StoredMessage

NOT_ONLINE = "CODE:206 DESC:the consumer group[{}] not online"


@dataclass(frozen=True, slots=True)
class Track:
    """One group; the type is CONSUMED, NOT_CONSUME_YET, NOT_ONLINE, PULL, CONSUME_BROADCASTING or UNKNOWN."""

    consumer_group: str
    track_type: str
    exception_desc: str | None = None

    def __str__(self) -> str:
        return (
            f"MessageTrack [consumerGroup={self.consumer_group}, trackType={self.track_type}, "
            f"exceptionDesc={self.exception_desc or 'null'}]"
        )


async def tracks(client: AdminClient, namesrv: str, message: StoredMessage) -> list[Track]:
    """The track of each group, by group name. Raises `AdminError` if a broker does not return the groups of a topic."""
    holders = await topics.holders(client, namesrv, message.topic)
    masters = [holder.address for holder in holders]
    names = {name for master in masters for name in await topics.groups_of(client, master, message.topic)}
    return [await _track(client, masters, message, name) for name in sorted(names)]


async def _track(client: AdminClient, masters: list[str], message: StoredMessage, group: str) -> Track:
    connected = await groups.consumers(client, masters, group)
    if connected is None:
        return Track(group, "NOT_ONLINE", NOT_ONLINE.format(group))
    if connected.consume_type == "CONSUME_ACTIVELY":
        return Track(group, "PULL")
    if connected.message_model == "BROADCASTING":
        return Track(group, "CONSUME_BROADCASTING")
    progress = await groups.progress(client, masters, group, message.topic)
    done = [
        row.consumer_offset for queue, row in progress.offsets.items() if queue.queue_id == message.queue_id
    ]
    if not done:
        return Track(group, "UNKNOWN")
    return Track(group, "CONSUMED" if min(done) > message.queue_offset else "NOT_CONSUME_YET")
