"""A master's answer that its successor may take over, with a scripted store and acknowledgements."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.switchover.handover import HandOverRequests
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import HandOverHeader

END = 100


def scene(*, confirmed: int, acked: int) -> Any:
    calls: list[str] = []
    membership = SimpleNamespace(broker_name="broker-a", master_epoch=3, accepts_sends=True)
    progress = SimpleNamespace(confirmed=confirmed, acked=acked, calls=calls)
    requests: Any = HandOverRequests(
        membership,  # type: ignore[arg-type]
        SimpleNamespace(acked_end=lambda: progress.acked),  # type: ignore[arg-type]
        SimpleNamespace(max_offset=lambda: END, confirm_offset=lambda: progress.confirmed),  # type: ignore[arg-type]
        SimpleNamespace(applied_members=lambda: frozenset({1, 2})),  # type: ignore[arg-type]
        SimpleNamespace(
            hand_over=lambda hold_ms: calls.append("holds"), called_off=lambda: calls.append("off")
        ),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        SystemClock(),
    )
    progress.requests = requests
    return progress


def hand_over(wait_ms: int) -> RemotingCommand:
    header = HandOverHeader("broker-a", 3, 2, wait_ms, 1_000)
    return RemotingCommand(RequestCode.HAND_OVER, ext=header.to_ext())


@pytest.mark.parametrize("missing", ["confirmed", "acked"])
def test_a_master_hands_over_once_its_whole_log_is_confirmed_and_acknowledged(missing: str) -> None:
    """With SYNC_FLUSH a send is acknowledged once it is on this disk, even if all members hold it already.

    Acknowledged earlier, a send would be OK that this broker misses after a kill.
    """

    async def play() -> None:
        progress = scene(confirmed=END, acked=END)
        setattr(progress, missing, END - 1)
        answer = asyncio.ensure_future(progress.requests._hand_over(None, hand_over(3_000)))
        for _ in range(10):
            await asyncio.sleep(0)
            progress.requests.moved()
        assert not answer.done()
        setattr(progress, missing, END)
        progress.requests.moved()
        assert (await answer).code == ResponseCode.SUCCESS
        assert progress.calls == ["holds"]

        setattr(progress, missing, END - 1)
        assert (await progress.requests._hand_over(None, hand_over(0))).code == ResponseCode.SYSTEM_ERROR
        assert progress.calls == ["holds", "holds", "off"]

    asyncio.run(play())
