"""Moves of a consumer group to other offsets (INVOKE_BROKER_TO_RESET_OFFSET, 222), or to those of another group
(CLONE_GROUP_OFFSET, 314).

Invariant: an administrator gets success once the move is on this broker's disk and every member of the SyncStateSet has it.
From then on the move of a queue ends only when the group continues at the new offset, or has got this offset as the answer to a
few pulls (broker.tables.offsetresets). Consumers take their offsets from masters, so only masters move groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from accesscontrol.guard import Access
from broker.access.needs import UPDATE, topic_need
from broker.clients.groups import ConsumerGroup, ConsumerGroups, GroupClient
from broker.neighbours.agreement import MetadataReplication
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.tables.consumeroffsets import NO_ROOM, TRANSACTIONS_GROUP
from broker.tables.offsetlimits import Key
from broker.tables.subscriptiongroups import NAME_RULE, is_group_name
from broker.tables.tables import Tables
from messagestore.store.brokerstore import BrokerStore
from mqruntime.slices import whole
from remoting.bodies.queues import MessageQueue, QueueOffset, ResetOffsetBody, ResetOffsetListBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CloneGroupOffsetHeader
from remoting.headers.offsets import ResetOffsetHeader
from remoting.peer import Peer
from remoting.router import Router

OnMoved = Callable[[str, str, Iterable[int]], None]
"""Called with group, topic and queue ids of a move."""
RESETS_SINCE = 28
"""3.0.7, the first version of clients that know RESET_CONSUMER_CLIENT_OFFSET (220)."""
BROKERS_OWN = f"{TRANSACTIONS_GROUP} is the broker's own: halves below its offset would count as ended"
TOO_MANY = "too many groups that were moved have not continued since; delete unused groups"


class ResetRequests:
    """The handlers. `on_moved` is called with each move."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: Membership,
        store: BrokerStore,
        tables: Tables,
        consumers: ConsumerGroups,
        agreement: MetadataReplication,
        on_moved: OnMoved,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._role = role
        self._store = store
        self._tables = tables
        self._consumers = consumers
        self._agreement = agreement
        self._on_moved = on_moved

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._reset)
        router.add(RequestCode.CLONE_GROUP_OFFSET, self._clone)

    async def _reset(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ResetOffsetHeader.from_ext(command.ext)
        refusal = self._refusal(command, header)
        if refusal is not None:
            return refusal
        topic = self._tables.topics.find(header.topic)
        assert topic is not None, "a missing topic is rejected before"
        queues = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        wanted = {queue_id: await self._target(header, queue_id) for queue_id in queues}
        for queue_id, offset in wanted.items():
            first = self._store.min_queue_offset(header.topic, queue_id)
            end = self._store.max_queue_offset(header.topic, queue_id)
            if not first <= offset <= end:
                return command.reply(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{first}-{end}]",
                )
        notified: Collection[GroupClient] = ()
        if not self._settings.use_server_side_reset_offset:
            group = self._consumers.find(header.group)
            if (why := _cannot_be_notified(command, header, group)) is not None:
                return why
            notified = group.clients.values() if group is not None else ()
            if not header.is_force:
                wanted = self._backwards_only(header, wanted)
        moves = {(header.group, header.topic, queue_id): offset for queue_id, offset in wanted.items()}
        if (no_room := self._no_room(command, moves)) is not None:
            return no_room
        what = f"group {header.group} was moved in {len(wanted)} queues of {header.topic}"
        answer = await self._agreement.change(command, what, lambda: self._tables.offsets.reset(moves))
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            self._on_moved(header.group, header.topic, wanted)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        name = self._settings.broker_name
        table = {MessageQueue(header.topic, name, queue_id): offset for queue_id, offset in wanted.items()}
        for client in notified:
            client.peer.one_way(_news(client, header, table))
        return command.reply(body=ResetOffsetBody(table).encode())

    async def _clone(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Copy offsets of a group. Topics that the source group does not read any more are left out, unless it is offline."""
        header = CloneGroupOffsetHeader.from_ext(command.ext)
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SYSTEM_ERROR, "Can not clone offsets in slave broker")
        if header.dest_group == TRANSACTIONS_GROUP:
            return command.reply(ResponseCode.NO_PERMISSION, BROKERS_OWN)
        if not is_group_name(header.dest_group):
            return command.reply(ResponseCode.INVALID_PARAMETER, NAME_RULE)
        offsets, source, group = (
            self._tables.offsets,
            self._consumers.find(header.src_group),
            header.dest_group,
        )
        moves: dict[Key, int] = {}
        for name in [header.topic] if header.topic else whole(offsets.topics_of(header.src_group)):
            topic = self._tables.topics.find(name)
            left = source is not None and name not in source.subscriptions and not header.offline
            for queue_id in range(topic.read_queue_nums if topic is not None and not left else 0):
                offset = offsets.find(header.src_group, name, queue_id)
                if offset is not None:
                    moves[group, name, queue_id] = offset
        for name in dict.fromkeys(topic for _, topic, _ in moves):  # the request need not name them
            if (why := self._access.why_not(peer, command, topic_need(name, UPDATE))) is not None:
                return command.reply(ResponseCode.NO_PERMISSION, why)
        if (no_room := self._no_room(command, moves)) is not None:
            return no_room
        what = f"group {group} was moved to the offsets of {header.src_group}, in {len(moves)} queues"
        answer = await self._agreement.change(command, what, lambda: offsets.reset(moves))
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            for _, name, queue_id in moves:
                self._on_moved(group, name, [queue_id])
        return answer

    def _no_room(self, command: RemotingCommand, moves: Mapping[Key, int]) -> RemotingCommand | None:
        """The rejection of moves for which there is no room; None if there is room. The room is limited because slaves copy
        moves and commits."""
        if not self._tables.resets.takes(len(moves)):
            return command.reply(ResponseCode.SYSTEM_ERROR, TOO_MANY)
        if not self._tables.offsets.has_room_for(moves):
            return command.reply(ResponseCode.SYSTEM_ERROR, NO_ROOM)
        return None

    def _refusal(self, command: RemotingCommand, header: ResetOffsetHeader) -> RemotingCommand | None:
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        if header.group == TRANSACTIONS_GROUP:
            return command.reply(ResponseCode.NO_PERMISSION, BROKERS_OWN)
        topic = self._tables.topics.find(header.topic)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._tables.groups.find(header.group) is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        if header.queue_id >= topic.read_queue_nums:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                f"queue {header.queue_id} is not one of the {topic.read_queue_nums} of {header.topic}",
            )
        return None

    async def _target(self, header: ResetOffsetHeader, queue_id: int) -> int:
        """The new offset of a queue: the given offset, the queue's end, or the offset of the first message stored from a time
        on."""
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            return header.offset
        if header.timestamp < 0:
            return self._store.max_queue_offset(header.topic, queue_id)
        return await self._store.offset_by_time(header.topic, queue_id, header.timestamp)

    def _backwards_only(self, header: ResetOffsetHeader, wanted: Mapping[int, int]) -> dict[int, int]:
        """The moves without those that skip messages: such moves need force."""
        committed = {
            queue_id: self._tables.offsets.find(header.group, header.topic, queue_id) for queue_id in wanted
        }
        return {
            queue_id: offset if (at := committed[queue_id]) is None else min(offset, at)
            for queue_id, offset in wanted.items()
        }


def _cannot_be_notified(
    command: RemotingCommand, header: ResetOffsetHeader, group: ConsumerGroup | None
) -> RemotingCommand | None:
    """The answer if new offsets cannot be sent to the consumers of a group; None if they can."""
    if group is None:
        return command.reply(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}",
        )
    oldest = min(client.version for client in group.clients.values())
    if oldest < RESETS_SINCE:
        return command.reply(
            ResponseCode.SYSTEM_ERROR, f"the client does not support this feature. version={oldest}"
        )
    return None


def _news(client: GroupClient, header: ResetOffsetHeader, table: dict[MessageQueue, int]) -> RemotingCommand:
    """The notification of a consumer. Consumers of the C++ library read a list."""
    moved = ResetOffsetHeader(header.topic, header.group, header.timestamp)
    if client.language == "CPP":
        rows = [QueueOffset(each.topic, each.broker_name, each.queue_id, at) for each, at in table.items()]
        body = ResetOffsetListBody(rows).encode()
    else:
        body = ResetOffsetBody(table).encode()
    return RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, moved, body)
