"""A slave's copy of its master's tables: topics, groups, users and policies, and what was deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from remoting.bodies.access import AclInfo, AclTable, UserInfo, UserTable
from remoting.bodies.body import Body
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from remoting.bodies.offsets import OffsetReset, OffsetResetTable
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.errors import BodyError
from remoting.wirefields import I32, I64

QUEUE_ID_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Deletion(Body):
    """`name` was deleted: a topic with all offsets in it ("topic"), a group ("group") or all offsets of a group ("offsets").
    `epoch` is the masterEpoch, and `number` counts deletions across epochs. `log_end` is where the log ended when a topic
    was deleted. `timestamp` is wall clock ms."""

    kind: str
    name: str
    epoch: I32
    number: I64
    timestamp: I64 = 0
    log_end: I64 = 0

    @property
    def order(self) -> tuple[int, int]:
        """Later deletions have the greater order."""
        return (self.epoch, self.number)


@dataclass(slots=True)
class DeletionTable(Body):
    """The remembered deletions. Deletions up to (`forgotten_epoch`, `forgotten_number`) may be missing."""

    deletions: list[Deletion] = field(default_factory=list)
    forgotten_epoch: I32 = 0
    forgotten_number: I64 = 0


@dataclass(frozen=True, slots=True)
class QueueEnd(Body):
    """A queue of which retention has deleted all messages. Its next message gets the queue offset `end` or a higher one."""

    topic: str
    queue_id: I32
    end: I64


@dataclass(slots=True)
class QueueEndTable(Body):
    """The next offsets of queues whose messages were all deleted. A replica cannot find such an offset in its log, because the
    log begins after the queue's last message."""

    ends: list[QueueEnd] = field(default_factory=list)


@dataclass(slots=True)
class QueueLock(Body):
    """`client_id` alone reads this queue for `group`."""

    group: str
    topic: str
    queue_id: I32
    client_id: str


@dataclass
class QueueLockTable(Body):
    """The holders of queue locks. There may be 100,000 locks, so this class writes and reads the rows itself, and encodes
    them once for the file and all slaves."""

    locks: list[QueueLock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._written: bytes | None = None

    def to_json(self) -> Any:
        """The encoded table, which a JSON writer copies."""
        return orjson.Fragment(self.encode())

    def encode(self) -> bytes:
        if self._written is None:
            rows = [
                {
                    "clientId": lock.client_id,
                    "group": lock.group,
                    "queueId": lock.queue_id,
                    "topic": lock.topic,
                }
                for lock in self.locks
            ]
            self._written = orjson.dumps({"locks": rows})
        return self._written

    @classmethod
    def from_json(cls, value: Any, where: str = "") -> Self:
        """Raises BodyError."""
        where = where or cls.__name__
        if not isinstance(value, dict):
            raise BodyError(f"{where} is not a JSON object")
        rows = value.get("locks")
        if rows is None:
            return cls()
        if not isinstance(rows, list):
            raise BodyError(f"{where}.locks is not a JSON array")
        return cls([_queue_lock(row, where) for row in rows])


def _queue_lock(row: Any, where: str) -> QueueLock:
    """Read a row in the form that is written here. A row in another form is read as any body."""
    try:
        group, topic, queue_id, client_id = row["group"], row["topic"], row["queueId"], row["clientId"]
    except (KeyError, TypeError, IndexError):
        return QueueLock.from_json(row, f"{where}.locks[]")
    texts = type(group) is str and type(topic) is str and type(client_id) is str
    if texts and type(queue_id) is int and 0 <= queue_id <= QUEUE_ID_MAX:
        return QueueLock(group, topic, queue_id, client_id)
    return QueueLock.from_json(row, f"{where}.locks[]")


@dataclass(slots=True)
class TablesCopy(Body):
    """Reply to COPY_TABLES. A reply of an older version has no queue ends and no locks. `offset_resets` is present while
    moves are pending."""

    topics: TopicConfigWrapper
    groups: SubscriptionGroupWrapper
    deletions: DeletionTable
    queue_ends: QueueEndTable = field(default_factory=QueueEndTable)
    queue_locks: QueueLockTable = field(default_factory=QueueLockTable)
    offset_resets: OffsetResetTable | None = None
    users: UserTable = field(default_factory=UserTable)
    acls: AclTable = field(default_factory=AclTable)


@dataclass(slots=True)
class TableChanges(Body):
    """Reply to COPY_TABLES with the changes: changed rows with their current values, and the names of deleted rows. Many
    rows are sent in slices. A finished move is listed as deleted, with the group's offset, or -1 if the group has none."""

    topics_version: DataVersion = field(default_factory=DataVersion)
    groups_version: DataVersion = field(default_factory=DataVersion)
    topics: list[TopicConfig] = field(default_factory=list)
    topics_gone: list[str] = field(default_factory=list)
    groups: list[SubscriptionGroupConfig] = field(default_factory=list)
    groups_gone: list[str] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    forgotten_epoch: I32 = 0
    forgotten_number: I64 = 0
    queue_ends: list[QueueEnd] = field(default_factory=list)
    locks: list[QueueLock] = field(default_factory=list)
    locks_gone: list[QueueLock] = field(default_factory=list)
    resets: list[OffsetReset] = field(default_factory=list)
    resets_gone: list[OffsetReset] = field(default_factory=list)
    limits: list[OffsetReset] = field(default_factory=list)
    limits_gone: list[OffsetReset] = field(default_factory=list)
    users: list[UserInfo] = field(default_factory=list)
    users_gone: list[str] = field(default_factory=list)
    acls: list[AclInfo] = field(default_factory=list)
    acls_gone: list[str] = field(default_factory=list)
    forbidden: dict[str, dict[str, I32]] | None = None
