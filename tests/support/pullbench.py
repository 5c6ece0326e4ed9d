"""Pulls against a scripted store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from broker.clients.groups import ConsumerGroups
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.unsupportedrequests import UnsupportedRequests
from broker.pulls.admission import PullAdmission
from broker.pulls.direction import PullRouting
from broker.pulls.held import HeldPulls
from broker.pulls.processor import PullProcessor
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from messagestore.messages import GetResult, GetStatus, QueueEntry, TagFilter
from messagestore.properties import tag_hash
from mqruntime.tasks import Tasks
from remoting.bodies.topics import TopicConfig
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer


class RecordingRenewal:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, peer: Any, group: str) -> None:
        self.asked.append(group)

    def ask_first(self, peer: Any, group: str) -> None:
        """Does nothing: no client answers in these tests."""


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

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.messages)

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[QueueEntry]:
        seen = self.messages[offset : offset + count]
        return [QueueEntry(100 * at, 100, tag_hash(tag)) for at, (tag, _) in enumerate(seen, offset)]

    async def load(self, result: GetResult) -> None:
        raise AssertionError("no record is cold in these tests")

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool:
        return True

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        raise AssertionError("all records are in memory in these tests")


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
    early: ProvisionalSubscriptions = field(
        default_factory=lambda: ProvisionalSubscriptions(ConsumerGroups())
    )
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
                provisional=self.early,
                limits=self.limits,
            ),
            direction=PullRouting(
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
            unsupported=UnsupportedRequests(),
        )

    def pull(self, **fields: Any) -> RemotingCommand | None:
        """The answer to one pull, None while it is held."""
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
