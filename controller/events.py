"""The events that change the replicated state, and their encoding in a log entry.

Invariant: an entry body is a 2-byte big-endian event id and a JSON object, byte for byte as upstream's EventSerializer writes
it. A body that `decode` cannot read is no event (None) on every node, so no unknown entry stops a state machine or makes two of
them differ. An empty body is a no-op of the log itself. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from remoting.bodies.body import Body
from remoting.errors import BodyError
from remoting.fastjson import FastJsonError, loads
from remoting.wirefields import I64, wire


@dataclass(frozen=True, slots=True)
class AlterSyncStateSet(Body):
    """The SyncStateSet becomes `members`, which may equal the present members. The set's epoch grows by one."""

    broker_name: str
    members: frozenset[I64] = wire("newSyncStateSet")
    eligible: frozenset[I64] = wire("eligibleReplicas", default=frozenset())
    """See controller.eligibility. Upstream has no such member, and ignores unknown members of an event."""


@dataclass(frozen=True, slots=True)
class ApplyBrokerId(Body):
    """`broker_id` belongs to the broker that sent `check_code` from `address`."""

    cluster_name: str
    broker_name: str
    broker_id: I64 = wire("newBrokerId")
    address: str = wire("brokerAddress")
    check_code: str = wire("registerCheckCode")


@dataclass(frozen=True, slots=True)
class ElectMaster(Body):
    """`master_id` becomes the master and the only member of the SyncStateSet; None removes the master. In both cases a new
    epoch begins."""

    broker_name: str
    master_id: I64 | None = wire("newMasterBrokerId", default=None)
    eligible: frozenset[I64] = wire("eligibleReplicas", default=frozenset())
    """See controller.eligibility. Ignored if `master_id` is None: the eligible brokers then stay."""


@dataclass(frozen=True, slots=True)
class CleanBrokerData(Body):
    """The brokers `broker_ids` are forgotten; None forgets the whole set."""

    broker_name: str
    broker_ids: frozenset[I64] | None = wire("brokerIdSetToClean", default=None)


@dataclass(frozen=True, slots=True)
class UpdateBrokerAddress(Body):
    """Broker `broker_id` now listens at `address`. Upstream ignores the other fields: the broker's start number and
    incarnation, 0 if not sent, and whether the broker sent the check code of its id."""

    cluster_name: str
    broker_name: str
    broker_id: I64
    address: str = wire("brokerAddress")
    start_number: I64 = wire("brokerStartNumber", default=0)
    incarnation: I64 = wire("brokerIncarnation", default=0)
    says_code: bool = wire("brokerSaysCheckCode", default=False)


Event = AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress

EVENT_ID: dict[type[Event], tuple[int, str]] = {
    AlterSyncStateSet: (1, "ALTER_SYNC_STATE_SET_EVENT"),
    ApplyBrokerId: (2, "APPLY_BROKER_ID_EVENT"),
    ElectMaster: (3, "ELECT_MASTER_EVENT"),
    # READ_EVENT (4) is never written
    CleanBrokerData: (5, "CLEAN_BROKER_DATA_EVENT"),
    UpdateBrokerAddress: (6, "UPDATE_BROKER_ADDRESS"),
}
"""Event -> (id in the first two bytes, value of the redundant JSON member `eventType`)."""
KINDS = {event_id: kind for kind, (event_id, _) in EVENT_ID.items()}
ELECTED = "newMasterElected"  # redundant: whether there is a newMasterBrokerId
OURS = "eligibleReplicas", "brokerStartNumber", "brokerIncarnation", "brokerSaysCheckCode"


def encode(event: Event) -> bytes:
    """The entry body of `event`."""
    event_id, event_type = EVENT_ID[type(event)]
    members = event.to_json() | {"eventType": event_type}
    if isinstance(event, ElectMaster):
        members[ELECTED] = event.master_id is not None
    for name in OURS:
        if not members.get(name):
            members.pop(name, None)  # an event without them has upstream's bytes
    return event_id.to_bytes(2, "big") + _json({key: members[key] for key in sorted(members)}).encode()


def decode(body: bytes) -> Event | None:
    """The event of an entry body; None when the body is empty, of an unknown kind or malformed."""
    try:
        members = loads(body[2:])
        event = KINDS[int.from_bytes(body[:2], "big")].from_json(members)
    except (FastJsonError, BodyError, KeyError):
        return None
    match event:
        case ElectMaster() if members.get(ELECTED) is not True:
            return ElectMaster(event.broker_name, None)
        case ElectMaster(master_id=None):
            return None
        case CleanBrokerData(broker_ids=ids) if not ids:
            return CleanBrokerData(event.broker_name, None)
    return event


# as fastjson with BrowserSecure: these escapes, and \uXXXX for other control characters, U+2028/9 and ()<>
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile('["\\\\()<>\x00-\x1f\x7f-\x9f\u2028\u2029]')


def _json(value: Any) -> str:
    """The fastjson text of `value`, which has only types that occur in events."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return '"' + _ESCAPED.sub(lambda found: _escape(found.group()), value) + '"'
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case dict():
            return "{" + ",".join(f"{_json(key)}:{_json(item)}" for key, item in value.items()) + "}"
    raise AssertionError(f"{type(value)} in an event")


def _escape(char: str) -> str:
    return _SHORT.get(char) or f"\\u{ord(char):04X}"
