"""Real Java controllers are replaced by ours on their own stores, and back: the steps of
docs/operations/java-controllers.md.

Our brokers keep running; the real mqadmin must show the same set before and after."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqadmin.admin import AdminClient
from scripts.peers.javapeer import broker_missing, controller_missing
from tests.interop.javaclient import JavaClient
from tests.interop.javacontrollers import Controllers
from tests.process.serverprocess import ENVIRONMENT

pytestmark = [pytest.mark.skipif(controller_missing() is not None, reason=str(controller_missing()))]

FIRST = "00000000000000000000"
NO_NAMESRV = "127.0.0.1:1"

JAVA_INDEX_BYTES = 5 * 1024 * 1024 * 32


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(NO_NAMESRV, tmp_path_factory.mktemp("home")) as client:
        yield client


@pytest.fixture
def group(tmp_path: Path, tools: JavaClient) -> Iterator[Controllers]:
    """Three Java controllers with a broker set of two, both in sync."""
    with Controllers(tmp_path / "group", tools) as made:
        for name in made.names:
            made.start_java(name)
        made.start_namesrv()
        made.leader()
        for number in range(2):
            made.start_broker(number)
        made.settle()
        yield made


def inspected(*stores: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dledger", "inspect", *map(str, stores)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """Index files have their maximum size; only the beginning is used."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes()[: 1 << 20] for path in files}


def start_ours_one_by_one(group: Controllers, *names: str) -> None:
    """Each has read its store and serves before the next starts."""
    for name in names:
        group.start_ours(name)

        async def serves(admin: AdminClient, address: str = group.addresses[name]) -> bool:
            await admin.controller_metadata(address)
            return True

        group.until(f"{name} serves", serves)


@pytest.mark.long
def test_a_stopped_java_controller_group_moves_to_ours_and_back(group: Controllers, tmp_path: Path) -> None:
    group.move_master()
    before = group.facts()
    group.end_all()
    for name in group.names:
        shutil.copytree(group.store(name), tmp_path / "back-up" / name)
    code, said = inspected(*(group.store(name) for name in group.names))
    assert code == 0 and said.count("of them Java's") == 3, said
    assert all(contents(group.store(name)) == contents(tmp_path / "back-up" / name) for name in group.names)

    start_ours_one_by_one(group, *group.names)
    assert group.facts() == before
    group.kill("broker-1")
    group.settle(1)
    group.start_broker(1)  # it keeps its id
    group.settle()
    ids = "".join(line for line in group.facts() if line.startswith("InSyncReplica"))
    assert "brokerId=1," in ids and "brokerId=2," in ids
    group.move_master()
    ours = group.facts()
    assert group.end_all() == [0, 0, 0]
    for name in group.names:  # also if Java's was stopped before its first entry and had no such file
        assert {path.stat().st_size for path in (group.member(name) / "index").iterdir()} == {
            JAVA_INDEX_BYTES
        }

    for name in group.names:
        group.start_java(name)
    group.leader()
    assert group.facts() == ours
    group.move_master()  # Java's leader commits again, and its entries are taken over too
    java = group.facts()
    group.end_all()
    start_ours_one_by_one(group, *group.names)
    assert group.facts() == java


def test_a_killed_java_controller_group_moves_to_ours(group: Controllers, tmp_path: Path) -> None:
    """One member is missing the last entries, and one has a damaged entry on its disk."""
    leader = group.leader()
    behind, third = (name for name in group.names if name != leader)
    group.kill(behind)
    group.move_master()
    before = group.facts()
    group.kill(leader)
    group.kill(third)
    code, said = inspected(*(group.store(name) for name in group.names))
    assert code == 0 and f"most is held by dledger-{behind}" not in said, said

    damaged = group.member(third) / "data" / FIRST
    data = bytearray(damaged.read_bytes())
    data[48 + 50] = ord("?")  # entry 1, behind an empty one of 48 bytes: the opening brace of its event
    damaged.write_bytes(data)
    code, said = inspected(*(group.store(name) for name in group.names))
    assert code == 1 and "entry 1 of term" in said and "the disk of one of them damaged it" in said, said
    left = contents(group.store(third))
    group.start_ours(third)
    assert group.exit_code(third) == 1
    refused = group.said(third)
    assert (
        f"dledger-{third}/data/{FIRST}: entry 1 at byte 48 is of no kind that is known; nothing was changed"
        in refused
    )
    after = contents(group.store(third))
    assert {name: after[name] for name in left} == left

    start_ours_one_by_one(group, behind, leader)
    assert group.leader() == leader, "the one with more entries"
    assert group.facts() == before
    group.member(third).rename(tmp_path / "aside")
    group.start_ours(third)
    group.until("the third one's vote", lambda admin: votes(group, third))
    assert group.facts() == before
    group.kill(leader)
    group.leader(other_than=leader)
    assert group.facts() == before


async def votes(group: Controllers, name: str) -> bool | None:
    return True if "votes from now on" in group.said(name) else None


@pytest.mark.long
def test_our_controller_does_not_join_running_java_controllers(group: Controllers) -> None:
    """Replacing one member while the others run loses nothing: after a stop all three move to ours."""
    before = group.facts()
    leader = group.leader()
    first = next(name for name in group.names if name != leader)
    group.kill(first)
    held = inspected(group.store(first))[1]
    group.start_ours(first)
    group.until("a word on it", lambda admin: heard(group, first))
    assert group.leader() != first
    group.end(first)
    assert [line for line in inspected(group.store(first))[1].split("\n") if "entries" in line] == [
        line for line in held.split("\n") if "entries" in line
    ]
    for name in group.names:
        if name != first:
            group.kill(name)
    start_ours_one_by_one(group, *group.names)
    assert group.facts() == before


async def heard(group: Controllers, name: str) -> bool | None:
    return True if " refused, logged once a minute: " in group.said(name) else None


@pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing()))
def test_a_java_broker_uses_a_controller_inside_its_name_server(tmp_path: Path, tools: JavaClient) -> None:
    """The Java broker is master before our replica, and the other way round after it was killed."""
    with Controllers(tmp_path / "group", tools, count=1) as group:
        group.start_embedded("n0")
        group.leader()
        group.start_broker(0, java=True)
        group.until("a master", lambda admin: mastered(admin, group, 1))
        group.start_broker(1)
        group.settle()
        shown = "".join(group.facts())
        assert "#MasterBrokerId\t1" in shown and shown.count("alive=true") == 2, shown
        assert "broker-a" in group.java_admin("clusterList", "-n", group.namesrv)
        assert group.end("n0") == 0
        group.start_embedded("n0")
        assert group.settle().master_id == 1
        group.kill("broker-0")
        group.until("another master", lambda admin: mastered(admin, group, 2))


async def mastered(admin: AdminClient, group: Controllers, broker_id: int) -> bool | None:
    state = (await admin.sync_states(group.list, ["broker-a"])).get("broker-a")
    return True if state is not None and state.master_id == broker_id else None
