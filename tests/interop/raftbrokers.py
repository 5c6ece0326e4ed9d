"""Java brokers in Raft mode, or ours instead, with one name server."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.errors import ClientError
from mqruntime.clock import SystemClock
from remoting.errors import RemotingError
from scripts.peers.javaserver import NO_SPIN
from tests.interop.javabroker import java_broker
from tests.support.realpair import TOPIC, RealPair

MEMBERS = 3
JAVA = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "broker-a",
    "brokerRole": "ASYNC_MASTER",
    "timerWheelEnable": "false",
    **NO_SPIN,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "sendMessageThreadPoolNums": 2,
}


class RaftBrokers(RealPair):
    """Three Java brokers in Raft mode; the leader is broker 0 in the name server."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, [java_broker] * MEMBERS, **JAVA)
        ports = {number: int(self.address(number).rpartition(":")[2]) + 5 for number in range(MEMBERS)}
        self._peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in ports.items())

    def start_all(self) -> None:
        for number in range(MEMBERS):
            self.start(number, dLegerPeers=self._peers, dLegerSelfId=f"n{number}")

    def end_all(self, number: signal.Signals) -> None:
        """Ends all brokers with the signal `number`."""
        ended = [self._processes.pop(name) for name in list(self._processes) if name != "namesrv"]
        for process in ended:
            process.send_signal(number)
        for process in ended:
            process.wait()

    def create_topic_at_leader(self) -> None:
        self.wait_for(lambda: any([self._created_at(number) for number in range(MEMBERS)]) and self.leader())

    def _created_at(self, number: int) -> bool:
        async def created() -> bool:
            admin = AdminClient(SystemClock())
            try:
                await admin.create_topic(self.address(number), TopicSettings(TOPIC, 2, 2, 6))
            except AdminError:
                return False
            finally:
                await admin.close()
            return True

        return asyncio.run(created())

    def leader(self) -> int | None:
        """The leader according to the name server."""

        async def found() -> int | None:
            admin = AdminClient(SystemClock())
            try:
                route = await admin.topic_route(self.namesrv, TOPIC)
            except AdminError:
                return None
            finally:
                await admin.close()
            leaders = [replicas["brokerAddrs"].get("0") for replicas in route["brokerDatas"]]
            return next((number for number in range(MEMBERS) if self.address(number) in leaders), None)

        number = asyncio.run(found())
        return None if number is None else number + 1  # never 0, which means a failure


def places(pair: RealPair) -> dict[tuple[int, int], bytes]:
    """The body by queue and offset; empty while there is no leader."""
    try:
        return {(message.queue_id, message.queue_offset): message.body for message in pair.read()}
    except (ClientError, RemotingError):
        return {}
