"""A group of many consumers: notifications (40) and member lists (38) per join and leave are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.clients import notices
from remoting.bodies.heartbeats import ConsumerData, ConsumerIdList, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.admin import ConsumerGroupHeader, UnregisterClientHeader
from tests.cluster.served import Served
from tests.support.recordingpeer import RecordingPeer

COUNT = 250


class Crowd:
    """The members of CG, each over its own connection; the broker's handlers are called directly."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.peers = [RecordingPeer() for _ in range(COUNT)]

    def ask(self, number: int, code: RequestCode, header: Any = None, body: bytes | None = None) -> Any:
        request = RemotingCommand.request(code, header, body)
        return self.served.master.requests.router.handlers[code](self.peers[number], request)  # type: ignore[arg-type]

    def beat(self, number: int) -> None:
        consumer = ConsumerData("CG", subscription_data_set=[SubscriptionData("orders")])
        data = HeartbeatData(f"c{number}", [], [consumer])
        assert self.ask(number, RequestCode.HEART_BEAT, None, data.encode()).code == 0

    def leave(self, number: int) -> None:
        header = UnregisterClientHeader(f"c{number}", None, "CG")
        assert self.ask(number, RequestCode.UNREGISTER_CLIENT, header).code == 0

    def members(self, number: int) -> bytes:
        return bytes(self.ask(number, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("CG")).body)

    def all_join(self) -> None:
        async def scenario() -> None:
            for number in range(COUNT):
                self.beat(number)

        self.served.world.run(scenario())
        self.served.world.run_for_ms(1_000)

    def notified(self) -> list[int]:
        """How many notifications each member got since the last call."""
        counts = [len(peer.replies) for peer in self.peers]
        for peer in self.peers:
            assert all(
                each.code == 40 and each.is_oneway and each.ext == {"consumerGroup": "CG"}
                for each in peer.replies
            )
            peer.writes.clear()
        return counts


@pytest.fixture
def crowd(served: Served) -> Crowd:
    return Crowd(served)


def test_members_that_join_together_are_notified_once_after_the_last(crowd: Crowd) -> None:
    crowd.all_join()
    counts = crowd.notified()
    assert sum(counts) == sum(range(14)) + 14 + COUNT, "rounds of 1 to 14, as they joined, and one for all"
    assert counts[-1] == 1


def test_a_change_is_notified_in_slices_and_later_changes_in_one_more_round(crowd: Crowd) -> None:
    crowd.all_join()
    crowd.notified()
    slices = []

    async def scenario() -> None:
        crowd.leave(0)
        slices.append(sum(crowd.notified()))
        crowd.leave(1)
        crowd.leave(2)
        for _ in range(10):
            await asyncio.sleep((notices.PAUSE_MS + 1) / 1000)
            slices.append(sum(crowd.notified()))

    crowd.served.world.run(scenario())
    assert slices == [100, 100, 100, 100, 96, 0, 0, 0, 0, 0, 0], "249 of the first round, 247 of the second"


def test_all_members_are_notified_with_one_encoded_frame(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.all_join()
    frames = []
    monkeypatch.setattr(
        notices, "frame_of", lambda group, make=notices.frame_of: frames.append(group) or make(group)
    )

    async def scenario() -> None:
        crowd.leave(0)

    crowd.served.world.run(scenario())
    crowd.served.world.run_for_ms(100)
    assert frames == ["CG"]


def test_the_list_of_members_is_encoded_once_for_each_change(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    encode = ConsumerIdList.encode
    monkeypatch.setattr(ConsumerIdList, "encode", lambda body: made.append(body) or encode(body))

    async def scenario() -> list[bytes]:
        lists = []
        for change in (
            lambda: crowd.beat(0),
            lambda: crowd.beat(1),
            lambda: crowd.beat(1),
            lambda: crowd.leave(0),
        ):
            change()
            lists.append([crowd.members(1) for _ in range(20)][-1])
        return lists

    assert crowd.served.world.run(scenario()) == [
        b'{"consumerIdList":["c0"]}',
        b'{"consumerIdList":["c0","c1"]}',
        b'{"consumerIdList":["c0","c1"]}',
        b'{"consumerIdList":["c1"]}',
    ]
    assert len(made) == 3, "the third change was none"


def test_a_client_is_found_by_the_connection_of_its_last_heartbeat(crowd: Crowd) -> None:
    consumers = crowd.served.master.requests.consumers
    first, second = crowd.peers[0], crowd.peers[1]

    async def scenario() -> list[str | None]:
        crowd.beat(0)
        second.number = first.number + 1
        crowd.peers[0], crowd.peers[1] = second, first
        crowd.beat(0)
        found = [consumers.client_id_of(peer, "CG") for peer in (first, second)]  # type: ignore[arg-type]
        crowd.leave(0)
        crowd.beat(2)
        return [*found, *(consumers.client_id_of(peer, "CG") for peer in (first, second))]  # type: ignore[arg-type]

    assert crowd.served.world.run(scenario()) == [None, "c0", None, None]
