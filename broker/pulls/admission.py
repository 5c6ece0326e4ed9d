"""Checks of pulls, and the read for an accepted pull.

Invariant: of several faults only one is reported. The order is: role, group, topic, queue, subscription."""

from __future__ import annotations

from typing import Protocol

from broker.clients.groups import ConsumerGroups, Subscription
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.refusals import REJECTED, ClientRefused, no_lite_topic
from broker.clients.subscription import is_tag_type, not_supported, property_filter, tag_filter
from broker.pulls.request import PullRequest
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from filters.errors import FilterError
from messagestore.messages import PropertyFilter, TagFilter
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import PERM_READ
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, PullMessageHeader
from remoting.peer import Peer

BROADCASTING = "BROADCASTING"
NO_FILTER = "The broker's consumer filter data is not exist!Your expression may be wrong!"


class PullLimits(Protocol):
    """The settings that limit a pull."""

    broker_permission: int
    enable_property_filter: bool
    lite_pull_message_enable: bool
    max_transfer_bytes: int
    max_transfer_count: int


class Reading(Protocol):
    """Whether this broker may answer readers now."""

    @property
    def serves_reads(self) -> bool: ...


class PullAdmission:
    """The checks, by the role, the tables and the clients' subscriptions."""

    def __init__(
        self,
        *,
        reading: Reading,
        topics: Topics,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        provisional: ProvisionalSubscriptions,
        limits: PullLimits,
    ) -> None:
        self._reading = reading
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._provisional = provisional
        self._limits = limits

    @property
    def serves_reads(self) -> bool:
        return self._reading.serves_reads

    def request(
        self, peer: Peer, header: PullMessageHeader, command: RemotingCommand, arrived_ms: int
    ) -> PullRequest:
        """The read for a pull that arrived over `peer` at `arrived_ms` (monotonic). Raises ClientRefused."""
        if not self._reading.serves_reads:
            raise ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if header.lite_topic:
            raise ClientRefused(ResponseCode.INVALID_PARAMETER, no_lite_topic(header.lite_topic))
        limits = self._limits
        group = self._permitted(command.code, header.consumer_group, header.topic, header.queue_id)
        if not group.consume_broadcast_enable and not header.sys_flag & SYS_FLAG_SUBSCRIPTION:
            self._check_shares_queues(group.group_name)
        count = min(max(header.max_msg_nums, 1), limits.max_transfer_count)
        size = limits.max_transfer_bytes
        if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
            size = min(size, header.max_msg_bytes)
        tags, matching, characters = self._filter(peer, header)
        return PullRequest(
            command,
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.queue_offset,
            count,
            size,
            tags,
            arrived_ms,
            matching=matching,
            characters=characters,
        )

    def check_still_permitted(self, request: PullRequest) -> None:
        """Check a pull again after it waited, because its topic or group may have been closed or deleted. Raises
        ClientRefused."""
        self._permitted(request.command.code, request.group, request.topic, request.queue_id)

    def _check_shares_queues(self, group_name: str) -> None:
        """Reject broadcast groups of clients whose pulls have no subscriptions, as upstream does: such clients do not know each
        other from heartbeats."""
        connected = self._consumers.find(group_name)
        if connected is not None and connected.message_model == BROADCASTING:
            why = f"the consumer group[{group_name}] can not consume by broadcast way"
            raise ClientRefused(ResponseCode.NO_PERMISSION, why)

    def _permitted(
        self, code: int, group_name: str, topic_name: str, queue_id: int
    ) -> SubscriptionGroupConfig:
        limits = self._limits
        if not limits.broker_permission & PERM_READ:
            raise ClientRefused(ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden")
        if code == RequestCode.LITE_PULL_MESSAGE and not limits.lite_pull_message_enable:
            raise ClientRefused(ResponseCode.NO_PERMISSION, "lite pull is disabled on this broker")
        group = self._groups.find_or_create(group_name)
        if group is None:
            raise ClientRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist"
            )
        if not group.consume_enable:
            raise ClientRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        topic = self._topics.find(topic_name)
        if topic is None:
            raise ClientRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please!"
            )
        if not topic.perm & PERM_READ:
            raise ClientRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden"
            )
        if not 0 <= queue_id < topic.read_queue_nums:
            raise ClientRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group

    def _filter(
        self, peer: Peer, header: PullMessageHeader
    ) -> tuple[TagFilter | None, PropertyFilter | None, int]:
        """The filter, and the characters of its text if it may be kept for this pull alone."""
        if header.sys_flag & SYS_FLAG_SUBSCRIPTION:
            characters = len(header.subscription or "")
            try:
                if is_tag_type(header.expression_type):
                    return tag_filter(header.subscription, header.expression_type), None, characters
                self._check_taken(header.expression_type)
                return None, property_filter(header.subscription, header.expression_type), characters
            except (HeaderError, FilterError) as error:
                raise ClientRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        subscription = self._subscription(peer, header)
        if subscription is None:
            raise ClientRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if subscription.version < header.sub_version:
            raise ClientRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if is_tag_type(subscription.data.expression_type):
            return subscription.filter, None, 0
        matching = subscription.matching()
        if matching is None:
            raise ClientRefused(ResponseCode.FILTER_DATA_NOT_EXIST, NO_FILTER)
        self._check_taken(subscription.data.expression_type)
        return None, matching, len(subscription.data.sub_string)

    def _subscription(self, peer: Peer, header: PullMessageHeader) -> Subscription | None:
        """The group's subscription from heartbeats; if it is older than the pull's, the client's provisional one if that is not
        older. None if there is none."""
        known = self._consumers.subscription(header.consumer_group, header.topic)
        if known is not None and known.version >= header.sub_version:
            return known
        provisional = self._provisional.find(peer, header.consumer_group, header.topic)
        return (
            known
            if provisional is None or (known is not None and known.version > provisional.version)
            else provisional
        )

    def _check_taken(self, expression_type: str | None) -> None:
        if not self._limits.enable_property_filter:
            raise ClientRefused(ResponseCode.SYSTEM_ERROR, not_supported(expression_type))
