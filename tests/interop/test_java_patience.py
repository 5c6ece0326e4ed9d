"""The Java clients of these tests tolerate a machine where route answers are late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from scripts.peers.javapeer import missing
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

TOPIC = "Late"
UNANSWERED = 2
"""A client also asks in the background, and a call may use that answer."""
ASKED = [
    ("sync", TOPIC, 5, 100),
    ("tx", "LateDealMakers", TOPIC, "deal", "rollback", "rollback"),
    ("pull", TOPIC),
    ("subscribe", TOPIC, "LateSubscribers"),
    ("consume", "late-one", TOPIC, "LateConsumers", "CLUSTERING", "*", 0, 16),
    ("order", "late-other", TOPIC, "LateInOrder", 0),
    ("litepull", TOPIC, "LatePullers", 5),
]


class LateNameServer:
    """Forwards route requests to `namesrv`; closes the connections of the first `unanswered` ones for
    TOPIC."""

    def __init__(self, namesrv: str) -> None:
        self.unanswered = 0
        self._namesrv = namesrv
        router = Router()
        router.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._asked)
        self.server = RemotingServer(router, host="127.0.0.1", port=0, clock=SystemClock())
        self.client = RemotingClient(clock=SystemClock())

    async def _asked(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        if self.unanswered and request.ext["topic"] == TOPIC:
            self.unanswered -= 1
            peer.cut("it is late")
            return None
        question = RemotingCommand(code=request.code, ext=request.ext)
        answer = await self.client.call(self._namesrv, question, WAIT_MS)
        return request.reply(answer.code, answer.remark, body=answer.body)


def test_a_java_client_without_a_route_answer_asks_again(cluster: Cluster, tmp_path: Path) -> None:
    said: dict[str, object] = {}
    left: dict[str, int] = {}

    async def scenario() -> None:
        await cluster.create_topic(TOPIC, 2)
        late = LateNameServer(cluster.layout.namesrv)
        await late.server.start()
        with JavaClient(f"127.0.0.1:{late.server.port}", tmp_path) as java:
            for words in ASKED:
                late.unanswered = UNANSWERED
                said[words[0]] = await asyncio.to_thread(java.answer, *words)
                left[words[0]] = late.unanswered
        await late.server.stop()
        await late.client.close()

    asyncio.run(scenario())
    assert said["sync"] == {"acked": 5, "failed": 0}
    assert [what for what, answer in said.items() if "error" in str(answer)] == []
    assert set(left.values()) == {0}, "each was kept waiting"
