"""A server with scripted answers, for commands that run in-process against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from mqadmin.cli import admin
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from tests.unit.mqadmin.watchscene import lead

Answer = Callable[[RemotingCommand], RemotingCommand]


class ScriptedServer:
    """Name server, controller and broker in one. Answers are set by request code; requests are recorded."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.answers: dict[int, Answer] = {}
        self._router = Router()
        for code in RequestCode:
            self._router.add(code, self._answer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server = RemotingServer(self._router, host="127.0.0.1", port=0, clock=SystemClock())

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(5)
        self.address = f"127.0.0.1:{self._server.port}"
        self.knows_one_broker()
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _answer(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.asked.append(request)
        answer = self.answers.get(request.code)
        if answer is None:
            return request.reply(3, f" request type {request.code} not supported")
        return answer(request)

    def says(
        self,
        code: int,
        body: Any = None,
        *,
        ext: Mapping[str, str] | None = None,
        status: int = 0,
        remark: str | None = None,
    ) -> None:
        """Sets the answer to requests of `code`; a body that is no bytes becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        self.answers[code] = lambda request: request.reply(status, remark, ext, data)

    def knows_one_broker(self) -> None:
        """Set `broker-a` of cluster `C` has this server as its master; it leads the controllers, and has every
        topic with two queues."""
        brokers = {"brokerAddrs": {"0": self.address}, "brokerName": "broker-a", "cluster": "C"}
        queues = {
            "brokerName": "broker-a",
            "perm": 6,
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "topicSysFlag": 0,
        }
        self.says(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            {"brokerAddrTable": {"broker-a": brokers}, "clusterAddrTable": {"C": ["broker-a"]}},
        )
        self.says(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"brokerDatas": [brokers], "queueDatas": [queues]})
        self.says(
            RequestCode.CONTROLLER_GET_METADATA_INFO,
            ext={"group": "g", "controllerLeaderId": "n0", "controllerLeaderAddress": self.address},
        )

    def has_members(self, *broker_ids: int) -> None:
        """The controllers know these brokers of set `broker-a`, the first of them its master, all in sync."""
        rows = [
            {"alive": True, "brokerAddress": self.address, "brokerId": number, "brokerName": "broker-a"}
            for number in broker_ids
        ]
        state = {
            "masterBrokerId": broker_ids[0],
            "masterAddress": self.address,
            "masterEpoch": 1,
            "syncStateSetEpoch": 1,
            "inSyncReplicas": rows,
            "notInSyncReplicas": [],
        }
        self.says(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {"replicasInfoTable": {"broker-a": state}})

    def requests(self, code: int) -> list[RemotingCommand]:
        return [request for request in self.asked if request.code == code]

    def run(self, *arguments: str) -> Result:
        """`mqadmin` with this server as the name server."""
        runner = CliRunner(env={"NAMESRV_ADDR": self.address})
        return runner.invoke(admin, arguments, prog_name="mqadmin")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def another_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def leads(server: ScriptedServer, another_server: ScriptedServer) -> ScriptedServer:
    """Controller leader and master in one; the other server is its slave."""
    lead(server, another_server)
    return server
