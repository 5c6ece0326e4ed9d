"""What to say of a command that is not here.

Invariant: every command of upstream's mqadmin 5.3.3 is either here or named here."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

NOT_BUILT = frozenset(
    {
        "addBroker", "addWritePerm", "allocateMQ", "brokerConsumeStats", "checkMsgSendRT",
        "checkRocksdbCqWriteProgress", "cleanUnusedTopic", "cloneGroupOffset", "clusterRT", "consumerConnection",
        "consumerStatus", "copyAcl", "copyUser", "createAcl", "createUser", "deleteAcl", "deleteKvConfig",
        "deleteUser", "dumpCompactionLog", "exportConfigs", "exportMetadata", "exportMetadataInRocksDB",
        "exportMetrics", "exportPopRecord", "getAcl", "getColdDataFlowCtrInfo", "getConsumerConfig",
        "getNamesrvConfig", "getUser", "listAcl", "listUser", "printMsg", "printMsgByQueue", "producer",
        "producerConnection", "queryCq", "queryMsgByUniqueKey", "queryMsgTraceById", "remappingStaticTopic",
        "removeBroker", "removeColdDataFlowCtrGroupConfig", "resetMasterFlushOffset", "rocksDBConfigToJson",
        "sendMsgStatus", "setCommitLogReadAheadMode", "setConsumeMode", "skipAccumulatedMessage", "startMonitoring",
        "statsAll", "topicClusterList", "updateAcl", "updateColdDataFlowCtrGroupConfig", "updateKvConfig",
        "updateNamesrvConfig", "updateOrderConf", "updateStaticTopic", "updateSubGroupList", "updateTopicList",
        "updateTopicPerm", "updateUser", "wipeWritePerm",
    }
)  # fmt: skip
"""Upstream's commands that this tool does not have."""


def why_not(name: str, commands: Collection[str]) -> str:
    """One sentence about `name`, which is none of `commands`."""
    spelled = {each.lower(): each for each in NOT_BUILT}
    if name.lower() in spelled:
        return (
            f"upstream's {spelled[name.lower()]} is not built yet; mqadmin alone lists the commands that are"
        )
    lower = {each.lower(): each for each in commands}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, n=2)]
    hint = f"did you mean {' or '.join(near)}?" if near else "mqadmin alone lists the commands"
    return f"there is no command {name}; {hint}"
