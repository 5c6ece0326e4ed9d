"""Pulls against a scripted store."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, cast

import pytest

from broker.clients.refusals import REJECTED
from broker.clients.subscription import TAGS_CHARACTERS_MAX, tag_filter
from broker.pulls.direction import Direction
from broker.pulls.foundframe import frame_of
from messagestore.errors import QueueDamaged, RecordDamaged, StoreError
from messagestore.messages import GetResult, GetStatus, QueueGrew, TagFilter
from messagestore.properties import tag_hash
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.frame import encode
from remoting.headers.pull import PullMessageResponseHeader
from tests.support.pullbench import HOLD, Bench, Limits, Role, ScriptedQueues, pull


def test_a_reader_ahead_of_a_new_master_waits_for_messages_at_its_offset() -> None:
    bench = Bench(lists_former_epochs=False)
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=2, **HOLD) is None
    bench.queues.messages += [("A", b"two"), ("A", b"three")]
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert bench.peer.replies == []
    bench.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [bytes(reply.body or b"") for reply in bench.peer.replies] == [b"three"]


def test_found_messages_are_the_body_and_the_header_has_the_next_offset() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one"), ("B", b"two")]
    reply = bench.pull()
    assert reply is not None
    assert (reply.code, reply.remark, reply.opaque, reply.body) == (0, "FOUND", 7, b"onetwo")
    assert reply.ext == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.NO_MATCHED_MESSAGE, 1, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.MESSAGE_WAS_REMOVING, 1, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 1, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 1, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_OVERFLOW_ONE, 1, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_FOUND_NULL, 1, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_TOO_SMALL, 1, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 1, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
def test_every_status_of_the_store_has_its_code_and_a_full_header(
    status: GetStatus, offset: int, code: int
) -> None:
    bench = Bench()
    bench.queues.forced = status
    reply = bench.pull(queueOffset=offset)
    assert reply is not None
    assert (reply.code, reply.remark) == (code, status.value)
    assert {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"} <= set(reply.ext)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "write-only"}, ResponseCode.NO_PERMISSION),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "SQL92"}, ResponseCode.SYSTEM_ERROR),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"consumerGroup": ""}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_a_pull_that_cannot_be_served_is_refused_with_its_code(fields: dict[str, Any], code: int) -> None:
    reply = Bench().pull(**fields)
    assert reply is not None
    assert reply.code == code


def test_a_slave_refuses_readers() -> None:
    bench = Bench(role=Role(serves_reads=False))
    reply = bench.pull()
    assert reply is not None
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert (reply.remark or "").startswith("[REJECTREQUEST]")


def test_lite_pulls_and_unknown_groups_may_be_forbidden() -> None:
    reply = Bench(limits=Limits(lite_pull_message_enable=False)).pull(code=RequestCode.LITE_PULL_MESSAGE)
    assert reply is not None and reply.code == ResponseCode.NO_PERMISSION
    reply = Bench(auto_create_groups=False).pull()
    assert reply is not None and reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("model", ["BROADCASTING", "CLUSTERING"])
def test_a_broadcasting_pull_of_a_group_without_permission_is_refused(model: str) -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    wanted = [SubscriptionData("orders", "*", sub_version=5)]
    data = HeartbeatData("c1", [], [ConsumerData("CG", message_model=model, subscription_data_set=wanted)])
    bench.consumers.heartbeat(cast(Any, bench.peer), data, "JAVA", 479)
    reply = bench.pull(sysFlag=0, subVersion=5)
    assert reply is not None and reply.code == 0
    bench.groups.put(SubscriptionGroupConfig("CG", consume_broadcast_enable=False))
    reply = bench.pull(sysFlag=0, subVersion=5)
    assert reply is not None
    if model == "CLUSTERING":
        assert reply.code == 0
        return
    why = "the consumer group[CG] can not consume by broadcast way"
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, why)
    reply = bench.pull()
    assert reply is not None and reply.code == 0, "as in upstream, a pull with its own subscription is served"


def test_the_subscription_of_the_heartbeat_is_used_when_the_pull_has_none() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one"), ("B", b"two")]
    data = HeartbeatData(
        "c1", [], [ConsumerData("CG", subscription_data_set=[SubscriptionData("orders", "B", sub_version=5)])]
    )
    assert bench.consumers.heartbeat(cast(Any, bench.peer), data, "JAVA", 479) == ["CG"]
    reply = bench.pull(sysFlag=0, subVersion=5)
    assert reply is not None and reply.body == b"two"
    assert bench.renewal.asked == []
    newer = bench.pull(sysFlag=0, subVersion=6)
    assert newer is not None and newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert bench.renewal.asked == ["CG"]


def test_a_pull_commits_the_offset_it_brings() -> None:
    bench = Bench()
    bench.pull(sysFlag=5, commitOffset=9)
    assert bench.offsets.find("CG", "orders", 0) == 9


@pytest.mark.parametrize("size", [1, 100_000])
def test_the_frame_of_found_messages_equals_that_of_a_normal_reply(size: int) -> None:
    buffers = [memoryview(b"1" * size), memoryview(b"2" * size)]
    result = GetResult(GetStatus.FOUND, 2, 0, (1 << 63) - 1, 2, 0, [], buffers)
    direction = Direction(ResponseCode.SUCCESS, 100, 3)
    header = PullMessageResponseHeader(3, 100, 0, (1 << 63) - 1)
    reply = pull().reply(ResponseCode.SUCCESS, "FOUND", header, b"".join(buffers))
    written = frame_of(7, direction, result)
    assert b"".join(written) == b"".join(encode(reply))
    assert [buffer for buffer in written if buffer in buffers] == (buffers if size > 1 else []), (
        "small buffers are copied"
    )


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_a_subscription_to_everything_has_no_filter(expression: str | None) -> None:
    assert tag_filter(expression, None) is None


def test_a_tag_filter_matches_the_hashes_of_its_tags() -> None:
    wanted = tag_filter("TagA || TagB", "TAG")
    assert wanted is not None
    assert (wanted(tag_hash("TagA")), wanted(tag_hash("TagB")), wanted(tag_hash("TagC"))) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize("expression", ["||", "a||" * 1_001, "a" * (TAGS_CHARACTERS_MAX + 1)])
def test_a_tag_filter_refuses_lists_without_tags_and_long_ones(expression: str) -> None:
    with pytest.raises(HeaderError, match="is no list of up to 1000 tags"):
        tag_filter(expression, "TAG")


def test_a_tag_filter_refuses_other_expression_types() -> None:
    with pytest.raises(HeaderError):
        tag_filter("a > 5", "SQL92")


class DamagedQueues(ScriptedQueues):
    """Found messages are on disk only, and damaged there."""

    def __init__(self, damage: StoreError) -> None:
        super().__init__()
        self.damage = damage

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        return GetResult(GetStatus.FOUND, offset + 1, 0, 1, 1, 100, [(800, 100)], cold=True)

    async def load(self, result: GetResult) -> None:
        raise self.damage


@pytest.mark.parametrize(
    "damage",
    [
        RecordDamaged("00000000000000000000", 800, "the body has another CRC"),
        QueueDamaged("TopicTest", 0, 800, -5),
    ],
)
def test_a_damaged_record_or_queue_is_answered_with_an_error_that_names_it(damage: StoreError) -> None:
    bench = Bench(queues=DamagedQueues(damage))
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.SYSTEM_ERROR and reply.body is None
    assert reply.remark == str(damage)


class FarQueues(ScriptedQueues):
    """Its entries are on disk only, until `bring` reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: list[int] = []

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        assert self.brought, "the loop would wait for the disk"
        return super().get(topic, queue_id, offset, count, size, wanted)

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool:
        return bool(self.brought)

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        self.brought.append(queue_offset)


def test_cold_queue_entries_are_read_before_a_pull_is_answered() -> None:
    queues = FarQueues()
    queues.messages = [("TagA", b"far")]
    bench = Bench(queues=queues)
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert (reply.code, bytes(reply.body or b"")) == (ResponseCode.SUCCESS, b"far")
    assert queues.brought == [0]


class UnreadableQueues(FarQueues):
    """Its entries and records are on disk only, and the disk cannot read the records."""

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        return GetResult(GetStatus.FOUND, offset + 1, 0, 1, 1, 100, [(800, 100)], cold=True)

    async def load(self, result: GetResult) -> None:
        raise OSError(errno.EIO, "Input/output error", "commitlog/00000000000000000000")


def test_an_unreadable_disk_fails_the_pull_and_not_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(queues=UnreadableQueues())

    async def scenario() -> None:
        answer = bench.processor.handle(cast(Any, bench.peer), pull())
        assert answer is not None and not isinstance(answer, RemotingCommand)
        await answer
        while not bench.peer.replies and not bench.fatal:  # noqa: ASYNC110 - the task is one of the processor
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert not bench.fatal
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.SYSTEM_ERROR and "Input/output error" in (reply.remark or "")
    assert caplog.records[-1].getMessage() == "pull not answered"


def test_a_master_deposed_while_entries_are_read_answers_busy() -> None:
    queues = FarQueues()
    queues.messages = [("TagA", b"far")]
    bench = Bench(queues=queues)
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    bench.role.serves_reads, bench.role.is_slave = False, True
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
