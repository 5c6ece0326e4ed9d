"""What each request of a broker's ports needs. Upstream: DefaultAuthorizationContextBuilder and the annotations of its headers.

Upstream checks nothing for some 60 codes, among them those that change settings, store replies and read any topic (361). Here
every code has a row, or needs to update the cluster. The topic of a retry topic is its group: who consumes for a group may use
the group's retry topic, and no other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from accesscontrol.needs import ClusterRows, NeedsOf, Row, Table, named
from accesscontrol.policies import Action, Kind, Need
from messagestore.systemtopics import HALF_TOPIC, RETRY_PREFIX, holds_all_users_messages
from remoting.bodies.body import LIST_BYTES_MAX
from remoting.bodies.groups import DeleteGroupsBody, SubscriptionGroupConfig, SubscriptionGroupList
from remoting.bodies.heartbeats import CheckClientConfigBody, HeartbeatData
from remoting.bodies.queues import LockQueuesBody, QueryAssignmentBody
from remoting.bodies.routes import TopicList
from remoting.bodies.topics import TopicConfigList
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.headers.send import LONG_NAMED

PUB, SUB, CREATE, UPDATE, DELETE, GET = (
    (action,) for action in (Action.PUB, Action.SUB, Action.CREATE, Action.UPDATE, Action.DELETE, Action.GET)
)
TOPICS_MAX = 2_000
"""Limit of the topics that a header names. Each takes up to 10 us."""
SUB_OR_GET, SUB_OR_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)


def topic_need(topic: str, actions: tuple[Action, ...]) -> Need:
    """The need of a request that names `topic`. A retry topic belongs to its group, whose members also write to it. A right for
    all topics includes none that holds other topics' messages."""
    if topic.startswith(RETRY_PREFIX):
        return Need(Kind.GROUP, topic.removeprefix(RETRY_PREFIX), SUB if actions == PUB else actions)
    return Need(Kind.TOPIC, topic, actions, holds_all_users_messages(topic))


def send_need(topic: str) -> Need:
    return topic_need(topic, PUB)


def group_need(group: str, actions: tuple[Action, ...]) -> Need:
    return Need(Kind.GROUP, group, actions)


def sent_to(command: RemotingCommand) -> Iterator[Need]:
    """Sends and replies: the topic, under the name that its code has for it."""
    yield topic_need(named(command, "topic" if command.code in LONG_NAMED else "b"), PUB)


def topic_and_group(
    actions: tuple[Action, ...], topic: str | None = "topic", group: str | None = "consumerGroup"
) -> NeedsOf:
    """Requests that name a topic and a group in these ext fields. None: the request has no such field."""

    def needs(command: RemotingCommand) -> Iterator[Need]:
        if topic is not None:
            yield topic_need(named(command, topic), actions)
        if group is not None:
            yield group_need(named(command, group), actions)

    return needs


def of_topic(actions: tuple[Action, ...]) -> NeedsOf:
    return topic_and_group(actions, group=None)


def of_group(actions: tuple[Action, ...], field: str = "consumerGroup") -> NeedsOf:
    return topic_and_group(actions, topic=None, group=field)


def if_named(
    field: str, need: Callable[[str, tuple[Action, ...]], Need], actions: tuple[Action, ...]
) -> NeedsOf:
    """Requests in which the field is optional."""

    def needs(command: RemotingCommand) -> Iterator[Need]:
        if name := command.ext.get(field):
            yield need(name, actions)

    return needs


def _ended_transaction(command: RemotingCommand) -> Iterator[Need]:
    """The handler asks for the topic of the half. Java's clients answer a check with the topic of all halves."""
    topic = command.ext.get("topic")
    if topic and topic != HALF_TOPIC:
        yield topic_need(topic, PUB)


def both(*parts: NeedsOf) -> NeedsOf:
    return lambda command: (need for part in parts for need in part(command))


def _heartbeat(command: RemotingCommand) -> Iterator[Need]:
    for consumer in HeartbeatData.from_request(command.body).consumer_data_set:
        yield from consumer_needs(
            consumer.group_name, (each.topic for each in consumer.subscription_data_set)
        )


def consumer_needs(group: str, topics: Iterable[str]) -> Iterator[Need]:
    """What a consumer of this group needs to read these topics."""
    yield group_need(group, SUB)
    for topic in topics:
        yield topic_need(topic, SUB)


def _locked_queues(command: RemotingCommand) -> Iterator[Need]:
    body = LockQueuesBody.from_request(command.body)
    yield group_need(body.consumer_group, SUB)
    for topic in {queue.topic for queue in body.mq_set}:
        yield topic_need(topic, SUB)


def _checked_subscription(command: RemotingCommand) -> Iterator[Need]:
    body = CheckClientConfigBody.from_request(command.body)
    yield group_need(body.group, SUB)
    yield topic_need(body.subscription_data.topic, SUB)


def _assignment(command: RemotingCommand) -> Iterator[Need]:
    body = QueryAssignmentBody.from_request(command.body)
    yield group_need(body.consumer_group, SUB)
    yield topic_need(body.topic, SUB)


def _consume_stats(command: RemotingCommand) -> Iterator[Need]:
    yield group_need(named(command, "consumerGroup"), GET)
    named_topics = command.ext.get("topicList") or ""
    if named_topics.count(";") > TOPICS_MAX:
        raise HeaderError("topicList", named_topics, f"a request names {TOPICS_MAX} topics at most")
    topics = named_topics.split(";")
    for topic in {*topics, command.ext.get("topic") or ""} - {""}:
        yield topic_need(topic, GET)


def _cloned_offsets(command: RemotingCommand) -> Iterator[Need]:
    yield group_need(named(command, "srcGroup"), GET)
    yield group_need(named(command, "destGroup"), UPDATE)


def _topics(command: RemotingCommand) -> Iterable[Need]:
    body = TopicConfigList.from_request(command.body, bytes_max=LIST_BYTES_MAX)
    return [topic_need(each.topic_name, CREATE) for each in body.topic_config_list]


def _group(command: RemotingCommand) -> Iterable[Need]:
    return [group_need(SubscriptionGroupConfig.from_request(command.body).group_name, CREATE)]


def _groups(command: RemotingCommand) -> Iterable[Need]:
    body = SubscriptionGroupList.from_request(command.body, bytes_max=LIST_BYTES_MAX)
    return [group_need(each.group_name, CREATE) for each in body.group_config_list]


def _deleted_topics(command: RemotingCommand) -> Iterable[Need]:
    names = TopicList.from_request(command.body).topic_list
    return [topic_need(name, DELETE) for name in names]


def _deleted_groups(command: RemotingCommand) -> Iterable[Need]:
    names = DeleteGroupsBody.from_request(command.body).group_name_list
    return [group_need(name, DELETE) for name in names]


def _writes(needs: NeedsOf) -> Row:
    """Clients may change something with it all the time, so it is not written to the audit log."""
    return Row(needs, may_be_open=False)


def _changes(needs: NeedsOf, at_least: Need | None = None) -> Row:
    return Row(needs, is_administrative=True, may_be_open=False, at_least=at_least)


def broker_table(cluster: str) -> Table:
    """The rows of a broker of this cluster."""
    rows = ClusterRows(cluster)
    return {
        # producers and consumers
        **dict.fromkeys((Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE), _writes(sent_to)),
        **dict.fromkeys((Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2), _writes(sent_to)),
        Code.END_TRANSACTION: _writes(_ended_transaction),
        **dict.fromkeys((Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE), _writes(topic_and_group(SUB))),  # commits offsets
        Code.QUERY_MESSAGE: Row(of_topic(SUB_OR_GET)),
        Code.VIEW_MESSAGE_BY_ID: Row(if_named("topic", topic_need, GET)),  # its handler asks for the topic of the message
        Code.QUERY_CONSUMER_OFFSET: Row(topic_and_group(SUB_OR_GET)),
        Code.UPDATE_CONSUMER_OFFSET: _writes(topic_and_group(SUB_OR_UPDATE)),
        **dict.fromkeys(
            (Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME),
            Row(of_topic(SUB_OR_GET)),
        ),
        Code.HEART_BEAT: _writes(_heartbeat),
        Code.UNREGISTER_CLIENT: _writes(if_named("consumerGroup", group_need, SUB)),
        Code.CONSUMER_SEND_MSG_BACK: _writes(of_group(SUB, "group")),  # its handler asks for the topic of the message
        Code.GET_CONSUMER_LIST_BY_GROUP: Row(of_group(SUB_OR_GET)),
        **dict.fromkeys((Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ), _writes(_locked_queues)),
        Code.CHECK_CLIENT_CONFIG: Row(_checked_subscription),
        Code.QUERY_ASSIGNMENT: Row(_assignment),
        # topics and groups
        Code.UPDATE_AND_CREATE_TOPIC: _changes(of_topic(CREATE)),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: _changes(_topics, topic_need("", CREATE)),
        Code.DELETE_TOPIC_IN_BROKER: _changes(of_topic(DELETE)),
        Code.DELETE_TOPIC_IN_BROKER_LIST: _changes(_deleted_topics, topic_need("", DELETE)),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _changes(_group),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _changes(_groups, group_need("", CREATE)),
        Code.DELETE_SUBSCRIPTIONGROUP: _changes(of_group(DELETE, "groupName")),
        Code.DELETE_SUBSCRIPTION_GROUP_LIST: _changes(_deleted_groups, group_need("", DELETE)),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: _changes(topic_and_group(UPDATE, group="group")),
        Code.CLONE_GROUP_OFFSET: _changes(both(_cloned_offsets, if_named("topic", topic_need, UPDATE))),  # its handler: of each
        **dict.fromkeys(
            (Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.GET_TOPIC_CONFIG), Row(of_topic(GET))
        ),
        Code.QUERY_CONSUME_QUEUE: Row(both(of_topic(GET), if_named("consumerGroup", group_need, GET))),
        **dict.fromkeys(
            (Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_RUNNING_INFO), Row(of_group(GET))
        ),
        **dict.fromkeys(
            (Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG), Row(of_group(GET, "group"))
        ),
        Code.GET_CONSUME_STATS: Row(_consume_stats),
        **dict.fromkeys(
            (
                Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.QUERY_CONSUME_TIME_SPAN, Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
            ),
            Row(topic_and_group(GET, group="group")),
        ),
        Code.CONSUME_MESSAGE_DIRECTLY: _writes(both(of_group(SUB), if_named("topic", topic_need, SUB))),
        # the whole cluster
        **dict.fromkeys(
            (
                Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_PRODUCER_CONNECTION_LIST,
                Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS,
                Code.GET_ALL_PRODUCER_INFO, Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
            ),
            rows.reads,
        ),
        **dict.fromkeys(
            (
                Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.RESYNC_BROKER,
                Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER,
                Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
            ),
            rows.changes,
        ),
        # requests for controllers: in Raft mode the answer names the command to use
        **dict.fromkeys(
            (
                Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_ELECT_MASTER, Code.CONTROLLER_REGISTER_BROKER,
                Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
                Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID,
            ),
            rows.reads,
        ),
        # other servers
        **dict.fromkeys(
            (
                Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET,
                Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.EXCHANGE_BROKER_HA_INFO,
                Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE,
            ),
            rows.read_by_servers,
        ),
        **dict.fromkeys(
            (Code.NOTIFY_BROKER_ROLE_CHANGED, Code.COPY_TABLES, Code.HAND_OVER, Code.AWAIT_MASTER), rows.of_servers
        ),
    }  # fmt: skip
