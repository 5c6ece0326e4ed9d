from __future__ import annotations

import asyncio
import gc

import pytest

from mqruntime.tasks import Tasks


def test_an_exception_of_a_task_reaches_its_owner() -> None:
    async def fail() -> None:
        raise OSError("disk")

    async def scenario() -> list[BaseException]:
        fatal: list[BaseException] = []
        tasks = Tasks(fatal.append)
        tasks.start(fail(), name="flush")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(tasks) == 0
        return fatal

    assert [str(error) for error in asyncio.run(scenario())] == ["disk"]


def test_stop_ends_every_task_in_the_order_of_their_start_and_is_no_failure() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(number)

    async def scenario() -> None:
        tasks = Tasks(lambda error: pytest.fail(str(error)))
        for number in range(5):
            tasks.start(work(number), name=f"work {number}")
        await asyncio.sleep(0)
        gc.collect()
        await tasks.stop()
        assert len(tasks) == 0
        tasks.start(asyncio.sleep(0), name="again")
        await tasks.stop()

    asyncio.run(scenario())
    assert ended == [0, 1, 2, 3, 4]


def test_a_task_may_stop_its_own_owner() -> None:
    async def scenario() -> None:
        tasks = Tasks(lambda error: pytest.fail(str(error)))
        other = tasks.start(asyncio.sleep(3600), name="other")
        stopper = tasks.start(tasks.stop(), name="stopper")
        await stopper
        assert other.cancelled() and not stopper.cancelled()

    asyncio.run(scenario())


def test_a_result_is_the_callers_to_await() -> None:
    async def scenario() -> int:
        tasks = Tasks(lambda error: pytest.fail(str(error)))
        return await tasks.start(asyncio.sleep(0, 7), name="seven")

    assert asyncio.run(scenario()) == 7
