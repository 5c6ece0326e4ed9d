"""The answers to upstream's commands that this tool does not have.

Invariant: every command of upstream's mqadmin in 5.3.3 and 5.5.0 exists in this tool or is named here. docs/mqadmin.md has a
row for each."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

CONTAINERS = "brokers run as processes of their own here, not in a container"
LITE = "there are no lite topics here"
ROCKSDB = "stores here have no RocksDB"
NOT_APPLICABLE = {
    "addBroker": CONTAINERS,
    "checkRocksdbCqWriteProgress": ROCKSDB,
    "cleanUnusedTopic": "retention deletes the messages of deleted topics",
    "exportMetadataInRocksDB": ROCKSDB,
    **dict.fromkeys(
        (
            "getBrokerLiteInfo", "getLiteClientInfo", "getLiteGroupInfo", "getLiteTopicInfo", "getParentTopicInfo",
            "triggerLiteDispatch",
        ),
        LITE,
    ),
    "removeBroker": CONTAINERS,
    "resetMasterFlushOffset": "a slave knows how far its master is from the replication link",
    "rocksDBConfigToJson": ROCKSDB,
    "switchTimerEngine": "there is one kind of timers",
}  # fmt: skip
"""Upstream's commands that do not apply to this project -> why."""
COLD_READS = "cold reads are not controlled yet"
STATIC_TOPICS = "there are no static topics yet"
POP = "there is no POP consumption yet"
NOT_BUILT = {
    "dumpCompactionLog": "there are no compacted topics yet",
    "exportPopRecord": POP,
    "getColdDataFlowCtrInfo": COLD_READS,
    "remappingStaticTopic": STATIC_TOPICS,
    "removeColdDataFlowCtrGroupConfig": COLD_READS,
    "setCommitLogReadAheadMode": COLD_READS,
    "setConsumeMode": POP,
    "updateColdDataFlowCtrGroupConfig": COLD_READS,
    "updateStaticTopic": STATIC_TOPICS,
}  # fmt: skip
"""Upstream's commands that this tool does not have yet -> what is missing for them."""


def why_not(name: str, commands: Collection[str]) -> str:
    """One sentence about `name`, which is not among `commands`."""
    spelled = {each.lower(): each for each in (*NOT_BUILT, *NOT_APPLICABLE)}
    known = spelled.get(name.lower())
    if known in NOT_BUILT:
        return f"upstream's {known} is not built yet: {NOT_BUILT[known]}"
    if known is not None:
        return f"upstream's {known} has nothing to do here: {NOT_APPLICABLE[known]}"
    lower = {each.lower(): each for each in commands}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, n=2)]
    hint = f"did you mean {' or '.join(near)}?" if near else "mqadmin alone lists the commands"
    return f"there is no command {name}; {hint}"
