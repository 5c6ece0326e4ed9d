"""What the compiled module holds. Offsets are physical unless called queue offsets; places count bytes of the buffer given.

A *plain* send: a JSON header of code 310 or 320 whose members are those that clients write, in ASCII and without escapes but
in the properties; to a queue that it names, with a UNIQ_KEY if it is no batch, waiting for replicas, neither delayed nor timed
nor part of a transaction; those that are read together name few topics. A plain send may be *signed*, which means that it has
an AccessKey that is not empty. Then its ext fields are few, no key occurs twice, and there is no `_UNIQUE_KEY_QUERY`, because
old clients do not sign that field; sends that are read together have few pairs of access key and topic. Whether the Signature
is right, or present, makes no difference. A *plain* record: of version 1, with IPv4 hosts and ASCII values. What is not plain
is for the modules of Python."""

from collections.abc import Mapping
from typing import Any, Protocol

SOURCES: int

class Sends:
    """Plain sends of the frames `view[begin:end]`, which have one `code`; `topics` are those they name, each once. `signers`
    are their pairs of access key and topic, each once, in the order of their first sends; the access key of an unsigned send is
    empty. Valid as long as the buffer holds what it held."""

    view: memoryview
    begin: int
    end: int
    code: int
    topics: list[bytes]
    signers: list[tuple[bytes, bytes]]
    unnamed: int  # batches without a UNIQ_KEY

    def signed_by(self, states: Mapping[bytes, tuple[Any, Any]]) -> bool:
        """Whether each send has an AccessKey of `states` and the Signature of remoting.signing. `states`: by access key, two
        hashlib.sha1 objects that have taken the inner and the outer pad of RFC 2104, made of the secret key. They do not
        change."""

    def queues_within(self, limits: list[int]) -> bool:
        """Whether each names a queue id below the limit of its topic."""

    def measured(
        self, added_properties: bytes, body_bytes_max: int, record_bytes_max: int
    ) -> list[int] | None:
        """How many bytes each of their records has; None where a send is refused, or is for the modules of Python. Members of a
        batch get none of `added_properties`."""

    def stored(
        self,
        target: memoryview,
        at: int,
        physical_offset: int,
        gap: int,
        lead: int,
        next_offsets: dict[tuple[bytes, int], int],
        store_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        added_properties: bytes,
        reply: tuple[tuple[bytes, ...], bytes, int],
    ) -> tuple[int, list[int], bytes, list[int], dict[tuple[bytes, int, int], int]]:
        """Writes their records, which are measured, to `target[at:]`, as Room of messagestore.log.files says, and the queue
        offsets that follow to `next_offsets`.
        Returns where the last ends, and `ends`, `frames`, `frame_ends`, `amounts` of PlainAppended. `reply`: see
        ReplyForm, of six parts."""

def read_sends(
    view: memoryview, begin: int, end: int, frame_bytes_max: int, header_bytes_max: int
) -> Sends | None:
    """The sends whose frames begin `view[begin:end]`, up to the first frame that is cut off there; None without any, and where
    one of the frames holds something else."""

def checksum(buffer: bytes | bytearray | memoryview, before: int = 0) -> int:
    """As zlib.crc32; of the body of each record."""

def put_entries(
    room: memoryview,
    data: bytes | bytearray,
    begin: int,
    ends: tuple[int, ...],
    first_index: int,
    term: int,
    pos: int,
    batch_position: int,
    check: int,
) -> tuple[bytes, int]:
    """As dledger.storage.entry.put_entries. ValueError where the room is too small, or the block ends before one of `ends`."""

class Queue(Protocol):
    """See messagestore.queues.consumequeue."""

    max_queue_offset: int
    phy_end: int
    hot_view: memoryview
    hot_first: int
    hot_end: int

class IndexFile(Protocol):
    """See messagestore.index.file."""

    view: memoryview

    @property
    def place(self) -> tuple[int, int, int, int, int, int]: ...

class Entries:
    """Makes entries in `queues`, by topic and queue id; records of the topic `unlisted` are not plain."""

    def __init__(self, queues: Mapping[tuple[bytes, int], Queue], unlisted: bytes) -> None: ...
    def put(
        self,
        buffer: bytes | bytearray | memoryview,
        at: int,
        end: int,
        physical_offset: int,
        lead: int,
        records_max: int,
        index: IndexFile | None,
        indexed_end: int,
        grown: dict[tuple[bytes, int], int],
    ) -> tuple[int, int, int, tuple[int, int, int, int] | None]:
        """Lists the records that stand from `buffer[at]` on, of which the first is at `physical_offset`: at most `records_max`,
        none that ends above `end`, up to the first that is not plain, whose queue does not expect it, or for whose keys and
        tag the index file has no room: those from `indexed_end` on are to be indexed. With a `lead` of 48 each is the body of
        a ledger's entry, whose head stands in front of it, that of the first at `physical_offset`; what is no such entry is not
        plain. Puts the new ends of queues into `grown`.
        Returns how many they are, where they end, the last one's store time (ms), and what IndexFile.grew is to be told."""
