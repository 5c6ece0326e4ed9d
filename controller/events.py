"""The events that change the replicated state, and the bytes that stand for them in a log entry.

Invariant: an entry body is a 2-byte big-endian event id and a JSON object, byte for byte what upstream's
EventSerializer writes; whatever `decode` cannot read is no event (None), on every node alike, so that a
strange entry can never stop or split the state machines. An empty body is a no-op of the log itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoting.fastjson import FastJsonError, loads


@dataclass(frozen=True, slots=True)
class AlterSyncStateSet:
    """The SyncStateSet becomes `members`; its epoch grows by one."""

    broker_name: str
    members: frozenset[int]


@dataclass(frozen=True, slots=True)
class ApplyBrokerId:
    """`broker_id` belongs to the broker that sent `check_code` from `address`."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    check_code: str


@dataclass(frozen=True, slots=True)
class ElectMaster:
    """`master_id` is master and the whole SyncStateSet; None: there is no master. Either way a new epoch."""

    broker_name: str
    master_id: int | None


@dataclass(frozen=True, slots=True)
class CleanBrokerData:
    """The brokers `broker_ids`, or with None the whole set, are forgotten."""

    broker_name: str
    broker_ids: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class UpdateBrokerAddress:
    """Broker `broker_id` now listens at `address`."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str


Event = AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress

EVENT_ID: dict[type[Event], tuple[int, str]] = {
    AlterSyncStateSet: (1, "ALTER_SYNC_STATE_SET_EVENT"),
    ApplyBrokerId: (2, "APPLY_BROKER_ID_EVENT"),
    ElectMaster: (3, "ELECT_MASTER_EVENT"),
    # 4, READ_EVENT, is never written
    CleanBrokerData: (5, "CLEAN_BROKER_DATA_EVENT"),
    UpdateBrokerAddress: (6, "UPDATE_BROKER_ADDRESS"),
}
"""Event -> (id in the first two bytes, redundant member `eventType`)."""


def encode(event: Event) -> bytes:
    """The entry body of `event`."""
    event_id, event_type = EVENT_ID[type(event)]
    members = _members(event) | {"eventType": event_type}
    return event_id.to_bytes(2, "big") + _json({key: members[key] for key in sorted(members)}).encode()


def decode(body: bytes) -> Event | None:
    """The event of an entry body, or None when it is empty, of an unknown kind or malformed."""
    try:
        members = loads(body[2:])
        return _event(int.from_bytes(body[:2], "big"), members) if isinstance(members, dict) else None
    except (FastJsonError, _Malformed):
        return None


def _members(event: Event) -> dict[str, Any]:
    match event:
        case AlterSyncStateSet():
            return {"brokerName": event.broker_name, "newSyncStateSet": sorted(event.members)}
        case ApplyBrokerId():
            return {
                "brokerAddress": event.address,
                "brokerName": event.broker_name,
                "clusterName": event.cluster_name,
                "newBrokerId": event.broker_id,
                "registerCheckCode": event.check_code,
            }
        case ElectMaster(name, None):
            return {"brokerName": name, "newMasterElected": False}
        case ElectMaster(name, master_id):
            return {"brokerName": name, "newMasterBrokerId": master_id, "newMasterElected": True}
        case CleanBrokerData(name, None):
            return {"brokerName": name}
        case CleanBrokerData(name, ids):
            return {"brokerIdSetToClean": sorted(ids or ()), "brokerName": name}
        case UpdateBrokerAddress():
            return {
                "brokerAddress": event.address,
                "brokerId": event.broker_id,
                "brokerName": event.broker_name,
                "clusterName": event.cluster_name,
            }


def _event(event_id: int, members: dict[str, Any]) -> Event | None:
    match event_id:
        case 1:
            return AlterSyncStateSet(_text(members, "brokerName"), _ids(members, "newSyncStateSet"))
        case 2:
            return ApplyBrokerId(
                _text(members, "clusterName"),
                _text(members, "brokerName"),
                _number(members.get("newBrokerId")),
                _text(members, "brokerAddress"),
                _text(members, "registerCheckCode"),
            )
        case 3:
            elected = members.get("newMasterElected") is True
            master_id = _number(members.get("newMasterBrokerId")) if elected else None
            return ElectMaster(_text(members, "brokerName"), master_id)
        case 5:
            ids = _ids(members, "brokerIdSetToClean") if members.get("brokerIdSetToClean") else None
            return CleanBrokerData(_text(members, "brokerName"), ids)
        case 6:
            return UpdateBrokerAddress(
                _text(members, "clusterName"),
                _text(members, "brokerName"),
                _number(members.get("brokerId")),
                _text(members, "brokerAddress"),
            )
    return None


class _Malformed(ValueError):
    """A member that the event cannot do without is absent or of another type."""


_WHOLE = re.compile(r"-?[0-9]{1,19}")


def _text(members: Mapping[str, Any], key: str) -> str:
    value = members.get(key)
    if not isinstance(value, str):
        raise _Malformed(key)
    return value


def _number(value: Any) -> int:
    """fastjson reads quoted numbers too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise _Malformed(f"{value!r} is no number")


def _ids(members: Mapping[str, Any], key: str) -> frozenset[int]:
    value = members.get(key)
    if not isinstance(value, list):
        raise _Malformed(key)
    return frozenset(_number(item) for item in value)


# fastjson with BrowserSecure: the short escapes, \uXXXX for other control characters, U+2028/9 and ()<>
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile('["\\\\()<>\x00-\x1f\x7f-\x9f\u2028\u2029]')


def _json(value: Any) -> str:
    """The fastjson text of `value`, which holds only what events are made of."""
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
