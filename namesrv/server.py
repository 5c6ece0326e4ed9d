"""A name server process: the route table on a port.

Invariant: a broker is registered only while the connection of its last registration is open and its heartbeats are in time.
Each request is answered from one state of the table."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from accesscontrol.port import PortAccess
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.runtime import Runtime
from namesrv import admin
from namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from namesrv.needs import CLUSTER, name_server_table
from namesrv.routes import LIVE_MS_DEFAULT, BrokerRegistration, OneTopicRefused, RouteTable, TableFull
from namesrv.settings import NamesrvSettings
from namesrv.views import route_of
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.registration import body_crc32, read_register_body
from remoting.bodies.routes import KVTable
from remoting.certificateguard import CertificateGuard, named
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import BrokerHeartbeatHeader
from remoting.headers.nameserver import (
    GetRouteInfoHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from remoting.servers import Server, directions

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


UNREGISTERS_ITSELF = (
    "a registered broker is unregistered over the connection that registered it, or from the same host; one that has gone is "
    "forgotten when its connection ends"
)


def host_of(peer: Peer) -> str:
    return peer.remote_address.rpartition(":")[0]


class NamesrvApp:
    """One name server; `port` is its listening port after the start. With `shown_elsewhere` the name server opens no port for
    its metrics: another server of the process shows them together with its own metrics."""

    def __init__(self, settings: NamesrvSettings, runtime: Runtime, *, shown_elsewhere: bool = False) -> None:
        self.settings = settings
        self._shown_elsewhere = shown_elsewhere
        self.table = RouteTable()
        self._clock = runtime.clock
        self._network = runtime.network
        self._kv = KVConfig(runtime.files, settings.kv_config_path.name)
        self._scan_timer: asyncio.TimerHandle | None = None
        self.probes: HttpPages | None = None
        self._refused = RepeatedFailure()
        self._access = PortAccess(
            settings, name_server_table(), server="name server", cluster=CLUSTER, clock=runtime.clock
        )
        self._watch: asyncio.Task[None] | None = None
        self._server = RemotingServer(
            self._router(),
            host=settings.listens_on,
            port=settings.listen_port,
            clock=runtime.clock,
            network=runtime.network,
            limits=Limits(idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000),
            on_disconnect=self._disconnected,
        )

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Open the port and serve. Raises AddressInUse, OSError, KVConfigUnreadable."""
        await self._kv.load()
        await self._server.start()
        self._arm_scan()
        self._watch = asyncio.create_task(self._access.run(), name="watch administrators")
        if self.settings.serves_metrics and not self._shown_elsewhere:
            from mqruntime.probes import serve_probes  # here, because it imports the Prometheus library

            facts = {"port": self.port}
            self.probes = await serve_probes(
                self.settings, self.collectors(), lambda: facts, {}, self._network, self._clock
            )
        logger.info("name server started", extra=fields(address=self.settings.bind_address, port=self.port))

    def collectors(self) -> list[Collector]:
        """The collectors of the name server's metrics. Imports the Prometheus library."""
        from accesscontrol.metrics import AccessCollector
        from namesrv.metrics import NamesrvCollector

        access = [AccessCollector(self._access.audit)] if self.settings.authentication_enabled else []
        return [NamesrvCollector(self.table), *access]

    async def stop(self) -> None:
        """Close every connection."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self.probes is not None:
            await self.probes.stop()
        await self._server.stop()

    async def wait_failed(self) -> BaseException:
        """Never returns: nothing is fatal to a name server."""
        never: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await never

    def _router(self) -> Router:
        router = Router()
        router.on_unserved = lambda peer, request: directions(request.code, Server.NAME_SERVER)
        router.add(RequestCode.REGISTER_BROKER, self._register)
        router.add(RequestCode.UNREGISTER_BROKER, self._unregister)
        router.add(RequestCode.BROKER_HEARTBEAT, self._heartbeat)
        router.add(RequestCode.QUERY_DATA_VERSION, self._query_data_version)
        router.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        admin.add_handlers(router, self.settings, self.table, self._kv)
        of_broker = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT)
        CertificateGuard(self._clock).guard(router, dict.fromkeys(of_broker, named("brokerAddr")))
        self._access.guard(router)
        return router

    def _register(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = RegisterBrokerHeader.from_ext(request.ext)
        body = bytes(request.body or b"")
        if header.body_crc32 and header.body_crc32 != body_crc32(body):
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        wrapper = read_register_body(body, compressed=header.compressed).topic_config_serialize_wrapper
        registration = BrokerRegistration(
            header.cluster_name,
            header.broker_name,
            header.broker_addr,
            header.broker_id,
            header.ha_server_addr,
            wrapper.topic_config_table,
            wrapper.data_version,
            peer,
            LIVE_MS_DEFAULT if header.heartbeat_timeout_millis is None else header.heartbeat_timeout_millis,
            header.enable_acting_master,
            header.zone_name,
        )
        try:
            result = self.table.register(
                registration,
                self._clock.monotonic_ms(),
                only_these_topics=self.settings.delete_topic_with_broker_registration,
            )
        except OneTopicRefused:
            return request.reply(ResponseCode.SYSTEM_ERROR, "register broker failed")
        except TableFull as full:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"register broker failed: {full}")
        order = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return request.reply(
            header=RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr),
            body=KVTable(order).encode()
            if order and self.settings.return_order_topic_config_to_broker
            else None,
        )

    def _unregister(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = UnregisterBrokerHeader.from_ext(request.ext)
        if not self._speaks_for(peer, header.cluster_name, header.broker_addr):
            if self._refused.failed("104", self._clock.monotonic_ms()):
                said = fields(broker=header.broker_addr, sender=peer.remote_address, hint=UNREGISTERS_ITSELF)
                logger.warning("unregistration rejected", extra=said)
            return request.reply(ResponseCode.NO_PERMISSION, UNREGISTERS_ITSELF)
        self.table.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        return request.reply()

    def _speaks_for(self, peer: Peer, cluster: str, broker_addr: str) -> bool:
        """Whether `peer` may send requests for the broker at this address: it is the broker's connection, or connects from the
        same host."""
        live = self.table.live.get((cluster, broker_addr))
        if live is None or live.channel is peer:
            return True
        assert isinstance(live.channel, Peer)
        return host_of(live.channel) == host_of(peer)

    def _refresh(self, peer: Peer, cluster: str, broker_addr: str) -> None:
        if peer.certificate.speaks_for(broker_addr) and self._speaks_for(peer, cluster, broker_addr):
            self.table.refresh(cluster, broker_addr, self._clock.monotonic_ms())

    def _heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = BrokerHeartbeatHeader.from_ext(request.ext)
        self._refresh(peer, header.cluster_name, header.broker_addr)
        return request.reply()

    def _query_data_version(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = UnregisterBrokerHeader.from_ext(request.ext)
        asked = DataVersion.from_request(request.body)
        self._refresh(peer, header.cluster_name, header.broker_addr)
        held = self.table.version_of(header.cluster_name, header.broker_addr)
        return request.reply(
            header=QueryDataVersionResponseHeader(held != asked), body=held.encode() if held else None
        )

    def _route(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        topic = GetRouteInfoHeader.from_ext(request.ext).topic
        order = self._kv.get(ORDER_TOPIC_CONFIG, topic) if self.settings.order_message_enable else None
        route = route_of(self.table, topic, order)
        if route is None:
            return request.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}\n{FAQ}",
            )
        return request.reply(body=route.encode())

    def _disconnected(self, peer: Peer) -> None:
        for address in self.table.close_channel(peer):
            logger.info("broker unregistered", extra=fields(broker=address, why="its connection closed"))

    def _arm_scan(self) -> None:
        period_ms = self.settings.scan_not_active_broker_interval_ms
        self._scan_timer = asyncio.get_running_loop().call_later(period_ms / 1000, self._scan)

    def _scan(self) -> None:
        for channel in self.table.expire(self._clock.monotonic_ms()):
            assert isinstance(channel, Peer)
            logger.info("broker unregistered", extra=fields(connection=channel.remote_address, why="silent"))
            channel.close()
        self._arm_scan()
