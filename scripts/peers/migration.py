"""Follow docs/migration.md with a fleet under load: from Java's servers to ours, one after the other, and back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from localcluster.history import Verdict
from localcluster.load import SteadyLoad
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqadmin.replies import SyncStateInfo
from mqruntime.clock import SystemClock
from scripts.peers.fleet import Fleet
from scripts.peers.mixes import under_load
from scripts.peers.runbook import Runbook
from scripts.peers.waits import WAIT_MS

DOCUMENT = Path(__file__).parents[2] / "docs/migration.md"
SHOW = "mqadmin getSyncStateSet -a CONTROLLERS -b broker-a"
LIST = "mqadmin clusterList -n NAMESRV"
ELECT = "mqadmin electMaster -a CONTROLLERS -b BROKER_ID -bn broker-a -c DefaultCluster"
BACK_UP = "cp -a --sparse=always STORE STORE.java"
ACKNOWLEDGEMENTS = 20
"""The number of acknowledgements between two steps."""
END_MS_MAX = 15_000
"""A Java broker waits up to 90 s for one of its own threads. The document says what to do."""


class Migration:
    """A migration. `say` is called with each step."""

    def __init__(self, fleet: Fleet, load: SteadyLoad, say: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._load = load
        self._say = say
        self._clock = SystemClock()
        self.runbook = Runbook(DOCUMENT, fleet.directory)

    async def there(self) -> None:
        layout = self._fleet.layout
        await self._asked(LIST)
        await self._asked("mqadmin getBrokerEpoch -n NAMESRV -b broker-a")
        await self.name_server(java=False)
        await self.controllers(java=False)
        await self.brokers(java=False)
        await self._asked("mqadmin haStatus -n NAMESRV -c DefaultCluster")
        for name in layout.broker_names:
            await self._asked("mqreplay verify STORE", STORE=self._fleet.directory / name)

    async def back(self) -> None:
        await self.brokers(java=True)
        await self.controllers(java=True)
        await self.name_server(java=True)

    async def name_server(self, *, java: bool) -> None:
        await self._exchange(["namesrv"], java=java)
        await self._whole()

        async def listed() -> None:
            shown = await self._asked(LIST)
            if shown.count("broker-a") < self._fleet.layout.brokers:
                raise NotYet(shown)

        await wait_for("all brokers at the name server", listed, WAIT_MS)

    async def controllers(self, *, java: bool) -> None:
        names = self._fleet.layout.controller_names
        before = await self._whole()
        await self._exchange(names, java=java)
        after = await self._whole()
        assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
        assert {each.broker_id for each in after.in_sync} == {each.broker_id for each in before.in_sync}

    async def brokers(self, *, java: bool) -> None:
        state = await self._whole()
        master = self._name(state.master_address)
        for name in self._fleet.layout.broker_names:
            if name != master:
                await self._exchange([name], java=java)
                await self._whole()
        state = await self._whole()
        chosen = next(each.broker_id for each in state.in_sync if each.broker_id != state.master_id)
        await self._asked(ELECT, BROKER_ID=chosen)
        assert (await self._whole()).master_id == chosen
        await self._exchange([master], java=java)
        await self._whole()

    def _name(self, address: str | None) -> str:
        name = self._fleet.layout.name_of(address or "")
        assert name is not None
        return name

    async def _asked(self, command: str, **words: object) -> str:
        layout = self._fleet.layout
        words = {"NAMESRV": layout.namesrv, "CONTROLLERS": layout.controller_list, **words}
        return await asyncio.to_thread(self.runbook.run, command, **words)

    async def _whole(self) -> SyncStateInfo:
        """Wait until everybody is in the set, the name server knows all brokers, and clients get answers."""
        state = await self._fleet.wait_whole(timeout_ms=WAIT_MS)
        await self._asked(SHOW)
        answered = await self._load.acknowledged_after(self._clock.now_ms(), WAIT_MS, ACKNOWLEDGEMENTS)
        assert answered, "a whole set acknowledges nothing"
        return state

    async def _exchange(self, names: list[str], *, java: bool) -> None:
        """Exchange servers. All old servers are ended before the first new one starts."""
        fleet = self._fleet
        self._say(f"{', '.join(names)}: {'Java' if java else 'ours'}")
        fleet.kill(names, signal.SIGTERM)

        async def ended() -> None:
            if running := [name for name in names if fleet.states()[name]]:
                raise NotYet(f"{running} run")

        try:
            await wait_for("their ends", ended, END_MS_MAX)
        except WaitExpired:
            fleet.kill(names)
        stores = [fleet.directory / name for name in names if name != "namesrv"]
        if not java:
            for store in stores:
                await self._asked(BACK_UP, STORE=store)
            if names[0] in fleet.layout.controller_names:
                await self._inspected(stores)
        fleet.become(names, java=java)
        for name in names:
            fleet.start([name])
            if not java:
                kind, _, number = name.partition("-")
                self.runbook.taken(f"mq{kind} -c {kind}{'-0' if number else ''}.conf")

    async def _inspected(self, stores: list[Path]) -> None:
        command = "python -m dledger inspect STORES"
        said = await asyncio.to_thread(self.runbook.run, command, STORES=stores)
        assert said.count("of them Java's") == len(stores), said


async def migrated(
    fleet: Fleet, *, seed: int = 1, say: Callable[[str], None] = lambda step: None
) -> tuple[Verdict, set[str]]:
    """Migrate there and back. Returns the verdict on the messages, and which commands of the document were not run."""
    await fleet.wait_whole(timeout_ms=WAIT_MS)
    judged: list[Verdict] = []
    async with under_load(fleet, seed, judged) as load:
        migration = Migration(fleet, load, say)
        await migration.there()
        await migration.back()
    return judged[0], migration.runbook.unused
