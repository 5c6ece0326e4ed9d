"""What a send asks for, read from the header of codes 10, 310 and 320 in one pass.

Invariant: a SendRequest has numbers where the protocol has numbers; its properties are in stored form and end with a
separator. A message is a batch when its header says so, whatever the code."""

from __future__ import annotations

from dataclasses import dataclass

from messagestore.properties import last_value
from remoting.codes import RequestCode
from remoting.errors import HeaderError
from remoting.headers.send import SendMessageHeader
from remoting.wirefields import wire_fields

READ = (
    "producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp",
    "flag", "properties", "reconsume_times", "max_reconsume_times", "batch",
)  # fmt: skip
FIELDS = {field.attribute: field for field in wire_fields(SendMessageHeader)}
LONG_NAMES = tuple(FIELDS[name].wire_name for name in READ)
SHORT_NAMES = tuple(FIELDS[name].short_name or "" for name in READ)
TRUE = ("true", "1", "True", "TRUE")  # the old C++ library of the Python wheel writes "1"
I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1

TIMERS = (b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")


@dataclass(slots=True)
class SendRequest:
    """One send, batch or not. Times in ms."""

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
    max_reconsume_times: int | None
    batch: bool

    def value_of(self, name: bytes) -> bytes:
        """The value of one property, b"" when it is absent."""
        mark = name.decode() + "\x01"
        return last_value(self.properties.encode(), name) if mark in self.properties else b""

    @property
    def waits_for_replicas(self) -> bool:
        """WAIT absent or true; anything else is false, as Boolean.parseBoolean has it."""
        wait = self.value_of(b"WAIT")
        return not wait or wait.lower() == b"true"

    @property
    def delayed(self) -> bool:
        """Asks for a delay level above 0 or a timer."""
        level = self.value_of(b"DELAY")
        return (level.isdigit() and int(level) > 0) or any(self.value_of(name) for name in TIMERS)

    @property
    def transactional(self) -> bool:
        return self.value_of(b"TRAN_MSG").lower() == b"true"


def read_send_request(code: int, ext: dict[str, str]) -> SendRequest:
    """The request of a command with `code` and `ext`. Raises HeaderError (answered code 1)."""
    names = LONG_NAMES if code == RequestCode.SEND_MESSAGE else SHORT_NAMES
    get = ext.get
    (
        group,
        topic,
        default_topic,
        queue_nums,
        queue_id,
        sys_flag,
        born,
        flag,
        properties,
        times,
        max_times,
        batch,
    ) = map(get, names)
    if topic is None:
        raise HeaderError(names[1], None, "a send needs a topic")
    if properties and properties[-1] != "\x02":
        properties += "\x02"
    return SendRequest(
        group or "",
        topic,
        default_topic or "",
        _number(names[3], queue_nums, 4, I32_MAX),
        _number(names[4], queue_id, None, I32_MAX),
        _number(names[5], sys_flag, 0, I32_MAX),
        _number(names[6], born, 0, I64_MAX),
        _number(names[7], flag, 0, I32_MAX),
        properties or "",
        _number(names[9], times, 0, I32_MAX),
        None if max_times is None else _number(names[10], max_times, 0, I32_MAX),
        batch in TRUE,
    )


def _number(field: str, value: str | None, default: int | None, most: int) -> int:
    if not value:
        if default is None:
            raise HeaderError(field, value, "a send needs this number")
        return default
    try:
        number = int(value)
    except ValueError:
        raise HeaderError(field, value, "is no integer") from None
    if not -most - 1 <= number <= most:
        raise HeaderError(field, value, "is out of range")
    return number
