"""The file of elections: its content, and the loop turns that writing it takes."""

from __future__ import annotations

import asyncio

from controller.electionrecorder import FILE, SETS_A_TURN, ElectionRecorder
from controller.events import ApplyBrokerId, CleanBrokerData, ElectMaster, Event
from controller.heartbeats import Heartbeats
from controller.holdings import Holdings, LogReport
from controller.holdingsfile import FILE as HOLDINGS_FILE
from controller.holdingsfile import ROWS_A_TURN, HoldingsFile
from controller.state import ReplicasState
from remoting.bodies.elections import Elections
from tests.support.doubles import ManualClock, MemoryFiles

NAMES = [f"set-{number}" for number in range(5 * SETS_A_TURN)]


class Scene:
    """A recorder over a state in which each set of `NAMES` had its first election."""

    def __init__(self) -> None:
        self.state = ReplicasState()
        self.files = MemoryFiles()
        self.recorder = self.next_recorder()
        for name in NAMES:
            self.happens(ApplyBrokerId("c", name, 1, "h:1", "h:1;7"))
            self.happens(ElectMaster(name, 1))

    def next_recorder(self) -> ElectionRecorder:
        return ElectionRecorder(self.state, lambda: Heartbeats().at(0, 0), self.files, ManualClock())

    def happens(self, event: Event) -> None:
        self.state.apply(event)
        self.recorder.applied(event, witnessed=True)

    @property
    def saved(self) -> Elections:
        return Elections.decode(self.files.content[FILE])


def test_the_file_contains_the_reported_elections() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.recorder.save()
        assert scene.saved == scene.recorder.elections_of(NAMES)
        scene.happens(ElectMaster(NAMES[3], None))
        scene.happens(CleanBrokerData(NAMES[7], None))
        await scene.recorder.save()
        assert scene.saved == scene.recorder.elections_of(NAMES)
        assert len(scene.saved.elections_table) == len(NAMES) - 1
        await scene.recorder.save()
        assert scene.files.replaced == 2, "nothing has changed"

    asyncio.run(scenario())


def test_the_next_process_saves_loaded_and_new_elections() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.recorder.save()
        before = scene.saved
        scene.recorder = scene.next_recorder()
        await scene.recorder.load()
        for name in NAMES:
            scene.recorder.applied(ElectMaster(name, 1), witnessed=False)
        scene.happens(ElectMaster(NAMES[0], None))
        await scene.recorder.save()
        assert [len(rows) for rows in scene.saved.elections_table.values()] == [2] + [1] * (len(NAMES) - 1)
        for name in NAMES:
            assert (
                scene.saved.elections_table[name][0].elected_ms == before.elections_table[name][0].elected_ms
            )

    asyncio.run(scenario())


def test_an_election_during_a_save_is_saved_the_next_time() -> None:
    async def scenario() -> None:
        scene = Scene()
        saving = asyncio.create_task(scene.recorder.save())
        await asyncio.sleep(0)
        assert FILE not in scene.files.content, "other tasks run before all is encoded"
        scene.happens(ElectMaster(NAMES[0], None))
        await saving
        await scene.recorder.save()
        assert scene.saved == scene.recorder.elections_of(NAMES)

    asyncio.run(scenario())


def test_replica_offsets_are_encoded_a_few_per_loop_turn() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        file = HoldingsFile(files, lambda key: "h:1;7", ManualClock())
        count = 5 * ROWS_A_TURN
        for broker_id in range(count):
            file.holdings.heard(("c", "a", broker_id), 1, LogReport(1, 900, 900), member=True)
        saving = asyncio.create_task(file.save())
        turns = 0
        while not saving.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= count / ROWS_A_TURN
        again = Holdings(lambda key: "h:1;7", lambda: None)
        again.restore(files.content[HOLDINGS_FILE])
        assert again.keys() == file.holdings.keys()

    asyncio.run(scenario())
