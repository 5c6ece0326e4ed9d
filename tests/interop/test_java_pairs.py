"""Pairs without controllers: one half a broker of Apache RocketMQ 5.3.3, the other ours, over a name server of ours.

Each test starts a JVM or two; files of the log are compared byte for byte."""

from __future__ import annotations

import asyncio
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from messagestore.record import FIXED_PARTS
from messagestore.recordcrc import HEAD
from mqadmin.cli import admin
from mqclient.errors import ClientError
from mqclient.producer import SendStatus
from scripts.peers.javapeer import broker_missing
from scripts.peers.javaserver import NO_SPIN
from tests.interop.javabroker import java_broker
from tests.realpair import SEGMENT_BYTES, TOPIC, RealPair, bodies, ours
from tests.unit.messagestore.storehelp import message, open_store, small_settings

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]

JAVA = {
    "inSyncReplicas": 2,  # without it a Java SYNC_MASTER waits for nobody
    "timerWheelEnable": "false",
    **NO_SPIN,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "haSendHeartbeatInterval": 1_000,
    "sendMessageThreadPoolNums": 2,
    "slaveTimeout": 500,
    "flushDiskType": "ASYNC_FLUSH",
    "slaveReadEnable": "true",
}


def has_topic(pair: RealPair, number: int) -> bool:
    """Whether the slave's own file has the topic."""
    file = pair.store(number) / "config/topics.json"
    return file.exists() and TOPIC.encode() in file.read_bytes()


def level(pair: RealPair) -> bool:
    """Both logs read the same from where the slave's begins; files beyond the end are made ahead."""
    master, slave = pair.log(0), pair.log(1)
    begins = min(slave, default=0)
    contents = [
        b"".join(log[at] for at in sorted(log) if at >= begins).rstrip(b"\0") for log in (master, slave)
    ]
    return contents[0] == contents[1] != b""


def test_our_slave_follows_a_java_master_through_kills_of_either(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [java_broker, ours], **JAVA) as pair:
        pair.start(0)
        pair.create_topic()
        pair.start(1)
        sent = bodies("first", 100)
        pair.send_until_acknowledged(sent[0])
        assert {result.status for result in pair.send(*sent[1:])} == {SendStatus.SEND_OK}
        pair.kill("broker-1")
        missed = bodies("missed", 10)
        pair.start(1)
        pair.send_until_acknowledged(*missed)
        pair.kill("broker-0")
        pair.start(0)
        after = bodies("after", 20)
        pair.send_until_acknowledged(*after)
        assert {message.body for message in pair.read()} >= {*sent, *missed, *after}
        pair.wait_for(lambda: level(pair))
        pair.wait_for(lambda: has_topic(pair, 1))
        our_mqadmin_works_with_a_java_broker(pair, tmp_path)
        pair.kill("broker-0")
        pair.wait_for(partial(holds, pair, {*after}, number=1))


def our_mqadmin_works_with_a_java_broker(pair: RealPair, folder: Path) -> None:
    """What ours asks brokers for, a Java one answers as ours do."""

    def told(line: str) -> dict[str, Any]:
        result = CliRunner().invoke(admin, [*line.split(), "-n", pair.namesrv, "--json"], prog_name="mqadmin")
        assert result.exit_code == 0, result.output
        return dict(orjson.loads(result.stdout))

    master, (cluster, name) = pair.address(0), ("DefaultCluster", "broker-a")
    topics, groups = folder / "topics.json", folder / "groups.json"
    topics.write_text('[{"topicName": "Listed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]')
    groups.write_text('[{"groupName": "Listed"}]')
    assert told(f"updateTopicList -b {master} -f {topics}")["brokers"] == [master]
    assert told(f"updateSubGroupList -b {master} -f {groups}")["brokers"] == [master]
    assert told("getConsumerConfig -g Listed")["configs"][0]["groupName"] == "Listed"
    [changed] = told(f"updateTopicPerm -c {cluster} -t {TOPIC} -p 4")["brokers"]
    assert (changed["permBefore"], changed["perm"]) == (6, 4)
    told(f"updateTopicPerm -c {cluster} -t {TOPIC} -p 6")
    assert told(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {master}")["maxQueueIndex"] > 0
    messages = told(f"printMsgByQueue -t {TOPIC} -a {name} -i 0 -p true")["messages"]
    newest = messages[-1]["msgId"]  # of what was there before it was killed Java's index may lack any
    assert told(f"queryMsgByUniqueKey -t {TOPIC} -i {newest}")["messages"][0]["topic"] == TOPIC
    told(f"resetOffsetByTime -g Listed -t {TOPIC} -s now")
    told(f"cloneGroupOffset -s Listed -d Cloned -t {TOPIC}")
    assert told(f"skipAccumulatedMessage -g Listed -t {TOPIC}")["queues"]
    assert told(f"brokerConsumeStats -b {master}")["totalDiff"] >= 0
    assert told(f"statsAll -t {TOPIC}")["topics"][0]["topic"] == TOPIC
    assert "groups" in told(f"producer -b {master}")
    assert told(f"exportMetadata -c {cluster} -f {folder}")["topicConfigTable"].keys() >= {TOPIC, "Listed"}
    assert told(f"exportMetrics -c {cluster} -f {folder}")["evaluateReport"].keys() == {name}
    assert told(f"exportConfigs -c {cluster} -f {folder}")["clusterScale"]["masterBrokerSize"] == 1
    assert told("clusterRT -a 2 --once")["brokers"][0]["success"] == 2


def test_a_java_slave_follows_our_master_through_kills_of_either(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [ours, java_broker], **JAVA) as pair:
        pair.start(0)
        pair.create_topic()
        pair.start(1)
        sent = bodies("first", 100)
        pair.send_until_acknowledged(sent[0])
        assert {result.status for result in pair.send(*sent[1:])} == {SendStatus.SEND_OK}
        pair.kill("broker-1")
        missed = bodies("missed", 10)
        assert SendStatus.SEND_OK not in {result.status for result in pair.send_at_once(*missed)}
        pair.start(1)
        pair.wait_for(lambda: pair.slaves_level() == 1)
        pair.kill("broker-0")
        pair.start(0)
        after = bodies("after", 20)
        pair.send_until_acknowledged(*after)
        assert {message.body for message in pair.read()} >= {*sent, *missed, *after}
        pair.wait_for(lambda: pair.slaves_level() == 1)
        pair.wait_for(lambda: level(pair))
        pair.wait_for(lambda: has_topic(pair, 1))  # Java's copies tables for the first time after a minute
        table = orjson.loads((pair.store(1) / "config/topics.json").read_bytes())["topicConfigTable"]
        assert table[TOPIC]["writeQueueNums"] == 2
        held = {message.body for message in pair.read()}
        pair.kill("broker-0")
        pair.wait_for(partial(holds, pair, {*after}, number=1))
        assert pair.read_at(1) <= held


def test_our_slave_stays_out_when_a_java_master_comes_back_with_another_log(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [java_broker, ours], **JAVA) as pair:
        pair.start(0)
        pair.create_topic()
        pair.start(1)
        pair.send_until_acknowledged(*bodies("first", 20))
        pair.kill("broker-0")
        shutil.rmtree(pair.store(0))
        held = pair.log(1)
        pair.start(0)
        pair.create_topic()
        pair.wait_for(lambda: "does not follow its master" in pair.said(1))

        def sent_and_not_acknowledged() -> bool:
            try:
                results = pair.send_at_once(*bodies("second", 10, 1_000))
            except ClientError:
                return False  # a Java broker on a slow machine sends what waited for 200 ms away
            assert SendStatus.SEND_OK not in {result.status for result in results}
            return True

        for _ in range(4):  # more than the slave holds: upstream's would go on there
            pair.wait_for(sent_and_not_acknowledged)
        assert pair.log(1) == held


TURNS = [(java_broker, None), (ours, signal.SIGKILL), (java_broker, signal.SIGTERM), (ours, signal.SIGTERM)]
"""Who has the store, and how the one before ended; at last Java's again."""


@pytest.mark.long
def test_a_java_store_goes_on_in_ours_and_in_javas_again(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [java_broker], **{**JAVA, "brokerRole": "ASYNC_MASTER"}) as pair:
        sent: list[bytes] = []
        for turn, (command, ending) in enumerate([*TURNS, (java_broker, signal.SIGKILL)]):
            before: dict[tuple[int, int], bytes] = {}
            if ending is not None:
                before = places(pair)
                pair.kill("broker-0", ending)
            pair.commands[0] = command
            pair.start(0)
            if turn == 0:
                pair.create_topic()
            pair.wait_for(partial(is_as, pair, before))
            more = bodies(f"turn {turn}", 90)  # longer than a file of the log
            pair.send_until_acknowledged(*more)
            sent += more
        held = places(pair)
        assert {*held.values()} == {*sent}
        for queue_id in (0, 1):
            offsets = sorted(offset for queue, offset in held if queue == queue_id)
            assert offsets == list(range(len(offsets)))


def holds(pair: RealPair, bodies: set[bytes], number: int = 0) -> bool:
    return pair.read_at(number) >= bodies


def is_as(pair: RealPair, before: dict[tuple[int, int], bytes]) -> bool:
    return places(pair) == before


def places(pair: RealPair) -> dict[tuple[int, int], bytes]:
    """Body by queue and offset; nothing while clients know no way."""
    try:
        return {(message.queue_id, message.queue_offset): message.body for message in pair.read()}
    except ClientError:
        return {}


def test_java_lists_what_no_queue_lists_in_a_store_that_ours_closed(tmp_path: Path) -> None:
    """By CommitLog.recoverNormally it would pass over the first of these messages, and list the others in its place."""
    with RealPair(tmp_path / "pair", [java_broker], **{**JAVA, "brokerRole": "ASYNC_MASTER"}) as pair:
        sent = bodies("first", 6)
        asyncio.run(closed_with_unlisted(pair.store(0), sent, listed=2))
        pair.start(0)
        pair.create_topic(queues=1)
        after = bodies("after", 1)
        pair.send_until_acknowledged(*after)
        assert places(pair) == {(0, offset): body for offset, body in enumerate([*sent, *after])}


async def closed_with_unlisted(root: Path, bodies: list[bytes], *, listed: int) -> None:
    """As a slave leaves its store that was not told yet that the rest is confirmed."""
    settings = small_settings(mapped_file_size_commit_log=SEGMENT_BYTES, mapped_file_size_consume_queue=6_000)
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    appended = store.append([message(body, topic=TOPIC) for body in bodies])
    store.set_confirm_offset(appended[listed - 1].end_offset)
    while store.dispatch():
        pass
    await store.stop()


@pytest.mark.parametrize("rotten", [False, True])
def test_a_java_broker_verifies_the_record_crcs_that_ours_wrote(tmp_path: Path, rotten: bool) -> None:
    """After a kill it keeps what is in front of the first record that contradicts its CRC."""
    with RealPair(tmp_path / "pair", [ours], **{**JAVA, "brokerRole": "ASYNC_MASTER"}) as pair:
        pair.start(0, enabledAppendPropCRC="true")
        pair.create_topic(queues=1)
        sent = bodies("first", 30)
        pair.send_until_acknowledged(*sent)
        pair.kill("broker-0")
        content = b"".join(pair.log(0).values())
        assert content.count(HEAD) >= len(sent)
        if rotten:
            at = (
                content.index(sent[20]) - FIXED_PARTS[0].size + 19
            )  # the application's flag, which nothing else covers
            segment = pair.store(0) / "commitlog" / f"{at - at % SEGMENT_BYTES:020d}"
            held = bytearray(segment.read_bytes())
            held[at % SEGMENT_BYTES] ^= 1
            segment.write_bytes(held)
        pair.commands[0] = java_broker
        pair.start(0, forceVerifyPropCRC="true")
        after = bodies("after", 1)
        pair.send_until_acknowledged(*after)
        assert {message.body for message in pair.read()} == {*(sent[:20] if rotten else sent), *after}
