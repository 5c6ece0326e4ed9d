"""The JSON bodies of controller replies.

Invariant: keys stand in fastjson's alphabetical order without blanks, and broker ids that are keys are
quoted, so the text is JSON to every reader; Java reads quoted and bare ids alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson


def sync_state_set(members: Iterable[int], set_epoch: int) -> bytes:
    return orjson.dumps({"syncStateSet": sorted(members), "syncStateSetEpoch": set_epoch})


def elected(
    cluster_name: str, broker_name: str, addresses: Mapping[int, str], members: Iterable[int]
) -> bytes:
    """Of a successful election; `addresses` are those of all registered brokers."""
    group = {
        "brokerAddrs": {str(broker_id): addresses[broker_id] for broker_id in sorted(addresses)},
        "brokerName": broker_name,
        "cluster": cluster_name,
    }
    return orjson.dumps({"brokerMemberGroup": group, "syncStateSet": sorted(members)})


def not_elected(members: Iterable[int]) -> bytes:
    """Of an election that the old master wins."""
    return orjson.dumps({"syncStateSet": sorted(members)})


def replicas_info(table: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Of getSyncStateData; a master that is absent is left out."""
    return orjson.dumps({"replicasInfoTable": table}, option=orjson.OPT_SORT_KEYS)
