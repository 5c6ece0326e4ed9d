from __future__ import annotations

import asyncio
from typing import cast

from controller.notify import BEGUN_A_TURN, Notifier
from mqruntime.tasks import Tasks
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.headers.controller import NotifyBrokerRoleChangedHeader
from tests.support.doubles import ManualClock


class Client:
    """Plays RemotingClient: sends at once, or hangs."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.hangs = False

    async def one_way(self, address: str, command: RemotingCommand) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        header = NotifyBrokerRoleChangedHeader.from_ext(command.ext)
        assert SyncStateSetBody.decode(command.body).sync_state_set == frozenset({1})
        self.sent.append((address, header.master_epoch or 0))


def announce(notifier: Notifier, addresses: list[str], epoch: int, notified: list[str]) -> None:
    header = NotifyBrokerRoleChangedHeader("h:1", epoch, 7, 1)
    notifier.announce(addresses, header, frozenset({1}), notified.append)


def test_a_new_leader_notifies_a_few_brokers_per_loop_turn() -> None:
    async def scenario() -> None:
        client, tasks, notified = Client(), Tasks(lambda error: None), list[str]()
        notifier = Notifier(cast(RemotingClient, client), ManualClock(), tasks)
        addresses = [f"h:{port}" for port in range(10 * BEGUN_A_TURN)]
        for address in addresses:
            announce(notifier, [address], 1, notified)
        before = 0
        while len(notified) < len(addresses):
            await asyncio.sleep(0)
            assert len(notified) - before <= BEGUN_A_TURN
            before = len(notified)
        assert notified == addresses
        await tasks.stop()

    asyncio.run(scenario())


def test_only_the_newest_announcement_is_sent_to_an_address() -> None:
    async def scenario() -> None:
        client, tasks, notified = Client(), Tasks(lambda error: None), list[str]()
        notifier = Notifier(cast(RemotingClient, client), ManualClock(), tasks)
        client.hangs = True
        announce(notifier, ["h:1"], 1, notified)
        for _ in range(3):
            await asyncio.sleep(0)
        client.hangs = False
        announce(notifier, ["h:1", "h:2"], 2, notified)
        announce(notifier, ["h:1"], 3, notified)
        for _ in range(10):
            await asyncio.sleep(0)
        assert sorted(client.sent) == [("h:1", 3), ("h:2", 2)]
        assert len(tasks) == 0 and not notifier._sending

    asyncio.run(scenario())
