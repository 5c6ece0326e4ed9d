"""A name server and a broker with scripted answers, and a client of theirs, over loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import orjson

from mqclient.client import Client
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageHeader, SendMessageResponseHeader
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer

Answer = Callable[[RemotingCommand], RemotingCommand | None]


class Server:
    """One listener whose answers a test may change while it runs."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[RemotingCommand] = []
        router = Router()
        for name in answers:
            router.add(RequestCode[name], self._answer)
        self.server = RemotingServer(router, host="127.0.0.1", port=0, clock=SystemClock())

    def _answer(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(request)
        return self.answers[RequestCode(request.code).name](request)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


def route_to(addresses: dict[int, str], queues: int = 4, perm: int = 6) -> Answer:
    body = orjson.dumps(
        {
            "brokerDatas": [
                {
                    "brokerAddrs": {str(key): value for key, value in addresses.items()},
                    "brokerName": "broker-a",
                    "cluster": "DefaultCluster",
                }
            ],
            "queueDatas": [
                {"brokerName": "broker-a", "perm": perm, "readQueueNums": queues, "writeQueueNums": queues}
            ],
        }
    )
    return lambda request: request.reply(body=body)


def routes(**answers: Answer) -> Answer:
    """The route answer by topic; other topics are unknown."""

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        known = answers.get(request.ext["topic"])
        return request.reply(17, "No topic route") if known is None else known(request)

    return answer


def stored_as(code: int = 0, remark: str | None = None, offset: int = 7) -> Answer:
    def answer(request: RemotingCommand) -> RemotingCommand:
        queue_id = SendMessageHeader.of(request).queue_id
        return request.reply(
            code, remark, SendMessageResponseHeader("7F00000100002A9F0000000000001000", queue_id, offset)
        )

    return answer


def with_servers(namesrv: Server, *brokers: Server) -> Callable[[Callable[[Client], Awaitable[None]]], None]:
    """Runs a scenario with a client of these servers, all closed afterwards."""

    def run(scenario: Callable[[Client], Awaitable[None]]) -> None:
        async def session() -> None:
            for server in (namesrv, *brokers):
                await server.server.start()
            try:
                async with Client(namesrv.address, clock=SystemClock(), random=random.Random(1)) as client:
                    await scenario(client)
            finally:
                for server in (namesrv, *brokers):
                    await server.server.stop()

        asyncio.run(session())

    return run


def cluster(send: Answer, **more: Answer) -> tuple[Server, Server]:
    broker = Server(SEND_MESSAGE_V2=send, SEND_BATCH_MESSAGE=send, **more)
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: route_to({0: broker.address})(request))
    return namesrv, broker
