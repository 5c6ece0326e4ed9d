"""Headers of requests that send messages, and of those that send a reply to a message.

SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320) and SEND_REPLY_MESSAGE_V2 (325) have one-letter names for the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.header import Header, read_ext, write_ext
from remoting.wirefields import I32, I64, wire

LONG_NAMED = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)


@dataclass(slots=True)
class SendMessageHeader(Header):
    """The attributes of a message besides its body; `born_timestamp` is the producer's clock in ms.

    `properties` are `key 0x01 value 0x02` pairs. `batch` says that the body holds several messages, whatever the code.
    """

    producer_group: str = wire(short="a")
    topic: str = wire(short="b")
    default_topic: str = wire(short="c")
    default_topic_queue_nums: I32 = wire(short="d")
    queue_id: I32 = wire(short="e")
    sys_flag: I32 = wire(short="f")
    born_timestamp: I64 = wire(short="g")
    flag: I32 = wire(short="h")
    properties: str | None = wire(short="i", default=None)
    reconsume_times: I32 | None = wire(short="j", default=None)
    unit_mode: bool | None = wire(short="k", default=None)
    max_reconsume_times: I32 | None = wire(short="l", default=None)
    batch: bool | None = wire(short="m", default=None)
    broker_name: str | None = wire("bname", short="n", default=None)

    @classmethod
    def of(cls, command: RemotingCommand) -> Self:
        """The header of a send request, read with the field names of its code. Raises HeaderError."""
        return cls(*read_ext(cls, command.ext, short=command.code not in LONG_NAMED))

    def to_short_ext(self) -> dict[str, str]:
        """`to_ext` with the one-letter names."""
        return write_ext(self, short=True)


@dataclass(slots=True)
class SendMessageResponseHeader(Header):
    """A message's place. For a batch, `queue_offset` is that of the first message, and `msg_id` joins the ids of all with
    commas."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str = wire("MSG_REGION", default="DefaultRegion")
    trace_on: bool = wire("TRACE_ON", default=True)


@dataclass(slots=True)
class ReplyMessageHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): the reply to a request, on its way to the requesting client. Hosts are "ip:port";
    times are ms."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = False
