"""A request to the wrong kind of server is refused with the name of the right one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.clients.unsupportedrequests import UnsupportedRequests
from controller.server import ControllerApp
from namesrv.server import NamesrvApp
from remoting.codes import RequestCode
from remoting.router import Router
from remoting.servers import Server, servers_of
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV
from tests.cluster.served import Served


@pytest.fixture(scope="module")
def broker() -> Iterator[Served]:
    with World(63) as world:
        yield Served(world)


def router_of(broker: Served, server: Server) -> Router:
    if server is Server.BROKER:
        return broker.master.requests.router
    name = "namesrv" if server is Server.NAME_SERVER else "controller-0"
    app = broker.world.nodes[name].app
    assert isinstance(app, NamesrvApp | ControllerApp)
    router = app._server._connections._dispatcher._router
    assert isinstance(router, Router)
    return router


def refusal(broker: Served, address: str, code: int) -> tuple[int, str | None]:
    reply = broker.cluster.run(broker.cluster.ask(address, code))
    return reply.code, reply.remark


@pytest.mark.parametrize(
    ("server", "code", "others"),
    [
        (Server.BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC, "name servers"),
        (Server.BROKER, RequestCode.BROKER_HEARTBEAT, "name servers and controllers"),
        (Server.BROKER, RequestCode.CONTROLLER_ELECT_MASTER, "controllers"),
        (Server.NAME_SERVER, RequestCode.CONTROLLER_GET_METADATA_INFO, "controllers"),
        (Server.NAME_SERVER, RequestCode.UPDATE_AND_CREATE_TOPIC, "brokers"),
        (Server.CONTROLLER, RequestCode.GET_BROKER_CLUSTER_INFO, "name servers"),
        (Server.CONTROLLER, RequestCode.GET_BROKER_EPOCH_CACHE, "brokers"),
    ],
)
def test_a_wrong_server_names_the_right_one(
    broker: Served, server: Server, code: RequestCode, others: str
) -> None:
    address = {
        Server.BROKER: broker.master.address,
        Server.NAME_SERVER: NAMESRV,
        Server.CONTROLLER: f"{CONTROLLERS[0]}:9878",
    }[server]
    remark = f" request type {int(code)} not supported; {others} answer {code.name}, ask one of them"
    assert refusal(broker, address, code) == (3, remark)


@pytest.mark.parametrize("code", [RequestCode.CHECK_TRANSACTION_STATE, RequestCode.DLEDGER_APPEND, 9999])
def test_a_request_that_no_server_answers_is_refused_without_a_hint(broker: Served, code: int) -> None:
    assert refusal(broker, NAMESRV, code) == (3, f" request type {int(code)} not supported")


def test_a_request_for_another_kind_of_server_is_logged_once_by_a_broker(
    broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    broker.master.requests.router.on_unserved = UnsupportedRequests().asked
    for _ in range(2):
        refusal(broker, broker.master.address, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    logged = [record.getMessage() for record in caplog.records if record.name == "broker.unsupportedrequests"]
    assert logged == ["request for name servers sent to a broker"]


@pytest.mark.parametrize("server", [Server.NAME_SERVER, Server.CONTROLLER])
def test_name_servers_and_controllers_answer_every_code_listed_for_them(
    broker: Served, server: Server
) -> None:
    router = router_of(broker, server)
    answered = {*router.handlers, *router.batch_handlers}
    theirs = {int(code) for code in RequestCode if server in servers_of(code)}
    assert theirs <= answered
    assert all(not servers_of(code) for code in answered - theirs), "the other codes belong to DLedger"


def test_a_broker_answers_only_codes_listed_for_brokers(broker: Served) -> None:
    router = router_of(broker, Server.BROKER)
    others = [
        code for code in (*router.handlers, *router.batch_handlers) if Server.BROKER not in servers_of(code)
    ]
    assert others == []
