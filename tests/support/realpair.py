"""A name server, a master and its slaves in processes of their own; each broker is ours or, where its jars are, upstream's.

Invariant: whatever happens, no process outlives the pair."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from localcluster.ports import lease_any
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.errors import RouteUnknown, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage, decode_messages
from mqclient.producer import SendResult, SendStatus
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.pull import PullMessageHeader
from scripts.peers.waits import WAIT_S

ROOT = Path(__file__).parents[2]
SEGMENT_BYTES = 16_384
POLL_S = 0.1
SEND_MS_MAX = 20_000
TOPIC = "Orders"

T = TypeVar("T")
Command = Callable[[Path], list[str]]
"""What starts a broker with the properties file that it gets."""


def ours(file: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "broker", "-c", str(file)]


class RealPair:
    """Broker 0 is the master. `commands` say what starts each; `settings` are those of all of them."""

    def __init__(self, home: Path, commands: Sequence[Command], **settings: object) -> None:
        self._home = home
        self.commands = list(commands)
        self._lease = lease_any(home, 10 * (1 + len(commands)))
        self._settings = settings
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.namesrv = f"127.0.0.1:{self._lease.ports[1]}"
        home.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-m", "namesrv", f"listenPort={self._lease.ports[1]}"]
        self._run("namesrv", [*command, f"kvConfigPath={self._home / 'kvConfig.json'}"])
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._lease.release()

    # -- processes

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._lease.ports[10 * (1 + number) + 2]}"

    def store(self, number: int) -> Path:
        return self._home / f"store-{number}"

    def start(self, number: int, **changed: object) -> None:
        port = int(self.address(number).rpartition(":")[2])
        settings = {
            "enableControllerMode": "false",
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerRole": "SLAVE" if number else "SYNC_MASTER",
            "brokerId": number,
            "namesrvAddr": self.namesrv,
            "listenPort": port,
            "haListenPort": port + 1,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "storePathRootDir": self.store(number),
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            "mappedFileSizeConsumeQueue": 6_000,
            "maxMessageSize": 4_096,
            **self._settings,
            **changed,
        }
        file = self._home / f"broker-{number}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._run(f"broker-{number}", self.commands[number](file))

    def _run(self, name: str, command: list[str]) -> None:
        said = (self._home / f"{name}.log").open("ab")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROCKETMQ_HOME": str(self._home)}
        self._processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=self._home
        )
        said.close()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(WAIT_S)

    def said(self, number: int) -> str:
        return (self._home / f"broker-{number}.log").read_text(errors="replace")

    # -- what clients do

    def send(self, *bodies: bytes, timeout_ms: int = SEND_MS_MAX) -> list[SendResult]:
        """What became of each, one after the other."""

        async def sent() -> list[SendResult]:
            async with Client(self.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
                producer = client.producer("PairProducers")
                return [await producer.send(TOPIC, body, timeout_ms=timeout_ms) for body in bodies]

        return asyncio.run(sent())

    def send_at_once(self, *bodies: bytes) -> list[SendResult]:
        """What became of each, where nobody waits for the one before."""

        async def sent() -> list[SendResult]:
            async with Client(self.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
                producer = client.producer("PairProducers")
                sends = (producer.send(TOPIC, body, timeout_ms=SEND_MS_MAX) for body in bodies)
                return await asyncio.gather(*sends)

        return asyncio.run(sent())

    def send_until_acknowledged(self, *bodies: bytes) -> None:
        """In their order, each again until it is answered OK."""
        left = list(bodies)
        self.wait_for(lambda: self._acknowledged(left))

    def _acknowledged(self, left: list[bytes]) -> bool:
        """Whether all of them are; those that are leave the list. At the first that is not a client ends, and what it knew."""

        async def sent() -> None:
            async with Client(self.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
                producer = client.producer("PairProducers")
                while left:
                    result = await producer.send(TOPIC, left[0], timeout_ms=SEND_MS_MAX)
                    if result.status is not SendStatus.SEND_OK:
                        return
                    del left[0]

        try:
            asyncio.run(sent())
        except (RouteUnknown, SendRefused, SendOutcomeUnknown):
            return False
        return not left

    def read(self) -> list[StoredMessage]:
        async def found() -> list[StoredMessage]:
            async with Client(self.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
                consumer = client.consumer("PairReaders")
                messages: list[StoredMessage] = []
                for queue in await consumer.queues(TOPIC):
                    result = await consumer.pull(queue, 0)
                    while result.messages:
                        messages += result.messages
                        result = await consumer.pull(queue, result.next_offset)
                return messages

        return asyncio.run(found())

    def read_at(self, number: int, queues: int = 2) -> set[bytes]:
        """The bodies that one broker, master or slave, gives who asks it; a slave may hold the end only."""

        async def found(admin: AdminClient) -> set[bytes]:
            bodies = set[bytes]()
            for queue_id in range(queues):
                offset = -1
                while True:
                    reply = await pulled(admin, queue_id, max(offset, 0))
                    first = int(reply.ext.get("minOffset", 0))
                    if reply.code == ResponseCode.SUCCESS:
                        messages = decode_messages(reply.body or b"")
                        bodies |= {message.body for message in messages}
                        offset = messages[-1].queue_offset + 1
                    elif offset < first:
                        offset = first
                    else:
                        break
            return bodies

        async def pulled(admin: AdminClient, queue_id: int, offset: int) -> RemotingCommand:
            header = PullMessageHeader(
                consumer_group="PairReaders", topic=TOPIC, queue_id=queue_id, queue_offset=offset, max_msg_nums=32,
                sys_flag=4, commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
                expression_type="TAG", broker_name="broker-a",
            )  # fmt: skip
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            return await admin.remoting.call(self.address(number), request, admin.answer_ms_max)

        return self._asked(found) or set()

    def create_topic(self, queues: int = 2) -> None:
        self.wait_for(lambda: self._asked(lambda admin: self._created(admin, queues)))

    async def _created(self, admin: AdminClient, queues: int) -> bool:
        await admin.create_topic(self.address(0), TopicSettings(TOPIC, queues, queues, 6))
        route = await admin.topic_route(self.namesrv, TOPIC)  # which a slave that is there yet keeps alive
        return any("0" in replicas["brokerAddrs"] for replicas in route["brokerDatas"])

    def slaves_level(self) -> int:
        """How many slaves hold all of the master's log, as the master knows; 0 while it does not answer."""
        status = self._asked(lambda admin: admin.ha_status(self.address(0)))
        return (
            0 if status is None else sum(link.ack_offset == status.master_max_offset for link in status.links)
        )

    def _asked(self, ask: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T | None:
        """None where it is refused, or nobody answers."""

        async def asked() -> T:
            admin = AdminClient(SystemClock())
            try:
                return await ask(admin)
            finally:
                await admin.close()

        try:
            return asyncio.run(asked())
        except (AdminError, RemotingError):
            return None

    def wait_for(self, met: Callable[[], object]) -> None:
        async def until() -> None:
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(met):
                    for name, process in self._processes.items():
                        assert process.poll() is None, f"{name} ended"
                    await asyncio.sleep(POLL_S)

        asyncio.run(until())

    # -- the logs

    def log(self, number: int) -> dict[int, bytes]:
        """Offset -> content of each segment."""
        files = sorted((self.store(number) / "commitlog").glob("[0-9]*"))
        return {int(file.name): file.read_bytes() for file in files if file.stat().st_size}


def bodies(name: str, count: int, size: int = 200) -> list[bytes]:
    return [f"{name} {number} ".encode().ljust(size, b".") for number in range(count)]
