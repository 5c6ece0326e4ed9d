"""Pairs without controllers: a broker of Apache RocketMQ 5.3.3 and ours, with our name server.

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

from messagestore.record import FIXED_PARTS
from messagestore.recordcrc import HEAD
from mqclient.errors import ClientError
from mqclient.producer import SendStatus
from scripts.peers.javapeer import broker_missing
from scripts.peers.javaserver import NO_SPIN
from tests.interop.javabroker import java_broker
from tests.interop.ourmqadmin import json_of
from tests.support.realpair import SEGMENT_BYTES, TOPIC, RealPair, bodies, ours
from tests.unit.messagestore.storehelp import message, open_store, small_settings

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]

JAVA = {
    "inSyncReplicas": 2,  # without it a Java SYNC_MASTER does not wait for a slave
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


def caught_up(pair: RealPair) -> bool:
    """Whether both logs are equal from the start of the slave's; files after the end are made ahead."""
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
        pair.wait_for(lambda: caught_up(pair))
        pair.wait_for(lambda: has_topic(pair, 1))
        our_mqadmin_works_with_a_java_broker(pair, tmp_path)
        pair.kill("broker-0")
        pair.wait_for(partial(holds, pair, {*after}, number=1))


def our_mqadmin_works_with_a_java_broker(pair: RealPair, folder: Path) -> None:
    """A Java broker answers the requests of our mqadmin as our brokers do."""

    def mqadmin(line: str) -> Any:
        return json_of(pair.namesrv, *line.split())

    master, (cluster, name) = pair.address(0), ("DefaultCluster", "broker-a")
    topics, groups = folder / "topics.json", folder / "groups.json"
    topics.write_text('[{"topicName": "Listed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]')
    groups.write_text('[{"groupName": "Listed"}]')
    assert mqadmin(f"updateTopicList -b {master} -f {topics}")["brokers"] == [master]
    assert mqadmin(f"updateSubGroupList -b {master} -f {groups}")["brokers"] == [master]
    assert mqadmin("getConsumerConfig -g Listed")["configs"][0]["groupName"] == "Listed"
    [changed] = mqadmin(f"updateTopicPerm -c {cluster} -t {TOPIC} -p 4")["brokers"]
    assert (changed["permBefore"], changed["perm"]) == (6, 4)
    mqadmin(f"updateTopicPerm -c {cluster} -t {TOPIC} -p 6")
    assert mqadmin(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {master}")["maxQueueIndex"] > 0
    messages = mqadmin(f"printMsgByQueue -t {TOPIC} -a {name} -i 0 -p true")["messages"]
    newest = messages[-1]["msgId"]  # Java's index may miss messages from before the kill
    assert mqadmin(f"queryMsgByUniqueKey -t {TOPIC} -i {newest}")["messages"][0]["topic"] == TOPIC
    mqadmin(f"resetOffsetByTime -g Listed -t {TOPIC} -s now")
    mqadmin(f"cloneGroupOffset -s Listed -d Cloned -t {TOPIC}")
    assert mqadmin(f"skipAccumulatedMessage -g Listed -t {TOPIC}")["queues"]
    assert mqadmin(f"brokerConsumeStats -b {master}")["totalDiff"] >= 0
    assert mqadmin(f"statsAll -t {TOPIC}")["topics"][0]["topic"] == TOPIC
    assert "groups" in mqadmin(f"producer -b {master}")
    assert mqadmin(f"exportMetadata -c {cluster} -f {folder}")["topicConfigTable"].keys() >= {TOPIC, "Listed"}
    assert mqadmin(f"exportMetrics -c {cluster} -f {folder}")["evaluateReport"].keys() == {name}
    assert mqadmin(f"exportConfigs -c {cluster} -f {folder}")["clusterScale"]["masterBrokerSize"] == 1
    assert mqadmin("clusterRT -a 2 --once")["brokers"][0]["success"] == 2


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
        pair.wait_for(lambda: caught_up(pair))
        pair.wait_for(lambda: has_topic(pair, 1))  # Java's copies tables for the first time after a minute
        table = orjson.loads((pair.store(1) / "config/topics.json").read_bytes())["topicConfigTable"]
        assert table[TOPIC]["writeQueueNums"] == 2
        held = {message.body for message in pair.read()}
        pair.kill("broker-0")
        pair.wait_for(partial(holds, pair, {*after}, number=1))
        assert pair.read_at(1) <= held


def test_our_slave_refuses_a_java_master_that_returns_with_another_log(tmp_path: Path) -> None:
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
                return False  # a slow Java broker rejects sends that waited for 200 ms
            assert SendStatus.SEND_OK not in {result.status for result in results}
            return True

        for _ in range(4):  # more than the slave has: upstream's slave would continue there
            pair.wait_for(sent_and_not_acknowledged)
        assert pair.log(1) == held


TURNS = [(java_broker, None), (ours, signal.SIGKILL), (java_broker, signal.SIGTERM), (ours, signal.SIGTERM)]
"""The broker on the store, and the signal that ended the one before; Java's is last again."""


@pytest.mark.long
def test_a_java_store_is_continued_by_our_broker_and_by_java_again(tmp_path: Path) -> None:
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
    """The body by queue and offset; empty while clients find no broker."""
    try:
        return {(message.queue_id, message.queue_offset): message.body for message in pair.read()}
    except ClientError:
        return {}


def test_java_dispatches_records_that_our_broker_closed_without_queue_entries(tmp_path: Path) -> None:
    """CommitLog.recoverNormally would skip the first of these messages and dispatch the others in its
    place."""
    with RealPair(tmp_path / "pair", [java_broker], **{**JAVA, "brokerRole": "ASYNC_MASTER"}) as pair:
        sent = bodies("first", 6)
        asyncio.run(closed_with_unlisted(pair.store(0), sent, listed=2))
        pair.start(0)
        pair.create_topic(queues=1)
        after = bodies("after", 1)
        pair.send_until_acknowledged(*after)
        assert places(pair) == {(0, offset): body for offset, body in enumerate([*sent, *after])}


async def closed_with_unlisted(root: Path, bodies: list[bytes], *, listed: int) -> None:
    """Closes the store like a slave that does not know yet that the last records are confirmed."""
    settings = small_settings(mapped_file_size_commit_log=SEGMENT_BYTES, mapped_file_size_consume_queue=6_000)
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    appended = store.append([message(body, topic=TOPIC) for body in bodies])
    store.set_confirm_offset(appended[listed - 1].end_offset)
    while store.dispatch():
        pass
    await store.stop()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_java_broker_verifies_the_record_crcs_that_ours_wrote(tmp_path: Path, damaged: bool) -> None:
    """After a kill it keeps the records before the first one with a wrong CRC."""
    with RealPair(tmp_path / "pair", [ours], **{**JAVA, "brokerRole": "ASYNC_MASTER"}) as pair:
        pair.start(0, enabledAppendPropCRC="true")
        pair.create_topic(queues=1)
        sent = bodies("first", 30)
        pair.send_until_acknowledged(*sent)
        pair.kill("broker-0")
        content = b"".join(pair.log(0).values())
        assert content.count(HEAD) >= len(sent)
        if damaged:
            at = (
                content.index(sent[20]) - FIXED_PARTS[0].size + 19
            )  # the application's flag, which no other check covers
            segment = pair.store(0) / "commitlog" / f"{at - at % SEGMENT_BYTES:020d}"
            held = bytearray(segment.read_bytes())
            held[at % SEGMENT_BYTES] ^= 1
            segment.write_bytes(held)
        pair.commands[0] = java_broker
        pair.start(0, forceVerifyPropCRC="true")
        after = bodies("after", 1)
        pair.send_until_acknowledged(*after)
        assert {message.body for message in pair.read()} == {*(sent[:20] if damaged else sent), *after}
