"""Requests of administrators to the name server, for its key-value store, lists, permissions and settings.

Invariant: a change of settings is applied as a whole or not at all, and never moves a file.
"""

from __future__ import annotations

from collections.abc import Callable

from mqruntime.changedsettings import SettingsRefused, change
from mqruntime.peercertificate import broker_role
from mqruntime.slices import Steps
from namesrv import views
from namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig, KVConfigFull
from namesrv.routes import RouteTable, TableFull
from namesrv.settings import NamesrvSettings
from remoting.bodies.routes import KVTable, TopicRouteData, why_no_order_conf
from remoting.bulk import BulkAnswers
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import TopicHeader
from remoting.headers.nameserver import (
    AddWritePermResponseHeader,
    BrokerMemberGroupHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicInNamesrvHeader,
    GetKVConfigResponseHeader,
    KVConfigHeader,
    NamespaceHeader,
    PutKVConfigHeader,
    WipeWritePermResponseHeader,
)
from remoting.peer import Peer
from remoting.router import Handler, Router

FIXED_KEYS = frozenset(
    {
        "bindAddress", "configBlackList", "configStorePath", "enableControllerInNamesrv", "kvConfigPath", "listenPort",
        "rocketmqHome",
    }
)  # fmt: skip


CHANGEABLE = frozenset(
    {
        "deleteTopicWithBrokerRegistration", "enableAllTopicList", "orderMessageEnable", "returnOrderTopicConfigToBroker",
        "scanNotActiveBrokerInterval",
    }
)  # fmt: skip
"""The settings that can be changed at run time: they are read at each use."""


def add_handlers(router: Router, settings: NamesrvSettings, table: RouteTable, kv: KVConfig) -> None:
    """Add the handlers of all administrative requests."""
    handlers = AdminHandlers(settings, table, kv)
    lists: dict[RequestCode, Callable[[RouteTable], Steps[bytes]]] = {
        RequestCode.GET_BROKER_CLUSTER_INFO: views.cluster_info,
        RequestCode.GET_UNIT_TOPIC_LIST: views.unit_topics,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: views.unit_sub_topics,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: views.unit_sub_ununit_topics,
    }
    for code, view in lists.items():
        router.add(code, handlers.shown(view))
    router.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, handlers.system_topics)
    router.add(RequestCode.PUT_KV_CONFIG, handlers.put_kv)
    router.add(RequestCode.GET_KV_CONFIG, handlers.get_kv)
    router.add(RequestCode.DELETE_KV_CONFIG, handlers.delete_kv)
    router.add(RequestCode.GET_KVLIST_BY_NAMESPACE, handlers.list_kv)
    router.add(RequestCode.GET_BROKER_MEMBER_GROUP, handlers.member_group)
    router.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, handlers.all_topics)
    router.add(RequestCode.GET_TOPICS_BY_CLUSTER, handlers.topics_of_cluster)
    router.add(RequestCode.WIPE_WRITE_PERM_OF_BROKER, handlers.wipe_write_permission)
    router.add(RequestCode.ADD_WRITE_PERM_OF_BROKER, handlers.add_write_permission)
    router.add(RequestCode.DELETE_TOPIC_IN_NAMESRV, handlers.delete_topic)
    router.add(RequestCode.REGISTER_TOPIC_IN_NAMESRV, handlers.register_topic)
    router.add(RequestCode.UPDATE_NAMESRV_CONFIG, handlers.update_settings)
    router.add(RequestCode.GET_NAMESRV_CONFIG, handlers.show_settings)


class AdminHandlers:
    """The handlers of administrative requests."""

    def __init__(self, settings: NamesrvSettings, table: RouteTable, kv: KVConfig) -> None:
        self._settings = settings
        self._table = table
        self._kv = kv
        self._bulk = BulkAnswers()

    def shown(self, view: Callable[[RouteTable], Steps[bytes]]) -> Handler:
        """A handler whose answer is the complete body from `view`."""

        async def show(peer: Peer, request: RemotingCommand) -> None:
            await self._bulk.answer(peer, request, request.code, lambda: _alone(view(self._table)))

        return show

    def system_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=views.system_topics(self._table).encode())

    async def put_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = PutKVConfigHeader.from_ext(request.ext)
        why = why_no_order_conf(header.value) if header.namespace == ORDER_TOPIC_CONFIG else None
        if why is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{header.value[:100]!r}: {why}")
        try:
            await self._kv.put(header.namespace, header.key, header.value)
        except KVConfigFull as full:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(full))
        return request.reply()

    async def delete_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = KVConfigHeader.from_ext(request.ext)
        await self._kv.delete(header.namespace, header.key)
        return request.reply()

    def get_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = KVConfigHeader.from_ext(request.ext)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.reply(header=GetKVConfigResponseHeader(value))

    def list_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        namespace = NamespaceHeader.from_ext(request.ext).namespace
        values = self._kv.namespace(namespace)
        if not values:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.reply(body=KVTable(values).encode())

    def member_group(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = BrokerMemberGroupHeader.from_ext(request.ext)
        return request.reply(
            body=views.member_group(self._table, header.cluster_name, header.broker_name).encode()
        )

    async def all_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        if not self._settings.enable_all_topic_list:
            return request.reply(ResponseCode.SYSTEM_ERROR, "disable")
        await self._bulk.answer(peer, request, request.code, lambda: _alone(views.all_topics(self._table)))
        return None

    async def topics_of_cluster(self, peer: Peer, request: RemotingCommand) -> None:
        cluster, table = ClusterHeader.from_ext(request.ext).cluster, self._table
        key = request.code, cluster
        await self._bulk.answer(peer, request, key, lambda: _alone(views.topics_of_cluster(table, cluster)))

    def wipe_write_permission(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        name = BrokerNameHeader.from_ext(request.ext).broker_name
        count = self._table.set_write_permission(name, allowed=False)
        return request.reply(header=WipeWritePermResponseHeader(count))

    def add_write_permission(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        name = BrokerNameHeader.from_ext(request.ext).broker_name
        count = self._table.set_write_permission(name, allowed=True)
        return request.reply(header=AddWritePermResponseHeader(count))

    def delete_topic(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = DeleteTopicInNamesrvHeader.from_ext(request.ext)
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return request.reply()

    def register_topic(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """A certificate that is for brokers of some sets only changes no route of others."""
        topic = TopicHeader.from_ext(request.ext).topic
        if request.body:
            queues = TopicRouteData.from_request(request.body).queue_datas
            for queue in queues:
                if not peer.certificate.may_be(broker_role(queue.broker_name)):
                    remark = f"only a broker of {queue.broker_name} may ask this, and your certificate is not for it"
                    return request.reply(ResponseCode.NO_PERMISSION, remark)
            try:
                self._table.add_topic(topic, queues)
            except TableFull as full:
                return request.reply(ResponseCode.SYSTEM_ERROR, f"topic {topic[:255]} not registered: {full}")
        return request.reply()

    def show_settings(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=self._settings.effective().encode())

    def update_settings(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG (318): change `CHANGEABLE` keys for the life of the process. Unknown keys are ignored, as in
        upstream."""
        try:
            change(self._settings, request.body, CHANGEABLE, black_list=FIXED_KEYS)
        except SettingsRefused as refused:
            code = ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR
            return request.reply(code, str(refused))
        return request.reply()


def _alone(steps: Steps[bytes]) -> Steps[tuple[bytes, None]]:
    """The body that `steps` returns, without a header."""
    body = yield from steps
    return body, None
