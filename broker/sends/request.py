"""Parses sends (10, 310, 320) and replies (324, 325) from their headers, in one pass.

Invariant: the numeric fields of a SendRequest fit the protocol's widths. Its properties are in the stored form and end with a
separator. Only the header decides whether a message is a batch, not the request code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.clients.refusals import NO_DELAY_LEVEL, ClientRefused
from messagestore.properties import last_value
from messagestore.record import TRANSACTION_MASK
from messagestore.systemtopics import RETRY_PREFIX
from remoting.codes import ResponseCode
from remoting.errors import HeaderError
from remoting.headers.send import LONG_NAMED, SendMessageHeader
from remoting.wirefields import wire_fields

I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1

READ: dict[str, int | None] = {
    "producer_group": None,
    "topic": None,
    "default_topic": None,
    "default_topic_queue_nums": I32_MAX,
    "queue_id": I32_MAX,
    "sys_flag": I32_MAX,
    "born_timestamp": I64_MAX,
    "flag": I32_MAX,
    "properties": None,
    "reconsume_times": I32_MAX,
    "batch": None,
}
"""The fields of a send in the order in which they are read. The value is the maximum of a number, None for text."""

FIELDS = {field.attribute: field for field in wire_fields(SendMessageHeader)}
LONG_NAMES = tuple(FIELDS[name].wire_name for name in READ)
SHORT_NAMES = tuple(FIELDS[name].short_name or "" for name in READ)
WIDTHS = tuple(READ.values())
QUEUE_ID = list(READ).index("queue_id")
TRUE = ("true", "1", "True", "TRUE")  # the old C++ library in the Python wheel writes "1"
JAVA_INTEGER = re.compile(r"[+-]?\d{1,64}")
"""Text that Java's Integer.parseInt accepts if the value fits."""
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TIMERS = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")


@dataclass(slots=True)
class SendRequest:
    """One send, a single message or a batch. Times are in ms."""

    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    batch: bool

    def value_of(self, name: str) -> str:
        """The value of one property; "" if the property is absent."""
        return value_of(self.properties, name)

    @property
    def asks_reply_for(self) -> str:
        """The client that sends this request and waits for a reply; "" if none waits. Replies, and requests that consumers send
        back, have the same property, but nobody waits for a reply to them."""
        if "REPLY_TO_CLIENT\x01" not in self.properties or self.topic.startswith(RETRY_PREFIX):
            return ""
        return "" if self.value_of("MSG_TYPE") == "reply" else self.value_of(REPLY_TO_CLIENT)

    @property
    def waits_for_replicas(self) -> bool:
        """Whether WAIT is absent or true; other values are false, as in Boolean.parseBoolean."""
        properties = self.properties
        if "WAIT\x01" not in properties or "WAIT\x01true\x02" in properties:
            return True  # nearly all sends
        return self.value_of("WAIT").lower() in ("", "true")

    @property
    def delay_level(self) -> int:
        """The requested delay level; 0 for none. Raises ClientRefused."""
        return delay_level(self.properties)

    @property
    def timed(self) -> bool:
        """Whether the send requests a timer."""
        return asks_for_timer(self.properties)

    @property
    def is_half(self) -> bool:
        """Whether the message is a half. A committed message that a consumer sends back has the property, too, but is no half.
        Raises ClientRefused."""
        return says_half(self.properties) and not (self.reconsume_times > 0 and self.delay_level > 0)

    @property
    def ends_by_itself(self) -> bool:
        """Whether the flags of the message claim that it is a half or ends a transaction."""
        return bool(self.sys_flag & TRANSACTION_MASK)


def value_of(properties: str, name: str) -> str:
    """The value of one property; "" if the property is absent."""
    if name + "\x01" not in properties:
        return ""
    return last_value(properties.encode(), name.encode()).decode()


def has_pair(properties: str, name: str) -> bool:
    """Whether the property is there, even with an empty value."""
    named = name + "\x01"
    return named in properties and (properties.startswith(named) or "\x02" + named in properties)


def delay_level(properties: str) -> int:
    """The requested delay level; 0 for no level or a negative one (dead letters have -1). Raises ClientRefused for text that is
    no integer, because the message would not be delayed although its sender asked for that."""
    if not has_pair(properties, "DELAY"):
        return 0
    level = value_of(properties, "DELAY")
    if not JAVA_INTEGER.fullmatch(level) or abs(number := int(level)) > I32_MAX:
        raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, f"{NO_DELAY_LEVEL}: DELAY={level[:100]!r}")
    return max(number, 0)


def asks_for_timer(properties: str) -> bool:
    return "TIMER_DEL" in properties and any(has_pair(properties, name) for name in TIMERS)


def says_half(properties: str) -> bool:
    return "TRAN_MSG\x01" in properties and value_of(properties, "TRAN_MSG").lower() == "true"


def read_send_request(code: int, ext: dict[str, str]) -> SendRequest:
    """Parse the header `ext` of a command. Raises HeaderError, which is answered with SYSTEM_ERROR (1)."""
    names = LONG_NAMES if code in LONG_NAMED else SHORT_NAMES
    group, topic, default_topic, queue_nums, queue_id, sys_flag, born, flag, properties, times, batch = map(
        ext.get, names
    )
    if topic is None:
        raise HeaderError(names[1], None, "a send needs a topic")
    if properties and properties[-1] != "\x02":
        properties += "\x02"
    try:
        request = SendRequest(
            group or "",
            topic,
            default_topic or "",
            int(queue_nums or 4),
            int(queue_id or ""),
            int(sys_flag or 0),
            int(born or 0),
            int(flag or 0),
            properties or "",
            int(times or 0),
            batch in TRUE,
        )
    except ValueError:
        raise _unreadable(names, ext) from None
    if not (
        ~I32_MAX <= request.sys_flag <= I32_MAX
        and ~I32_MAX <= request.flag <= I32_MAX
        and ~I32_MAX <= request.queue_id <= I32_MAX
        and ~I32_MAX <= request.reconsume_times <= I32_MAX
        and ~I64_MAX <= request.born_timestamp <= I64_MAX
    ):
        raise _unreadable(names, ext)
    return request


def asked_retries_max(code: int, ext: dict[str, str]) -> int | None:
    """The sender's limit of tries for a retried message; None if the sender set none. Raises HeaderError."""
    field = FIELDS["max_reconsume_times"]
    name = field.wire_name if code in LONG_NAMED else field.short_name or ""
    value = ext.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise HeaderError(name, value, "is no integer") from None


def _unreadable(names: tuple[str, ...], ext: dict[str, str]) -> HeaderError:
    """The error for the first field that is not a number of its width."""
    for name, most in zip(names, WIDTHS, strict=True):
        value = ext.get(name, "")
        if most is None or (not value and name != names[QUEUE_ID]):
            continue
        try:
            fits = ~most <= int(value) <= most
        except ValueError:
            fits = False
        if not fits:
            return HeaderError(name, value, "is no integer of its width")
    raise AssertionError(f"every number of {ext} is fine")
