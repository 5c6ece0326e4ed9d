"""The kernel with a toy service on it: determinism, partitions, kills, hidden inputs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import ModuleType

import pytest

from mqruntime.runtime import RestartWanted
from simulation.kernel.guard import HiddenInput
from simulation.kernel.loop import Deadlock, Livelock, SimulationError
from simulation.kernel.node import Node
from simulation.kernel.toyecho import LOG, EchoApp
from simulation.kernel.world import NotReached, World

ROOT = Path(__file__).parents[2]
PORT = 7000

ECHO_RUN = """
import asyncio
from simulation.kernel.toyecho import EchoApp
from simulation.kernel.world import World

async def ask(address, lines):
    reader, writer = await asyncio.open_connection(address, 7000)
    for number in range(lines):
        writer.write(b"x" * (number * 37 % 900) + b"%d" % number)
        writer.write(b"\\n")
        await reader.readline()
    writer.close()

with World(11) as world:
    node = world.node("echo", "10.0.0.1")
    node.start(lambda runtime: EchoApp(runtime, 7000))
    clients = [world.node(f"client-{n}", f"10.0.1.{n}") for n in range(3)]
    world.run_until(lambda: node.app is not None and node.app.ready, 1000)
    tasks = [client.spawn(ask(node.host, 40)) for client in clients]
    world.run_for_ms(20)
    with world.partitioned(node.host, clients[0].host):
        world.run_for_ms(500)
    world.run_until(lambda: all(task.done() for task in tasks), 10_000)
    assert node.app.echoed == 120, node.app.echoed
    print(world.now_ms, world.trace.events, f"{world.trace.digest:08x}")
"""


def started(world: World) -> Node:
    node = world.node("echo", "10.0.0.1")
    node.start(lambda runtime: EchoApp(runtime, PORT))
    world.run_until(lambda: node.app is not None and node.app.ready, 1_000)
    return node


async def asked(line: bytes, host: str = "10.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, PORT)
    try:
        writer.write(line)
        return await reader.readline()
    finally:
        writer.close()


def test_one_seed_gives_one_trace_under_any_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", ECHO_RUN],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "4711")
    ]
    assert outputs[0] == outputs[1]


def test_another_seed_gives_another_trace() -> None:
    digests = set()
    for seed in (1, 2):
        with World(seed) as world:
            started(world)
            world.run(asked(b"hello\n"))
            digests.add(world.trace.digest)
    assert len(digests) == 2


def test_virtual_hours_take_little_real_time() -> None:
    with World(1) as world:
        began = time.monotonic()
        world.run_for_ms(3_600_000)
        assert world.now_ms == 3_600_000
        assert time.monotonic() - began < 360, "a tenth of them, on the slowest of machines"


def test_an_echo_waits_for_the_partition_to_heal() -> None:
    with World(3) as world:
        node = started(world)
        client = world.node("client", "10.0.0.2")
        with world.partitioned(node.host, client.host):
            task = client.spawn(asked(b"hello\n"))
            world.run_for_ms(5_000)
            assert not task.done()
        world.run_until(task.done, 10_000)
        assert task.result() == b"hello\n"


@pytest.mark.parametrize("seed", range(6))
def test_echoed_data_is_on_disk_after_a_power_cut(seed: int) -> None:
    with World(seed) as world:
        node = started(world)
        assert world.run(asked(b"kept\n")) == b"kept\n"
        node.kill(power_cut=True)
        node.start(lambda runtime: EchoApp(runtime, PORT))
        world.run_until(lambda: node.app is not None and node.app.ready, 1_000)
        content = node.disk.content(LOG)
        assert content is not None and content.startswith(b"kept\n")
        assert world.run(asked(b"again\n")) == b"again\n"


def test_a_killed_process_resets_or_ends_its_connections_and_runs_no_finally_block() -> None:
    ran: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ran.append("finally")

    with World(5) as world:
        node = started(world)
        client = world.node("client", "10.0.0.2")
        connected = client.spawn(_connect_and_read_to_the_end())
        node.spawn(careful())
        world.run_for_ms(50)
        node.kill()
        world.run_until(connected.done, 1_000)
        world.run_for_ms(10_000)
        assert ran == []


async def _connect_and_read_to_the_end() -> None:
    reader, writer = await asyncio.open_connection("10.0.0.1", PORT)
    try:
        assert await reader.read() == b""
    except ConnectionResetError:
        return
    finally:
        writer.close()


def test_a_host_without_power_is_silent_and_resets_its_peer_after_its_start() -> None:
    with World(6) as world:
        node = started(world)
        client = world.node("client", "10.0.0.2")
        reading = client.spawn(_connect_and_read_to_the_end())
        asking = client.spawn(_ask_each_second())
        world.run_for_ms(1_500)
        node.kill(power_cut=True)
        world.run_for_ms(20_000)
        assert not reading.done() and not asking.done()
        node.start(lambda runtime: EchoApp(runtime, PORT))
        world.run_until(asking.done, 5_000)
        assert isinstance(asking.exception(), ConnectionResetError)
        assert not reading.done()


async def _ask_each_second() -> None:
    reader, writer = await asyncio.open_connection("10.0.0.1", PORT)
    while True:
        writer.write(b"still there?\n")
        await reader.readline()
        if reader.at_eof():
            raise ConnectionResetError
        await asyncio.sleep(1)


def test_a_paused_process_answers_after_its_pause() -> None:
    with World(7) as world:
        node = started(world)
        node.pause(3_000)
        began_ms = world.now_ms
        assert world.run(asked(b"hello\n")) == b"hello\n"
        assert 3_000 <= world.now_ms - began_ms < 3_100


def test_a_graceful_stop_runs_the_apps_own_stop() -> None:
    with World(8) as world:
        node = started(world)
        node.spawn(asyncio.sleep(3_600)).set_name("leak")
        world.run(node.stop())
        assert not node.running and node.left_behind == ["leak"]
        with pytest.raises(ConnectionRefusedError):
            world.run(asked(b"anyone?\n"))


def test_a_failed_sync_is_fatal_to_the_service_and_nothing_is_echoed() -> None:
    with World(9) as world:
        node = started(world)
        node.disk.fail_next("sync", OSError(5, "Input/output error"), where=LOG)
        answer = b""
        try:
            answer = world.run(asked(b"lost\n"))
        except ConnectionError:
            answer = b""
        world.run_for_ms(100)
        assert answer == b""
        assert isinstance(node.failure, OSError) and not node.running


def test_an_app_that_cannot_stop_for_its_restart_ends_with_the_error() -> None:
    class Restless(EchoApp):
        async def wait_failed(self) -> BaseException:
            return RestartWanted()

        async def stop(self) -> None:
            raise OSError(5, "Input/output error")

    with World(10) as world:
        node = world.node("echo", "10.0.0.1")
        node.start(lambda runtime: Restless(runtime, PORT))
        world.run_for_ms(10)
        assert isinstance(node.failure, OSError) and not node.running


def test_a_bug_in_a_service_fails_the_world_with_its_seed() -> None:
    class Broken(EchoApp):
        async def start(self) -> None:
            raise AssertionError("a bug")

    with pytest.raises(SimulationError, match="a bug") as caught, World(10) as world:
        node = world.node("echo", "10.0.0.1")
        node.start(lambda runtime: Broken(runtime, PORT))
        world.run_for_ms(10)
    assert any("seed 10" in note for note in caught.value.__notes__)


HIDDEN_INPUTS = [
    (time, "time"),
    (time, "monotonic_ns"),
    (random, "random"),
    (random, "shuffle"),
    (uuid, "uuid4"),
    (os, "urandom"),
]


@pytest.mark.parametrize(("module", "name"), HIDDEN_INPUTS)
def test_use_of_a_forbidden_input_fails_the_world_even_if_it_is_caught(module: ModuleType, name: str) -> None:
    async def use() -> None:
        with contextlib.suppress(Exception):
            getattr(module, name)()

    with World(1) as world:
        world.run(use())  # allowed in the test itself
        world.node("n", "10.0.0.1").spawn(use())
        with pytest.raises(SimulationError, match=name) as caught:
            world.run_for_ms(1)
        assert isinstance(caught.value.__cause__, HiddenInput)


def test_a_simulated_process_may_log(caplog: pytest.LogCaptureFixture) -> None:
    async def log() -> None:
        logging.getLogger("toy").warning("hello")

    with World(1) as world:
        world.node("n", "10.0.0.1").spawn(log())
        world.run_for_ms(1)
    assert "hello" in caplog.text


def test_an_endless_wait_names_the_tasks() -> None:
    with World(1) as world:
        started(world)
        with pytest.raises(NotReached, match=r"echo\.1.*at .*toyecho\.py"):
            world.run_until(lambda: False, limit_ms=100)

    with World(1) as world, pytest.raises(Deadlock):
        world.loop.run_until_complete(world.loop.create_future())


def test_a_livelock_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.kernel.loop.CALLBACKS_AT_ONE_INSTANT_MAX", 1_000)

    with World(1) as world, pytest.raises(Livelock):

        def spin() -> None:
            world.loop.call_soon(spin)

        spin()
        world.run_for_ms(1)


def test_an_unobserved_task_failure_fails_the_world() -> None:
    async def fail() -> None:
        raise ValueError("unseen")

    with pytest.raises(SimulationError, match="unseen"), World(1) as world:
        world.node("n", "10.0.0.1").spawn(fail())
        world.run_for_ms(1)


def test_a_cancelled_task_group_cancels_its_tasks_in_one_order_per_seed() -> None:
    def order(seed: int) -> list[int]:
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append(number)

        async def group() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(20):
                    tasks.create_task(child(number))

        async def cut_short() -> None:
            task = asyncio.get_running_loop().create_task(group())
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait([task])

        with World(seed) as world:
            world.run(cut_short())
        return ended

    held = [object() for _ in range(1_000)]
    first = order(1)
    del held
    assert first == order(1)
    assert sorted(first) == list(range(20))


def test_clocks_of_nodes_are_skewed_and_their_timers_are_not() -> None:
    with World(4) as world:
        one, two = (world.node(name, host).runtime().clock for name, host in (("a", "h1"), ("b", "h2")))
        world.nodes["a"].skew_ms = 3_600_000
        world.run_for_ms(250)
        assert one.now_ms() - two.now_ms() > 3_000_000
        assert one.monotonic_ms() == two.monotonic_ms() == 250


def test_executor_work_runs_in_this_thread_and_its_result_arrives_later() -> None:
    async def work() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        return await loop.run_in_executor(None, lambda: 42), loop.time() - before

    with World(1) as world:
        result, took_s = world.run(work())
    assert result == 42 and took_s > 0


def test_the_longer_of_two_pauses_applies() -> None:
    async def tick(times: list[int]) -> None:
        while len(times) < 5:
            await asyncio.sleep(0.1)
            times.append(world.now_ms)

    with World(1) as world:
        node = world.node("n", "10.0.0.1")
        times: list[int] = []
        task = node.spawn(tick(times))
        world.run_for_ms(150)
        node.pause(1_000)
        node.pause(10)
        world.run_until(task.done, 5_000)
        assert times == [100, 1_150, 1_250, 1_350, 1_450]


def test_the_end_of_a_world_cancels_all_waiting_tasks(recwarn: pytest.WarningsRecorder) -> None:
    async def stubborn() -> None:
        try:
            async with asyncio.TaskGroup() as tasks, asyncio.timeout(1_000):
                tasks.create_task(asyncio.sleep(3_600))
                await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(1)
            await node.runtime().files.replace("late", b"x")

    with World(1) as world:
        node = world.node("n", "10.0.0.1")
        for _ in range(3):
            node.spawn(stubborn())
        world.run_for_ms(10)
        node.spawn(stubborn())  # never gets its first step
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
    assert node.disk.content("late") is None


def test_the_runtime_of_a_node_belongs_to_its_next_process() -> None:
    with World(1) as world:
        node = world.node("echo", "10.0.0.1")
        first = node.runtime()
        node.start(lambda runtime: EchoApp(runtime, PORT))
        assert node.incarnation == 1
        with pytest.raises(AssertionError, match="already serves"):
            node.start(lambda runtime: EchoApp(runtime, PORT))
        world.run_for_ms(10)
        node.kill()
        assert node.runtime().random.random() != first.random.random()
        assert node.incarnation == 2


def test_tasks_that_become_ready_together_run_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> tuple[int, ...]:
        ran: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0.1)
            ran.append(number)

        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            for number in range(4):
                node.spawn(note(number))
            world.run_for_ms(200)
        return tuple(ran)

    assert len({order(seed) for seed in range(10)}) > 3
    assert order(3) == order(3)


def test_callbacks_of_one_process_keep_the_order_that_call_soon_promises() -> None:
    for seed in range(6):
        with World(seed) as world:
            ran: list[int] = []

            async def schedule(into: list[int] = ran) -> None:
                for number in range(10):
                    asyncio.get_running_loop().call_soon(into.append, number)

            for name in ("a", "b"):
                world.node(name, name).spawn(schedule())
            world.run_for_ms(1)
            assert ran == [*range(10), *range(10)]
