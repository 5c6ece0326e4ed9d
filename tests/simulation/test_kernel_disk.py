"""The simulated disk loses unsynced data only."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from mqruntime.runtime import Runtime
from mqruntime.segments import SegmentFile
from mqruntime.smallfiles import BadFileName
from mqruntime.storelock import StoreLocked
from simulation.kernel.disk import CACHED_US
from simulation.kernel.inode import PAGE_BYTES
from simulation.kernel.node import Node
from simulation.kernel.world import World

SEEDS = range(12)


def run(world: World, node: Node, coroutine: Coroutine[Any, Any, Any]) -> Any:
    task = node.spawn(coroutine)
    world.run_until(task.done, 60_000)
    return task.result()


def crashed(node: Node, *, power_cut: bool) -> Runtime:
    node.kill(power_cut=power_cut)
    return node.runtime()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_keeps_synced_pages_and_some_of_the_others(seed: int) -> None:
    with World(seed) as world:
        node = world.node("n", "10.0.0.1")
        file = node.runtime().segments.create("log", 8 * PAGE_BYTES)
        file.view()[:] = b"1" * file.size_bytes
        run(world, node, file.sync(0, 4 * PAGE_BYTES))
        file.view()[:] = b"2" * file.size_bytes
        run(world, node, file.sync(0, 1))
        kept = bytes(crashed(node, power_cut=True).segments.open("log").view())
        assert kept[:PAGE_BYTES] == b"2" * PAGE_BYTES
        assert set(kept[PAGE_BYTES : 4 * PAGE_BYTES]) <= {*b"12"}
        assert set(kept[4 * PAGE_BYTES :]) <= {0, *b"2"}


def test_over_many_seeds_unsynced_pages_are_kept_lost_and_torn() -> None:
    seen = set()
    for seed in range(40):
        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            file = node.runtime().segments.create("log", 8 * PAGE_BYTES)
            run(world, node, file.sync(0, file.size_bytes))
            file.view()[:] = b"2" * file.size_bytes
            kept = bytes(crashed(node, power_cut=True).segments.open("log").view())
            for start in range(0, len(kept), PAGE_BYTES):
                page = set(kept[start : start + PAGE_BYTES])
                seen.add("torn" if len(page) == 2 else "kept" if page == {*b"2"} else "lost")
    assert seen == {"kept", "lost", "torn"}


def test_a_kill_keeps_the_page_cache_and_detaches_old_views() -> None:
    with World(1) as world:
        node = world.node("n", "10.0.0.1")
        view = node.runtime().segments.create("log", 100).view()
        view[:5] = b"hello"
        runtime = crashed(node, power_cut=False)
        view[:5] = b"ghost"
        assert bytes(runtime.segments.open("log").view()[:5]) == b"hello"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_file_is_durable_after_its_first_sync(seed: int) -> None:
    with World(seed) as world:
        node = world.node("n", "10.0.0.1")
        folder = node.runtime().segments.subdirectory("queue").subdirectory("0")
        run(world, node, folder.create("synced", 10).sync(0, 10))
        folder.create("unsynced", 10)
        runtime = crashed(node, power_cut=True)
        names = [name for name, _ in runtime.segments.subdirectory("queue").subdirectory("0").names()]
        assert names in (["synced"], ["synced", "unsynced"])
        assert runtime.segments.subdirectories() == ["queue"]
        assert runtime.segments.names() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replace_is_atomic_and_durable_on_return(seed: int) -> None:
    with World(seed) as world:
        node = world.node("n", "10.0.0.1")
        files = node.runtime().files
        run(world, node, files.replace("config/vote", b"old"))
        node.spawn(files.replace("config/vote", b"new"))
        world.loop.run_until_complete(asyncio.sleep(seed / 3_000))
        files = crashed(node, power_cut=seed % 2 == 0).files
        assert run(world, node, files.read("config/vote")) in (b"old", b"new")
        run(world, node, files.replace("config/vote", b"last"))
        files = crashed(node, power_cut=True).files
        assert run(world, node, files.read("config/vote")) == b"last"
        assert run(world, node, files.names("config")) == ["config/vote"]
        assert run(world, node, files.read("absent")) is None


def test_an_overwrite_needs_no_room_and_is_durable_only_on_return() -> None:
    left = set()
    for seed in range(60):
        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            files = node.runtime().files
            world.run(files.replace("epochs", b"old" * 400))
            node.disk.capacity_bytes = node.disk.used_bytes()
            node.spawn(files.overwrite("epochs", b"new" * 401))
            world.run_for_ms(seed % 3)
            files = crashed(node, power_cut=True).files
            left.add(world.run(files.read("epochs")))
            world.run(files.overwrite("epochs", b"last"))
            files = crashed(node, power_cut=True).files
            assert world.run(files.read("epochs")) == b"last"
    assert {b"old" * 400, b"new" * 401} < left, "and mixtures of both"


@pytest.mark.parametrize("write", ["replace", "overwrite"])
@pytest.mark.parametrize("seed", range(20))
def test_content_read_after_a_kill_survives_a_power_cut(seed: int, write: str) -> None:
    with World(seed) as world:
        node = world.node("n", "10.0.0.1")
        files = node.runtime().files
        world.run(files.replace("vote", b"old"))
        node.spawn(getattr(files, write)("vote", b"new"))
        world.run_for_ms(seed % 3)
        files = crashed(node, power_cut=False).files
        read = world.run(files.read("vote"))
        files = crashed(node, power_cut=True).files
        assert world.run(files.read("vote")) == read


def test_replaces_are_serialised_even_if_the_first_caller_is_cancelled() -> None:
    with World(2) as world:
        node = world.node("n", "10.0.0.1")
        files = node.runtime().files
        first = node.spawn(files.replace("f", b"1"))
        world.loop.run_until_complete(asyncio.sleep(0))
        first.cancel()
        run(world, node, files.replace("f", b"2"))
        assert node.disk.content("f") == b"2"


@pytest.mark.parametrize("seed", SEEDS)
def test_removals_and_deletions_are_durable_on_return(seed: int) -> None:
    with World(seed) as world:
        node = world.node("n", "10.0.0.1")
        runtime = node.runtime()
        run(world, node, runtime.files.replace("small", b"x"))
        run(world, node, runtime.segments.create("segment", 10).sync(0, 10))
        run(world, node, runtime.files.remove("small"))
        run(world, node, runtime.files.remove("absent"))
        run(world, node, runtime.segments.delete("segment"))
        with pytest.raises(FileNotFoundError):
            run(world, node, runtime.segments.delete("segment"))
        runtime = crashed(node, power_cut=True)
        assert run(world, node, runtime.files.names("")) == []


def test_a_directory_sync_makes_creations_durable() -> None:
    for seed in SEEDS:
        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            folder = node.runtime().segments.subdirectory("q")
            folder.create("a", 10)
            run(world, node, folder.sync_directory())
            assert crashed(node, power_cut=True).segments.subdirectory("q").names() == [("a", 10)]


def test_after_a_failed_sync_a_later_success_does_not_make_pages_durable() -> None:
    left = set()
    for seed in SEEDS:
        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            file: SegmentFile = node.runtime().segments.create("log", PAGE_BYTES)
            run(world, node, file.sync(0, 1))
            file.view()[:4] = b"gone"
            node.disk.fail_next("sync", OSError(errno.EIO, "Input/output error"))
            for _ in range(2):
                with pytest.raises(OSError, match="Input/output error"):
                    run(world, node, file.sync(0, 4))
            file = crashed(node, power_cut=False).segments.open("log")
            assert bytes(file.view()[:4]) == b"gone"
            run(world, node, file.sync(0, 4))  # the kernel counts the page as written
            file = crashed(node, power_cut=True).segments.open("log")
            left.add(bytes(file.view()[:4]))
    assert left == {b"gone", bytes(4)}


def test_a_full_disk_refuses_and_leaves_nothing_behind() -> None:
    with World(4) as world:
        node = world.node("n", "10.0.0.1")
        runtime = node.runtime()
        node.disk.capacity_bytes = 100
        runtime.segments.create("first", 60)
        with pytest.raises(OSError, match="No space left"):
            runtime.segments.create("second", 60)
        sparse = runtime.segments.create("sparse", 60, reserve=0)
        sparse.reserve(40)
        with pytest.raises(OSError, match="No space left"):
            sparse.reserve(41)
        with pytest.raises(OSError, match="No space left"):
            run(world, node, runtime.files.replace("small", b"x"))
        assert runtime.segments.names() == [("first", 60), ("sparse", 60)]


def test_faults_hit_the_named_operation_and_path_once() -> None:
    with World(5) as world:
        node = world.node("n", "10.0.0.1")
        files = node.runtime().files
        node.disk.fail_next("replace", OSError(errno.EIO, "Input/output error"), where="vote")
        run(world, node, files.replace("other", b"x"))
        with pytest.raises(OSError, match="Input/output error"):
            run(world, node, files.replace("vote", b"x"))
        run(world, node, files.replace("vote", b"y"))
        assert node.disk.content("vote") == b"y"


def test_a_slow_or_stalled_disk_delays_operations() -> None:
    with World(6) as world:
        node = world.node("n", "10.0.0.1")
        file = node.runtime().segments.create("log", 10)
        node.disk.slow_down(200, 300)
        run(world, node, file.sync(0, 10))
        assert 200 <= world.now_ms <= 300
        node.disk.stall(5_000)
        assert run(world, node, file.read_cold(2, 6)) == bytes(4)
        assert world.now_ms >= 5_200


def test_a_sync_keeps_what_the_view_held_at_the_call() -> None:
    with World(7) as world:
        node = world.node("n", "10.0.0.1")
        file = node.runtime().segments.create("log", 10)
        file.view()[:3] = b"one"
        syncing = node.spawn(file.sync(0, 3))
        world.run(asyncio.sleep(0))
        file.view()[:3] = b"two"
        world.run_until(syncing.done, 100)
        assert bytes(crashed(node, power_cut=True).segments.open("log").view()[:3]) in (b"one", b"two")


def test_a_store_is_locked_by_one_live_process() -> None:
    with World(8) as world:
        node = world.node("n", "10.0.0.1")
        first = node.runtime()
        first.lock.acquire()
        with pytest.raises(AssertionError, match="already holds"):
            first.lock.acquire()
        other = node.disk
        with pytest.raises(StoreLocked):
            other.lock(world.loop.outside)
        crashed(node, power_cut=False).lock.acquire()


def test_bad_names_are_refused() -> None:
    with World(9) as world:
        node = world.node("n", "10.0.0.1")
        with pytest.raises(BadFileName):
            run(world, node, node.runtime().files.read("../other"))


def test_wiping_and_bit_flips_are_durable() -> None:
    with World(10) as world:
        node = world.node("n", "10.0.0.1")
        runtime = node.runtime()
        run(world, node, runtime.files.replace("a/x", b"x"))
        run(world, node, runtime.files.replace("b/x", b"x"))
        node.disk.wipe("a/")
        node.disk.flip_bit("b/x", 0)
        crashed(node, power_cut=True)
        assert node.disk.content("a/x") is None and node.disk.content("b/x") == b"y"


def test_over_many_seeds_unsynced_names_are_kept_and_lost() -> None:
    created, renamed, deleted = set(), set(), set()
    for seed in range(40):
        with World(seed) as world:
            node = world.node("n", "10.0.0.1")
            runtime = node.runtime()
            run(world, node, runtime.files.replace("small", b"old"))
            run(world, node, runtime.segments.create("synced", 10).sync(0, 10))
            runtime.segments.create("unsynced", 10)
            node.spawn(runtime.files.replace("small", b"new"))
            node.spawn(runtime.segments.delete("synced"))
            world.run_until(lambda seen=node.disk: seen.content("small") == b"new", 100)  # type: ignore[misc]
            crashed(node, power_cut=True)
            created.add(node.disk.content("unsynced"))
            renamed.add(node.disk.content("small"))
            deleted.add(node.disk.content("synced"))
    assert created == {None, bytes(10)}
    assert renamed == {b"old", b"new"}
    assert deleted == {None, bytes(10)}


def test_a_synced_name_is_durable() -> None:
    with World(1) as world:
        node = world.node("n", "10.0.0.1")
        file = node.runtime().segments.create("log", PAGE_BYTES)
        assert not node.disk.is_durable("log") and not node.disk.is_durable("absent")
        run(world, node, file.sync(0, 1))
        assert node.disk.is_durable("log")


def test_the_page_cache_keeps_the_newest_files_of_a_folder() -> None:
    def looks(seed: int, name: str) -> list[bool]:
        with World(seed) as world:
            folder = world.node("n", "10.0.0.1").runtime().segments.subdirectory("log")
            folder.subdirectory("z").create("9", PAGE_BYTES)
            file, *_ = [folder.create(each, PAGE_BYTES) for each in (name, *({"1", "2", "3"} - {name}))]
            seen = []
            for _ in range(40):
                seen.append(file.is_cached(0, 1))
                world.run_for_ms(CACHED_US // 1000)
            return seen

    assert all(looks(1, "3")) and all(looks(1, "2"))
    assert set(looks(1, "1")) == {True, False}
    assert looks(1, "1") == looks(1, "1") != looks(2, "1")
