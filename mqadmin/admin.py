"""The admin requests, with one coroutine for each. Requests to controllers find the leading controller by themselves.

Invariant: a method returns only successful answers. Anything else raises an `AdminError`, which names the request, the server,
the server's answer and a remedy."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson

from mqadmin.errors import (
    AdminError,
    NobodyReachable,
    NoLeader,
    ReplyMalformed,
    RequestRefused,
    ServerUnreachable,
)
from mqadmin.replies import (
    BrokerEpochs,
    ClusterMembers,
    ControllerMetadata,
    HAStatus,
    MasterInfo,
    SyncStateInfo,
    TopicSettings,
)
from mqruntime import hostports
from mqruntime.clock import Clock
from mqruntime.network import PLAIN, Connector
from remoting import fastjson
from remoting.bodies.body import Body
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.header import Header
from remoting.headers.admin import CreateTopicHeader
from remoting.signing import Signer

BodyT = TypeVar("BodyT", bound=Body)
CALL_TIMEOUT_MS = 3000
AUTO_CREATE_TOPIC = "TBW102"
NOT_SERVED = "this server does not serve that request"


class AdminClient:
    """Makes admin calls over its own connections. Close it after use. Each call waits at most `answer_ms_max`."""

    def __init__(self, clock: Clock, connector: Connector = PLAIN, signer: Signer | None = None) -> None:
        self.clock = clock
        self.answer_ms_max = CALL_TIMEOUT_MS
        self.remoting = RemotingClient(clock=clock, network=connector, signer=signer)

    async def close(self) -> None:
        await self.remoting.close()

    async def controller_metadata(self, controller: str) -> ControllerMetadata:
        """One controller's view of its group: CONTROLLER_GET_METADATA_INFO (1005). Any member answers, leader or not."""
        reply = await self.ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return ControllerMetadata.from_ext(reply.ext)

    async def leader(self, controllers: str) -> str:
        """The address of the leading controller, from the first controller in the `;` list that answers and knows the
        leader."""
        addresses = split_addresses(controllers)
        reasons: list[str] = []
        for address in addresses:
            try:
                metadata = await self.controller_metadata(address)
            except AdminError as error:
                reasons.append(str(error))
                continue
            if metadata.leader_address:
                return metadata.leader_address
            reasons.append(f"{address} knows no leader")
        raise NoLeader(addresses, reasons)

    async def sync_states(self, controllers: str, broker_names: list[str]) -> dict[str, SyncStateInfo]:
        """Master, epochs and members of each named broker set: CONTROLLER_GET_SYNC_STATE_DATA (1006). Unknown names are
        absent."""
        leader = await self.leader(controllers)
        reply = await self.ask(
            leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=orjson.dumps(broker_names)
        )
        return SyncStateInfo.table_from_json(json_body(leader, reply))

    async def elect_master(
        self, controllers: str, cluster: str, broker_name: str, broker_id: int
    ) -> MasterInfo:
        """Make `broker_id` the master of its set: CONTROLLER_ELECT_MASTER (1002). Raises `RequestRefused` with the
        controller's code: 2010 (the set is unknown), 2011 (the broker is the master already) or 2012 (it cannot be elected)."""
        unknown_set = f"no broker set {broker_name} is registered"
        same = f"broker {broker_id} is the master already"
        unfit = (
            f"broker {broker_id} must be alive and in the SyncStateSet of {broker_name}; see getSyncStateSet"
        )
        leader = await self.leader(controllers)
        reply = await self.ask(
            leader,
            RequestCode.CONTROLLER_ELECT_MASTER,
            {
                "clusterName": cluster,
                "brokerName": broker_name,
                "brokerId": str(broker_id),
                "designateElect": "true",
                "invokeTime": str(self.clock.now_ms()),
            },
            advice={
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: unknown_set,
                ResponseCode.CONTROLLER_MASTER_STILL_EXIST: same,
                ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: unfit,
            },
        )
        return MasterInfo.from_reply(reply.ext, json_body(leader, reply))

    async def broker_epochs(self, broker: str) -> BrokerEpochs:
        """The epoch history of one broker: GET_BROKER_EPOCH_CACHE (1007). The last epoch ends where the log ends."""
        return BrokerEpochs.from_json(
            json_body(broker, await self.ask(broker, RequestCode.GET_BROKER_EPOCH_CACHE))
        )

    async def ha_status(self, broker: str) -> HAStatus:
        """Replication as one broker sees it: GET_BROKER_HA_STATUS (907)."""
        return HAStatus.from_json(json_body(broker, await self.ask(broker, RequestCode.GET_BROKER_HA_STATUS)))

    async def runtime_info(self, broker: str) -> dict[str, str]:
        """The key-value table of GET_BROKER_RUNTIME_INFO (28)."""
        body = json_body(broker, await self.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO))
        return {str(key): str(value) for key, value in (body.get("table") or {}).items()}

    async def cluster_info(self, namesrv: str) -> ClusterMembers:
        """All registered brokers, from the first name server in the `;` list that answers GET_BROKER_CLUSTER_INFO (106)."""
        address, reply = await self.ask_any(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterMembers.from_json(json_body(address, reply))

    async def masters(self, namesrv: str, cluster: str) -> list[str]:
        """The addresses of all masters of a cluster. Raises `AdminError` if there is none."""
        sets = (await self.cluster_info(namesrv)).sets_of(cluster)
        masters = [brokers.addresses[0] for brokers in sets if 0 in brokers.addresses]
        if not masters:
            raise AdminError(
                f"{namesrv} knows no master of cluster {cluster}; clusterList shows what is there"
            )
        return masters

    async def topic_route(self, namesrv: str, topic: str) -> dict[str, Any]:
        """The route of a topic, GET_ROUTEINFO_BY_TOPIC (105), as decoded JSON. Raises `RequestRefused` with TOPIC_NOT_EXIST
        (17) for an unknown topic."""
        address, reply = await self.ask_any(
            namesrv,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic},
            advice={ResponseCode.TOPIC_NOT_EXIST: "create the topic with updateTopic, or check its name"},
        )
        return json_body(address, reply)

    async def knows_topic(self, broker: str, topic: str) -> bool:
        """Whether this broker has the topic: GET_TOPIC_CONFIG (351). A slave gets the topic some time after its master."""
        absent = ResponseCode.TOPIC_NOT_EXIST
        asked = self.ask_for(broker, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, absent=absent)
        return await asked is not None

    async def create_topic(self, broker: str, topic: TopicSettings) -> None:
        """Create or change a topic on one broker: UPDATE_AND_CREATE_TOPIC (17). The broker registers the topic with its name
        servers."""
        await self.ask(
            broker,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            CreateTopicHeader(
                topic.name,
                AUTO_CREATE_TOPIC,
                topic.read_queues,
                topic.write_queues,
                topic.perm,
                topic_sys_flag=topic.sys_flag,
                order=topic.order,
                attributes=",".join(
                    f"{key}={value}" if value else key for key, value in topic.attributes.items()
                ),
            ),
        )

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Header | dict[str, str] | None = None,
        *,
        body: bytes | None = None,
        advice: dict[ResponseCode, str] | None = None,
        wait_ms: int | None = None,
    ) -> RemotingCommand:
        """The successful answer of the server at `address`. The call waits for it at most `wait_ms`, by default
        `answer_ms_max`.

        Raises: `ServerUnreachable`, or `RequestRefused` with the `advice` for its code."""
        check_address(address)
        try:
            reply = await self.remoting.call(
                address, RemotingCommand.request(code, ext, body), wait_ms or self.answer_ms_max
            )
        except RemotingError as error:
            raise ServerUnreachable(address, code.name, error.why) from error
        if reply.code != ResponseCode.SUCCESS:
            known = {ResponseCode.REQUEST_CODE_NOT_SUPPORTED: NOT_SERVED, **(advice or {})}
            hint = next((text for code, text in known.items() if code == reply.code), "")
            raise RequestRefused(address, code.name, reply.code, reply.remark, hint)
        return reply

    async def ask_for(
        self, address: str, code: RequestCode, ext: Header | dict[str, str], *, absent: ResponseCode
    ) -> RemotingCommand | None:
        """Do as `ask`, but return None if the server answers with the code `absent`."""
        try:
            return await self.ask(address, code, ext)
        except RequestRefused as error:
            if error.code == absent:
                return None
            raise

    async def ask_any(
        self,
        addresses: str,
        code: RequestCode,
        ext: Header | dict[str, str] | None = None,
        *,
        advice: dict[ResponseCode, str] | None = None,
    ) -> tuple[str, RemotingCommand]:
        """The first server in the `;` list that answers, and its answer. Raises as `ask` does, or `NobodyReachable` if none of
        several servers answers."""
        unreachable: list[ServerUnreachable] = []
        for address in split_addresses(addresses):
            try:
                return address, await self.ask(address, code, ext, advice=advice)
            except ServerUnreachable as error:
                unreachable.append(error)
        raise unreachable[0] if len(unreachable) == 1 else NobodyReachable(code.name, unreachable)


def split_addresses(text: str) -> list[str]:
    """The `host:port` entries of a `;` list. Raises `AdminError` for an empty list or an entry without a
    port."""
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    if not addresses:
        raise AdminError("an empty address list was given; addresses look like 127.0.0.1:9876;127.0.0.1:9877")
    for address in addresses:
        check_address(address)
    return addresses


def check_address(address: str) -> None:
    """Raise `AdminError` unless the text has the form HOST:PORT."""
    try:
        hostports.check_address(address)
    except ValueError as error:
        raise AdminError(str(error)) from None


def body_of(kind: type[BodyT], address: str, reply: RemotingCommand) -> BodyT:
    """The typed body of an answer. Raises `ReplyMalformed`."""
    try:
        return kind.decode(reply.body)
    except BodyError as error:
        raise ReplyMalformed(f"{address} answered with a body that is no {kind.__name__}: {error}") from error


def json_body(address: str, reply: RemotingCommand) -> dict[str, Any]:
    """The JSON object in the body of an answer. Raises `ReplyMalformed`."""
    try:
        body = fastjson.loads(reply.body or b"{}")
    except fastjson.FastJsonError as error:
        raise ReplyMalformed(f"{address} answered with a body that is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise ReplyMalformed(f"{address} answered with JSON that is no object")
    return body
