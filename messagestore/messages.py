"""Values that go into the store and come out of it.

Invariant: bodies and records travel as views of the buffer or mapping that holds them; nothing here copies them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from messagestore.errors import QueueDamaged

if TYPE_CHECKING:
    from nativepath.native import Sends

PlainSends: TypeAlias = "Sends"
TagFilter = Callable[[int], bool]
PropertyFilter = Callable[[bytes], bool]
"""A predicate on a message's properties in stored form."""


class PutStatus(Enum):
    """Why a message was not stored, as upstream's PutMessageStatus. The broker turns it into a response code."""

    MESSAGE_ILLEGAL = auto()  # body, record, topic or batch outside the limits
    PROPERTIES_SIZE_EXCEEDED = auto()
    SERVICE_NOT_AVAILABLE = auto()  # not master, disk full, stopped or failed
    CREATE_MAPPED_FILE_FAILED = auto()  # the next segment cannot be made, though the disk is not full


NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""With these statuses the message itself is at fault, whatever the store's state is."""


class LaterCopy(NamedTuple):
    """The second record of a message that waits: the message is stored again in `topic`, with up to `added_bytes` more of
    properties."""

    topic: str
    added_bytes: int


@dataclass(slots=True)
class MessageToStore:
    """One send. `born_host` is a raw IP and an i32 port (record.pack_host); `properties` are in stored form.

    With `batch` the body is a client batch (messagestore.batch). Each member becomes a record with the member's properties
    followed by `properties`. The queue offsets of the records are consecutive."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0  # the IPv6 bits are set from the hosts
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    batch: bool = False
    stored_before: bool = False
    """Whether the message is a copy of a record of this log. It was accepted once, so it is accepted whatever `maxMessageSize`
    is now."""
    copied_later: LaterCopy | None = None
    """If set, the message is rejected if any replica would reject such a copy."""


@dataclass(slots=True)
class PutResult:
    """A send's place in the log. With `error`, the send was not stored, and the offsets are -1.

    A batch is one PutResult. `physical_offset` and `queue_offset` are those of its first member, and `end_offset` is that of
    its last member. `physical_offsets` are those of all members (empty for a single message)."""

    physical_offset: int
    end_offset: int
    queue_offset: int
    count: int
    store_timestamp: int
    error: PutStatus | None = None
    physical_offsets: tuple[int, ...] = ()
    between: int = 0
    """Bytes of the log between two of its records that belong to neither."""
    why: str = ""
    """The violated limit, if the `error` is one."""

    @property
    def record_bytes(self) -> int:
        return self.end_offset - self.physical_offset - self.between


class ReplyForm(NamedTuple):
    """The form of replies to plain sends. `parts` are the pieces of a header around message id, queue id, queue offset, unique
    key and opaque. For batches without a key there are the prefix of generated keys, and the number of keys generated
    before."""

    parts: tuple[bytes, ...]
    unique_key_prefix: bytes
    unique_keys_given: int


@dataclass(slots=True)
class PlainAppended:
    """Plain sends of one receive, which are all stored. `ends` are the log ends of the sends that get replies, in order.
    `frames` are these replies, concatenated; the n-th reply ends at `frame_ends[n]`. `amounts` maps (topic, bytes of records,
    records) of a send to the number of such sends."""

    start_offset: int
    end_offset: int
    ends: list[int]
    frames: bytes
    frame_ends: list[int]
    amounts: dict[tuple[bytes, int, int], int]


class GetStatus(Enum):
    """Upstream's GetMessageStatus. The value is the remark of a pull reply."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """The answer to one read of a queue: `count` messages of together `size_bytes`.

    `ranges` are the (physical_offset, size) of the found bytes, with adjacent ranges joined. `buffers` are these bytes in
    order: views of the mapping or, for old segments, a copy. A `cold` result has no buffers: `await store.load(result)` fills
    them, or raises `damage`. If a cold result is not FOUND, the first message's properties must be read with `await
    store.read_matching(...)`."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    size_bytes: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=list)
    cold: bool = False
    damage: QueueDamaged | None = None
    why_not: Callable[[list[memoryview]], Awaitable[QueueDamaged | None]] | None = None
    """In a cold result: says why these bytes are not the queue's, if so."""
    looked_at: int = -1
    """The place of the last message that was skipped, if nothing was found."""


class QueueGrew(NamedTuple):
    """Dispatch moved the end of one queue. A suspended pull waits for this."""

    topic: str
    queue_id: int
    next_queue_offset: int


class QueueEntry(NamedTuple):
    """The place of one message of a queue, and the hash of its tag. In the schedule topic, the time when the message is due
    (ms) replaces the hash."""

    physical_offset: int
    size: int
    tags_code: int


@dataclass(slots=True)
class RecoveryReport:
    """What a start found and did, for log lines and tests. Offsets are physical."""

    clean: bool  # whether the previous run stopped in order
    min_offset: int = 0
    max_offset: int = 0
    confirm_offset: int = 0
    dispatched_offset: int = 0
    walked_from: int = 0
    walked_records: int = 0
    cut_bytes: int = 0  # non-zero bytes found above max_offset and erased
    removed_segments: int = 0
