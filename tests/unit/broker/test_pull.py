"""Pulls and held pulls against a scripted store."""

from __future__ import annotations

import asyncio
import errno
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from broker.clients.early import EarlySubscriptions
from broker.clients.groups import ConsumerGroups
from broker.clients.refusals import REJECTED
from broker.clients.subscription import tag_filter
from broker.clients.unserved import Unserved
from broker.pulls import held as held_pulls
from broker.pulls.admission import PullAdmission
from broker.pulls.direction import Answer, Direction
from broker.pulls.foundframe import frame_of
from broker.pulls.held import HeldPull, HeldPulls
from broker.pulls.processor import PullProcessor
from broker.pulls.request import PullRequest
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from messagestore.errors import QueueDamaged, RecordDamaged, StoreError
from messagestore.messages import GetResult, GetStatus, QueueEntry, QueueGrew, TagFilter
from messagestore.properties import tag_hash
from mqruntime.tasks import Tasks
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.bodies.topics import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.frame import encode
from remoting.headers.pull import PullMessageResponseHeader
from tests.unit.broker.recordingpeer import RecordingPeer
from tests.unit.doubles import ManualClock


class RecordingRenewal:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, peer: Any, group: str) -> None:
        self.asked.append(group)

    def ask_first(self, peer: Any, group: str) -> None:
        """There is nobody to ask."""


class ScriptedQueues:
    """One queue of messages, each a tag and a body."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.forced: GetStatus | None = None

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        end = len(self.messages)
        if self.forced is not None:
            return GetResult(self.forced, offset, 0, end)
        if end == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, 0, end)
        if offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, 0, end)
        seen = self.messages[offset : offset + count]
        found = [memoryview(body) for tag, body in seen if wanted is None or wanted(tag_hash(tag))]
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, offset + len(seen), 0, end, len(found), 0, [], found)

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[QueueEntry]:
        seen = self.messages[offset : offset + count]
        return [QueueEntry(100 * at, 100, tag_hash(tag)) for at, (tag, _) in enumerate(seen, offset)]

    async def load(self, result: GetResult) -> None:
        raise AssertionError("nothing is cold here")

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool:
        return True

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        raise AssertionError("all is at hand here")


@dataclass
class Limits:
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    lite_pull_message_enable: bool = True
    max_transfer_bytes: int = 1 << 18
    max_transfer_count: int = 32
    slave_read_enable: bool = False
    broker_permission: int = 6
    access_message_in_memory_max_ratio: int = 40
    enable_property_filter: bool = False


@dataclass
class Role:
    serves_reads: bool = True
    is_slave: bool = False


@dataclass
class Bench:
    clock: ManualClock = field(default_factory=ManualClock)
    queues: ScriptedQueues = field(default_factory=ScriptedQueues)
    role: Role = field(default_factory=Role)
    limits: Limits = field(default_factory=Limits)
    held: HeldPulls = field(default_factory=lambda: HeldPulls(10))
    consumers: ConsumerGroups = field(default_factory=ConsumerGroups)
    offsets: ConsumerOffsets = field(default_factory=ConsumerOffsets)
    renewal: Any = field(default_factory=RecordingRenewal)
    early: EarlySubscriptions = field(default_factory=lambda: EarlySubscriptions(ConsumerGroups()))
    peer: RecordingPeer = field(default_factory=RecordingPeer)
    auto_create_groups: bool = True
    lists_former_epochs: bool = True
    fatal: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = Topics(self.clock, [], lambda: None)
        self.topics.ensure("orders", 4)
        self.topics.put(TopicConfig("write-only", 1, 1, perm=2))
        self.groups = SubscriptionGroups(
            self.clock, auto_create=self.auto_create_groups, on_change=lambda: None
        )
        self.processor = PullProcessor(
            store=self.queues,
            admission=PullAdmission(
                reading=self.role,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                early=self.early,
                limits=self.limits,
            ),
            direction=Direction(
                self.role,
                self.limits,
                self.groups,
                memory_bytes=0,
                log_end=lambda: 0,
                master_is_there=lambda: False,
                lists_former_epochs=lambda: self.lists_former_epochs,
            ),
            offsets=self.offsets,
            held=self.held,
            clock=self.clock,
            polling=self.limits,
            renewal=self.renewal,
            tasks=Tasks(self.fatal.append),
            unserved=Unserved(),
        )

    def pull(self, **fields: Any) -> RemotingCommand | None:
        """The answer of one pull, None while it is held."""
        before = len(self.peer.replies)
        answer = self.processor.handle(cast(Any, self.peer), pull(**fields))
        assert answer is None or isinstance(answer, RemotingCommand)
        return answer or (self.peer.replies[-1] if len(self.peer.replies) > before else None)


def pull(**fields: Any) -> RemotingCommand:
    ext = {
        "consumerGroup": "CG", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    changed = {key: str(value) for key, value in fields.items() if key != "code"}
    return RemotingCommand(fields.get("code", RequestCode.PULL_MESSAGE), 7, ext=ext | changed)


HOLD = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


def test_a_reader_ahead_of_a_new_master_waits_for_what_comes_next() -> None:
    bench = Bench(lists_former_epochs=False)
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=2, **HOLD) is None
    bench.queues.messages += [("A", b"two"), ("A", b"three")]
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert bench.peer.replies == []
    bench.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [bytes(reply.body or b"") for reply in bench.peer.replies] == [b"three"]


def test_found_messages_are_the_body_and_the_header_says_where_to_go_on() -> None:
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
def test_a_pull_that_cannot_be_served_says_why(fields: dict[str, Any], code: int) -> None:
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


def test_the_subscription_of_the_heartbeat_counts_when_the_pull_brings_none() -> None:
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


def test_a_pull_at_the_end_is_held_and_answered_by_the_next_message() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=1, **HOLD) is None
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert [reply.body for reply in bench.peer.replies] == [b"two"]
    assert len(bench.held) == 0


def test_what_came_with_a_held_pull_is_not_kept() -> None:
    """A client may send 16 MiB with each of the 100,000 that are held."""
    bench = Bench(held=HeldPulls(16))
    bench.queues.messages = [("A", b"one")]
    tracemalloc.start()
    for _ in range(16):
        asked = pull(queueOffset=1, **HOLD, z="z" * (64 << 10))
        asked.body = bytes(1 << 20)
        assert bench.processor.handle(cast(Any, bench.peer), asked) is None
        del asked
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bench.held) == 16 and kept < 1 << 20
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert [(reply.opaque, reply.body) for reply in bench.peer.replies] == [(7, b"two")] * 16


def test_a_held_pull_sleeps_through_messages_that_it_does_not_want() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    assert bench.pull(queueOffset=1, subscription="B", **HOLD) is None
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    assert bench.peer.replies == []
    bench.queues.messages.append(("B", b"three"))
    bench.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [reply.body for reply in bench.peer.replies] == [b"three"]


def test_a_held_pull_ends_with_its_time_and_tells_how_far_it_looked() -> None:
    bench = Bench()
    bench.queues.messages = [("A", b"one")]
    bench.pull(queueOffset=1, subscription="B", **HOLD)
    bench.queues.messages.append(("A", b"two"))
    bench.processor.arrived([QueueGrew("orders", 0, 2)])
    bench.processor.expire(14_999)
    assert bench.peer.replies == []
    bench.processor.expire(15_000)
    (reply,) = bench.peer.replies
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


def test_a_pull_that_nothing_came_for_ends_with_not_found() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.processor.expire(15_000)
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.PULL_NOT_FOUND]


def close_the_broker(bench: Bench) -> None:
    bench.limits.broker_permission = 2


def close_the_topic(bench: Bench) -> None:
    bench.topics.put(TopicConfig("orders", 4, 4, perm=2))


def shrink_the_topic(bench: Bench) -> None:
    bench.topics.put(TopicConfig("orders", 1, 1))


def delete_the_topic(bench: Bench) -> None:
    bench.topics.remove("orders")


def close_the_group(bench: Bench) -> None:
    bench.groups.put(SubscriptionGroupConfig("CG", consume_enable=False))


FORBIDDEN = [
    (close_the_broker, ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden"),
    (close_the_topic, ResponseCode.NO_PERMISSION, "the topic[orders] pulling message is forbidden"),
    (
        shrink_the_topic,
        ResponseCode.INVALID_PARAMETER,
        "queueId[3] is illegal, topic:[orders] topicConfig.readQueueNums:[1]",
    ),
    (delete_the_topic, ResponseCode.TOPIC_NOT_EXIST, "topic[orders] not exist, apply first please!"),
    (close_the_group, ResponseCode.NO_PERMISSION, "subscription group no permission, CG"),
]


@pytest.mark.parametrize(("forbid", "code", "why"), FORBIDDEN)
def test_what_is_forbidden_while_a_pull_waits_is_not_given_to_it(
    forbid: Callable[[Bench], None], code: ResponseCode, why: str
) -> None:
    bench = Bench()
    assert bench.pull(queueId=3, **HOLD) is None
    forbid(bench)
    bench.queues.messages = [("A", b"one")]
    bench.processor.arrived([QueueGrew("orders", 3, 1)])
    assert [(reply.code, reply.remark, reply.body) for reply in bench.peer.replies] == [(code, why, None)]
    assert len(bench.held) == 0


@pytest.mark.parametrize(("forbid", "code", "why"), FORBIDDEN)
def test_a_pull_whose_time_ends_hears_what_was_forbidden_meanwhile(
    forbid: Callable[[Bench], None], code: ResponseCode, why: str
) -> None:
    bench = Bench()
    assert bench.pull(queueId=3, **HOLD) is None
    forbid(bench)
    bench.processor.expire(15_000)
    assert [(reply.code, reply.remark) for reply in bench.peer.replies] == [(code, why)]


def test_without_long_polling_a_pull_waits_a_second() -> None:
    bench = Bench(limits=Limits(long_polling_enable=False))
    bench.pull(**HOLD)
    bench.processor.expire(1_000)
    assert len(bench.peer.replies) == 1


def test_held_pulls_are_bounded() -> None:
    bench = Bench(held=HeldPulls(1))
    assert bench.pull(**HOLD) is None
    reply = bench.pull(**HOLD)
    assert reply is not None and reply.code == ResponseCode.PULL_NOT_FOUND


def test_held_pulls_of_one_connection_are_bounded_and_others_wait_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_pulls, "PER_CONNECTION_MAX", 2)
    bench, stranger, other = Bench(), RecordingPeer(), RecordingPeer()
    handle = bench.processor.handle
    answers = [handle(cast(Any, stranger), pull(queueId=queue, **HOLD)) for queue in (0, 1, 0)]
    assert [cast(Any, each) and cast(Any, each).code for each in answers] == [
        None,
        None,
        ResponseCode.SYSTEM_BUSY,
    ]
    assert handle(cast(Any, other), pull(**HOLD)) is None
    bench.queues.messages = [("A", b"one")]
    found = handle(cast(Any, stranger), pull(**HOLD))
    assert found is None and [reply.code for reply in stranger.replies] == [0], "what is there is given"
    bench.processor.arrived([QueueGrew("orders", 0, 1)])
    assert [len(peer.replies) for peer in (stranger, other)] == [2, 1] and len(bench.held) == 1
    bench.queues.messages = []
    assert handle(cast(Any, stranger), pull(**HOLD)) is None, "it has room again"


class CountedPull(HeldPull):
    """How often held pulls were looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        CountedPull.looks += 1
        return super().__getattribute__(name)


def test_the_end_of_a_connection_costs_what_it_held() -> None:
    held, stranger, guest = HeldPulls(10_000), RecordingPeer(), RecordingPeer()
    for number in range(1_000):
        request = PullRequest(pull(), "CG", f"topic-{number % 7}", 0, 0, 32, 1 << 18, None, 0)
        held.hold(CountedPull(cast(Any, stranger), request, 15_000))
    held.hold(
        CountedPull(
            cast(Any, guest), PullRequest(pull(), "CG", "topic-0", 0, 0, 32, 1 << 18, None, 0), 15_000
        )
    )
    CountedPull.looks = 0
    held.release_of(cast(Any, guest))
    assert len(held) == 1_000 and CountedPull.looks < 10
    held.release_of(cast(Any, guest))
    held.release_of(cast(Any, stranger))
    assert len(held) == 0 and held.queues() == []


def test_a_connection_that_ends_takes_its_held_pulls_along() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.pull(queueId=1, **HOLD)
    (closed,) = bench.peer.close_callbacks
    closed(bench.peer)
    assert len(bench.held) == 0
    bench.processor.expire(1 << 40)
    assert bench.peer.replies == []


def test_a_broker_that_may_not_answer_any_more_sends_its_readers_away() -> None:
    bench = Bench()
    bench.pull(**HOLD)
    bench.processor.release_all()
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.SYSTEM_BUSY]


def test_answered_pulls_do_not_pile_up_behind_their_deadlines() -> None:
    held = HeldPulls(10)
    for _ in range(10_000):
        request = PullRequest(pull(), "CG", "orders", 0, 0, 32, 1 << 18, None, 0)
        waiting = HeldPull(cast(Any, RecordingPeer()), request, 15_000)
        held.hold(waiting)
        assert held.release(waiting)
        assert not held.release(waiting)
    assert len(held._deadlines) < 200


@pytest.mark.parametrize("size", [1, 100_000])
def test_the_frame_of_found_messages_is_that_of_any_reply(size: int) -> None:
    buffers = [memoryview(b"1" * size), memoryview(b"2" * size)]
    result = GetResult(GetStatus.FOUND, 2, 0, (1 << 63) - 1, 2, 0, [], buffers)
    said = Answer(ResponseCode.SUCCESS, 100, 3)
    header = PullMessageResponseHeader(3, 100, 0, (1 << 63) - 1)
    reply = pull().reply(ResponseCode.SUCCESS, "FOUND", header, b"".join(buffers))
    written = frame_of(7, said, result)
    assert b"".join(written) == b"".join(encode(reply))
    assert [buffer for buffer in written if buffer in buffers] == (buffers if size > 1 else []), (
        "copied when small"
    )


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_a_subscription_to_everything_has_no_filter(expression: str | None) -> None:
    assert tag_filter(expression, None) is None


def test_a_subscription_wants_the_hashes_of_its_tags() -> None:
    wanted = tag_filter("TagA || TagB", "TAG")
    assert wanted is not None
    assert (wanted(tag_hash("TagA")), wanted(tag_hash("TagB")), wanted(tag_hash("TagC"))) == (
        True,
        True,
        False,
    )


def test_what_is_no_tag_expression_is_refused() -> None:
    with pytest.raises(HeaderError):
        tag_filter("a > 5", "SQL92")


class RottenQueues(ScriptedQueues):
    """What is found has to be read from disk, and is damaged there."""

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
def test_what_is_damaged_is_answered_with_an_error_that_names_it(damage: StoreError) -> None:
    bench = Bench(queues=RottenQueues(damage))
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.SYSTEM_ERROR and reply.body is None
    assert reply.remark == str(damage)


class FarQueues(ScriptedQueues):
    """Its entries are on the disk only, until they are brought."""

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


def test_a_queue_that_the_page_cache_has_lost_is_read_before_a_pull_is_answered() -> None:
    queues = FarQueues()
    queues.messages = [("TagA", b"far")]
    bench = Bench(queues=queues)
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert (reply.code, bytes(reply.body or b"")) == (ResponseCode.SUCCESS, b"far")
    assert queues.brought == [0]


class FarRottenQueues(FarQueues):
    """Its entries are on the disk only, and so are the records, which the disk does not give."""

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        return GetResult(GetStatus.FOUND, offset + 1, 0, 1, 1, 100, [(800, 100)], cold=True)

    async def load(self, result: GetResult) -> None:
        raise OSError(errno.EIO, "Input/output error", "commitlog/00000000000000000000")


def test_a_disk_that_cannot_be_read_is_an_error_of_the_pull_and_not_of_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(queues=FarRottenQueues())

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


def test_who_stops_being_master_while_entries_are_read_answers_no_reader() -> None:
    queues = FarQueues()
    queues.messages = [("TagA", b"far")]
    bench = Bench(queues=queues)
    answer = bench.processor.handle(cast(Any, bench.peer), pull())
    assert answer is not None and not isinstance(answer, RemotingCommand)
    bench.role.serves_reads, bench.role.is_slave = False, True
    asyncio.run(answer)
    (reply,) = bench.peer.replies
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
