"""Settings that UPDATE_BROKER_CONFIG (25) changes while the broker runs.

Invariant: a change is applied as a whole or not at all. Only keys in `CHANGEABLE` change, because they are read at each use. A
change lasts until the process ends; the properties file belongs to the operator and is not changed."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.tables.savedtable import TableUnreadable
from broker.tables.tables import Tables
from mqruntime.changedsettings import SettingsRefused, asked_for, take
from mqruntime.log import fields
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger("broker.configuration")

CHANGEABLE = frozenset(
    {
        "accessMessageInMemoryMaxRatio", "allowTruncationTo", "autoCreateSubscriptionGroup", "autoCreateTopicEnable",
        "brokerElectionPriority", "brokerHeartbeatInterval", "brokerPermission", "cleanFileForciblyEnable",
        "controllerHeartBeatTimeoutMills", "defaultTopicQueueNums", "deleteFileBatchMax", "deleteWhen", "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio", "enablePropertyFilter", "fileReservedSeconds",
        "fileReservedTime",
        "flushIntervalCommitLog", "flushIntervalConsumeQueue", "haFlowControlEnable", "litePullMessageEnable",
        "longPollingEnable", "maxHaTransferByteInSecond", "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory", "minInSyncReplicas", "rejectTransactionMessage",
        "shortPollingTimeMills", "slaveCatchupReserveBytes", "slaveReadEnable", "syncControllerMetadataPeriod",
        "transactionCheckInterval", "transactionCheckMax", "transactionOpenMax", "transactionTimeOut",
    }
)  # fmt: skip
AUTO_CREATION = {"autoCreateTopicEnable", "defaultTopicQueueNums"}
REASONS = {
    **dict.fromkeys(("brokerClusterName", "brokerName", "brokerIP1", "brokerIP2"), "others know this broker by it"),
    **dict.fromkeys(("listenPort", "haListenPort", "bindAddress", "metricsPromExporterPort"), "the port is open"),
    **dict.fromkeys(
        (
            "storePathRootDir", "storePathCommitLog", "storePathConsumeQueue", "storePathBrokerIdentity",
            "storePathEpochFile",
        ),
        "the store is open there",
    ),
    **dict.fromkeys(
        ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxIndexNum", "maxHashSlotNum"),
        "the files have that layout",
    ),
    **dict.fromkeys(
        ("allAckInSyncStateSet", "allFlushInSyncStateSet", "flushDiskType", "enableControllerMode", "brokerRole"),
        "the guarantee for an acknowledged send depends on it",
    ),
    **dict.fromkeys(("namesrvAddr", "controllerAddr"), "its connections are made"),
    "messageDelayLevel": "messages wait in a queue for each level",
}  # fmt: skip
"""The reasons why certain keys need a restart. Other keys need one because they are only read at the start."""


class BrokerConfiguration:
    """The handler of UPDATE_BROKER_CONFIG. Some keys change tables, depending on the broker's `role`."""

    def __init__(self, settings: BrokerSettings, tables: Tables, role: Membership) -> None:
        self._settings = settings
        self._tables = tables
        self._role = role

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.UPDATE_BROKER_CONFIG, self._update)

    def _update(
        self, peer: Peer, command: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Answer NO_PERMISSION (16) for a key that cannot change, SYSTEM_ERROR (1) for an invalid value, and INVALID_PARAMETER
        (29) for a key without effect in this mode. Unknown keys are skipped, as in upstream."""
        try:
            changed = asked_for(self._settings, command.body, CHANGEABLE, trimmed=True, reasons=REASONS)
        except SettingsRefused as refused:
            code = ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR
            return command.reply(code, str(refused))
        if idle := sorted(changed.keys() & self._settings.idle_keys):
            why = f"{', '.join(idle)}: counts under controllers only, this broker is in another mode"
            return command.reply(ResponseCode.INVALID_PARAMETER, why)
        if changed.get("enablePropertyFilter") and not self._tables.keeps_filters:
            return self._begin_filters(peer, command, changed)
        return self._changed(peer, command, changed)

    async def _begin_filters(
        self, peer: Peer, command: RemotingCommand, changed: Mapping[str, Any]
    ) -> RemotingCommand:
        """Read the file of filters before filters are kept."""
        try:
            await self._tables.keep_filters()
        except (TableUnreadable, OSError) as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"enablePropertyFilter stays false: {error}")
        return self._changed(peer, command, changed)

    def _changed(self, peer: Peer, command: RemotingCommand, changed: Mapping[str, Any]) -> RemotingCommand:
        take(self._settings, changed)
        self._apply(changed)
        if changed:
            logger.info("settings changed", extra=fields(peer=peer.remote_address, **changed))
        return command.reply()

    def _apply(self, changed: Mapping[str, Any]) -> None:
        """Apply keys that are not read from the settings. Slaves get topics from their master, and register no topics."""
        settings, tables = self._settings, self._tables
        tables.groups.auto_create = settings.auto_create_subscription_group
        tables.topics.auto_create = settings.auto_create_topic_enable
        if settings.auto_create_topic_enable and changed.keys() & AUTO_CREATION:
            queues = settings.default_topic_queue_nums
            tables.topics.offer_auto_creation(queues, notify=self._role.accepts_sends)
        elif "brokerPermission" in changed and self._role.accepts_sends:
            tables.topics.renew_version()
