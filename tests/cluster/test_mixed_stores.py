"""Raft mode that continues an old log of controller mode, so that both form one log on every member."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from messagestore.errors import LogsPart
from mqclient.message import decode_messages
from mqclient.producer import SendStatus
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.codes import RequestCode
from remoting.headers.messages import QueryMessageHeader, ViewMessageHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import HOSTS, MEMBERS, shows
from tests.cluster.mixedset import MixedSet, controlled_with, moved, old_files, stop_all
from tests.unit.raftstore.raftstores import FILE_BYTES, VECTORS

SEGMENT = 64 * 1024


@pytest.fixture
def world() -> Iterator[World]:
    with World(29) as world:
        yield world


def messages(name: str, count: int) -> list[bytes]:
    return [b"%s %d " % (name.encode(), number) + b"x" * (number * 37 % 900) for number in range(count)]


def divided_at(node: Node) -> int:
    divide_file = node.disk.content(next(path for path in node.disk.entries if path.endswith("/divide")))
    assert divide_file is not None
    return int(divide_file.decode().split("dividedCommitlogOffset=")[1].split("\n")[0])


def test_messages_of_the_old_log_and_new_ones_are_read_from_every_leader(world: World) -> None:
    before = messages("before", 300)
    group = moved(world, before)
    found = {node.name: old_files(node) for node in group.brokers}
    group.start_all()
    group.wait_for_master()
    divide = divided_at(group.brokers[0])
    assert divide == SEGMENT * len(found["broker-0"]) and len(found["broker-0"]) > 2
    for node in group.brokers:
        for path, content in old_files(node).items():
            earlier = found[node.name][path]
            end = len(earlier.rstrip(b"\0"))  # a file of the old log ends with its own blank
            assert content[:end] == earlier[:end]
    after = messages("after", 120)
    results = group.run(group.send_all(after))
    assert group.bodies() == sorted([*before, *after])
    assert all(group.app(node).store.queue_offset_skips() == 0 for node in group.brokers)
    assert {group.app(node).store.min_offset() for node in group.brokers} == {0}
    closed = {node.name: old_files(node) for node in group.brokers}
    for power_cut in (False, True):
        former = group.master
        former.kill(power_cut=power_cut)
        group.wait_for_master()
        assert group.bodies() == sorted([*before, *after])
        group.start(former)
        group.world.run_until(group.caught_up, 20_000)
    assert {node.name: old_files(node) for node in group.brokers} == closed
    assert results


def test_messages_are_found_by_id_and_key_on_both_sides_of_the_divide(world: World) -> None:
    group = moved(world, messages("before", 150))
    group.start_all()
    group.wait_for_master()

    async def send() -> None:
        async with group.client() as client:
            await client.producer("PG").send("orders", b"keyed", queue_id=1, properties={"KEYS": "k1"})

    group.run(send())
    group.run(group.send_all(messages("after", 50)))
    stored = group.run(group.read_all())
    divide = divided_at(group.brokers[0])
    sides = [[one for one in stored if (one.physical_offset < divide) is old] for old in (True, False)]
    assert all(sides)
    address = group.app(group.master).address
    for side in sides:
        for one in (side[0], side[len(side) // 2], side[-1]):
            reply = group.run(
                group.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(one.physical_offset))
            )
            (found,) = decode_messages(bytes(reply.body or b""))
            assert (found.body, found.queue_offset) == (one.body, one.queue_offset)
            unique = one.properties["UNIQ_KEY"]
            query = QueryMessageHeader("orders", unique, 1, 0, 1 << 62, True)
            reply = group.run(group.ask(address, RequestCode.QUERY_MESSAGE, query))
            (found,) = decode_messages(bytes(reply.body or b""))
            assert found.body == one.body
    offsets = sorted((one.queue_id, one.queue_offset) for one in stored)
    assert offsets == [
        (queue_id, number)
        for queue_id in range(4)
        for number in range(sum(1 for one in stored if one.queue_id == queue_id))
    ]


def test_retention_removes_the_old_log_before_ledger_files_and_queues_continue(world: World) -> None:
    group = moved(
        world, messages("before", 300),
        fileReservedSeconds=20, deleteWhen=";".join(f"{hour:02d}" for hour in range(24)), cleanResourceInterval=500,
    )  # fmt: skip
    group.start_all()
    group.wait_for_master()
    divide = divided_at(group.brokers[0])
    before = {topic: group.app(group.master).store.max_queue_offset(*topic) for topic in queues_of(group)}
    group.run(group.send_all(messages("after", 20)))
    seen: set[int] = set()

    def looks() -> bool:
        for node in group.brokers:
            begins = group.app(node).store.min_offset()
            seen.add(begins)
            ledger = [path for path in node.disk.entries if path.startswith("dledger-") and "/data/" in path]
            assert int(min(ledger).rpartition("/")[2]) == divide or not old_files(node)
        return all(not old_files(node) for node in group.brokers)

    world.run_until(looks, 60_000)
    assert {0, divide} <= seen and len(seen) > 2
    stop_all(world, group.brokers)
    group.start_all()  # the removed part stays removed
    group.wait_for_master()
    sent = messages("at the end", 20)
    group.run(group.send_all(sent))
    assert shows(group.app(group.master).store, sent)
    store = group.app(group.master).store
    assert store.queue_offset_skips() == 0
    assert all(store.max_queue_offset(*queue) >= end for queue, end in before.items())


def queues_of(group: MixedSet) -> list[tuple[str, int]]:
    return [("orders", queue_id) for queue_id in range(4)]


def test_members_with_different_old_logs_form_no_group(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """One member is missing acknowledged messages: a majority with it could lose them."""
    cluster = controlled_with(world, messages("before", 40), minInSyncReplicas=1)
    behind = cluster.slaves[0]
    behind.kill()
    cluster.run(cluster.send_all(messages("without it", 5)))
    rest = [node for node in cluster.brokers if node not in (behind, cluster.master)]
    stop_all(world, [*rest, cluster.master])
    group = MixedSet(world, cluster.brokers, cluster._client_node)
    group.start_all()
    world.run_for_ms(20_000)
    assert group.masters == []
    refusals = [text for text in caplog.messages if "its log continues another one" in text]
    assert any(f"refused by n{cluster.brokers.index(behind)}" in text for text in refusals)
    assert "put its own aside" in refusals[0] and "commitlog up to 65536, whose records end at" in refusals[0]
    for path, content in old_files(rest[0]).items():  # the remedy of the log line
        behind.disk.put(path, content)
    divide_file = rest[0].disk.content(f"dledger-n{cluster.brokers.index(rest[0])}/divide")
    assert divide_file is not None
    behind.kill()
    behind.disk.drop("dledger-")
    behind.disk.drop("consumequeue")
    behind.disk.drop("checkpoint")
    group.start(behind)
    group.wait_for_master()
    assert len(group.bodies()) == 45


def test_a_member_whose_old_log_is_missing_files_does_not_start(world: World) -> None:
    group = moved(world, messages("before", 300))
    group.start_all()
    group.wait_for_master()
    robbed = group.master
    stop_all(world, group.brokers)
    last = max(old_files(robbed))
    robbed.disk.drop(last)
    group.start(robbed)
    world.run_for_ms(100)
    assert isinstance(robbed.failure, LogsPart) and robbed.failure.ends == int(last[-20:])


@pytest.mark.parametrize("left", ["clean", "killed", "without its plain log"])
def test_a_mixed_store_of_a_java_broker_is_continued(left: str, world: World) -> None:
    store = VECTORS / "mixed"
    namesrv = world.node("namesrv", "10.0.3.1")
    namesrv.start(lambda runtime: NamesrvApp(NamesrvSettings(bindAddress="10.0.3.1"), runtime))
    node = world.node("broker-0", HOSTS[0])
    for path in sorted(store.rglob("*")):
        name = str(path.relative_to(store)).removesuffix(".gz")
        if path.suffix == ".gz" and "/index/" not in name:
            node.disk.put(name, gzip.decompress(path.read_bytes()).ljust(FILE_BYTES, b"\0"))
        elif path.is_file() and path.suffix != ".gz":
            node.disk.put(name, path.read_bytes())
    if left == "killed":
        node.disk.put("abort", b"")
    if left == "without its plain log":
        node.disk.drop("commitlog")
    plain = old_files(node)
    group = MixedSet(
        world, [node], world.node("client", "10.0.4.1"),
        dLegerPeers=f"n0-{MEMBERS['n0']}", mappedFileSizeCommitLog=FILE_BYTES, maxMessageSize=4096,
    )  # fmt: skip
    divide = 3 * FILE_BYTES
    for _ in range(2):
        group.start(node)
        group.wait_for_master()
        kept = read_from_min(group)
        assert old_files(node) == plain and divided_at(node) == divide
        if plain:
            assert len(kept) == 84
            assert kept[0, 0] == b"old 0 ".ljust(200, b".")
        else:
            assert len(kept) == 43 and group.app(node).store.min_offset() == divide
        assert group.app(node).store.queue_offset_skips() == 0
        node.kill()
    group.start(node)
    group.wait_for_master()

    async def send() -> None:
        async with group.client() as client:
            assert (await client.producer("PG").send("Orders", b"end")).status is SendStatus.SEND_OK

    group.run(send())
    assert read_from_min(group).keys() > kept.keys()


def read_from_min(group: MixedSet) -> dict[tuple[int, int], bytes]:
    """The bodies of topic Orders, by queue and offset."""

    async def read() -> dict[tuple[int, int], bytes]:
        found = {}
        async with group.client() as client:
            consumer = client.consumer("readers")
            for queue in await consumer.queues("Orders"):
                begin, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                async for message in consumer.read(queue, begin, end):
                    found[message.queue_id, message.queue_offset] = message.plain_body()
        return found

    found: dict[tuple[int, int], bytes] = group.run(read())
    return found


def test_an_emptied_member_gets_both_logs_despite_kills_and_power_cuts(world: World) -> None:
    group = moved(world, messages("before", 300))
    group.start_all()
    group.wait_for_master()
    group.run(group.send_all(messages("after", 30)))
    emptied = group.slaves[0]
    others = [node for node in group.brokers if node is not emptied]
    wanted = old_files(group.master)
    emptied.kill()
    emptied.disk.wipe()
    for copied, power_cut in ((2, False), (3, True), (1, True), (4, False)):
        group.start(emptied)
        world.run_until(lambda copied=copied: len(old_files(emptied)) == copied, 30_000)
        assert old_files(emptied) != wanted
        emptied.kill(power_cut=power_cut)
    group.start(emptied)
    world.run_until(lambda: not emptied.running, 30_000)  # it has copied the log, and reopens its store
    assert emptied.failure is None
    assert old_files(emptied) == wanted
    group.start(emptied)
    world.run_until(group.caught_up, 30_000)
    assert group.app(emptied).store.min_offset() == 0
    sent = messages("at the end", 10)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 30_000)
    store = group.app(emptied).store
    for queue in queues_of(group):
        assert store.entries(*queue, 0, 500) == group.app(group.master).store.entries(*queue, 0, 500)
    assert shows(store, sent) and len(others) == 2


def test_a_set_starts_with_an_empty_member(world: World) -> None:
    """As when a replica is added together with the change of mode."""
    group = moved(world, messages("before", 100))
    empty = group.brokers[1]
    empty.disk.wipe()
    group.start_all()
    world.run_until(lambda: not empty.running, 30_000)
    assert group.masters == [] and empty.failure is None
    group.start(empty)
    group.wait_for_master()
    assert len(group.bodies()) == 100
    assert old_files(empty) == old_files(group.brokers[0])


def test_an_emptied_member_restores_queue_ends_after_the_old_log_is_gone(world: World) -> None:
    group = moved(
        world, messages("before", 300),
        fileReservedSeconds=20, deleteWhen=";".join(f"{hour:02d}" for hour in range(24)), cleanResourceInterval=500,
    )  # fmt: skip
    group.start_all()
    group.wait_for_master()
    group.run(group.send_all(messages("after", 3)))
    world.run_until(lambda: not any(old_files(node) for node in group.brokers), 60_000)
    ends = {queue: group.app(group.master).store.max_queue_offset(*queue) for queue in queues_of(group)}
    emptied = group.master
    emptied.kill()
    emptied.disk.wipe()
    group.wait_for_master()
    group.start(emptied)
    world.run_until(lambda: not emptied.running, 30_000)
    group.start(emptied)
    world.run_until(group.caught_up, 30_000)
    store = group.app(emptied).store
    assert {queue: store.max_queue_offset(*queue) for queue in queues_of(group)} == ends
    assert store.min_offset() == divided_at(emptied)
