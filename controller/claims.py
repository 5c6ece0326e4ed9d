"""The brokers in whose name requests come to a controller: by the address in the request, or by the registered address of the
id in it."""

from __future__ import annotations

from collections.abc import Mapping

from controller.state import ReplicasState
from remoting.certificateguard import SOME_SERVER, Claim, named
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.header import read_bool
from remoting.wirefields import I64_RANGE, parse_integer


def claims_of(state: ReplicasState) -> Mapping[int, Claim]:
    """By request code. An operator's election names the broker that is to lead, so anybody may ask for it."""

    def registered(id_field: str) -> Claim:
        def address(request: RemotingCommand) -> str | None:
            replicas = state.replicas.get(request.ext.get("brokerName", ""))
            broker_id = parse_integer(request.ext.get(id_field, ""), I64_RANGE)
            replica = None if replicas is None or broker_id is None else replicas.by_id.get(broker_id)
            return SOME_SERVER if replica is None else replica.address

        return address

    def elected(request: RemotingCommand) -> str | None:
        designated = read_bool(request.ext.get("designateElect", "false"))
        return None if designated else registered("brokerId")(request)

    return {
        RequestCode.BROKER_HEARTBEAT: named("brokerAddr"),
        RequestCode.CONTROLLER_REGISTER_BROKER: named("brokerAddress"),
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: registered("masterBrokerId"),
        RequestCode.CONTROLLER_ELECT_MASTER: elected,
        RequestCode.GIVE_UP_REPLICA: registered("brokerId"),
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: lambda request: SOME_SERVER,
        RequestCode.CONTROLLER_APPLY_BROKER_ID: lambda request: SOME_SERVER,
    }
