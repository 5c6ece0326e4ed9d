"""Settings that a request (25) changes while the broker runs.

Invariant: a change is taken whole or not at all, and only keys in `CHANGEABLE` change: they are read anew whenever they
count. It lasts until the process ends; the properties file belongs to its operator."""

from __future__ import annotations

import logging

from broker.settings.broker import BrokerSettings
from mqruntime.changedsettings import ChangeRefused, change
from mqruntime.log import fields
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger("broker.configuration")

CHANGEABLE = frozenset(
    {
        "allowTruncationTo", "brokerElectionPriority", "cleanFileForciblyEnable",
        "controllerHeartBeatTimeoutMills", "deleteFileBatchMax", "deleteWhen", "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio", "fileReservedSeconds", "fileReservedTime",
        "flushIntervalCommitLog", "flushIntervalConsumeQueue", "haFlowControlEnable", "litePullMessageEnable",
        "longPollingEnable", "maxHaTransferByteInSecond", "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory", "minInSyncReplicas", "rejectTransactionMessage",
        "shortPollingTimeMills", "slaveCatchupReserveBytes", "slaveReadEnable", "transactionCheckInterval",
        "transactionCheckMax", "transactionTimeOut",
    }
)  # fmt: skip


class Configuration:
    """The handler of 25."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.UPDATE_BROKER_CONFIG, self._update)

    def _update(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Code 16 names a key that cannot change, code 1 a value that does not fit; keys that no broker of ours has are
        passed over, as upstream does."""
        try:
            changed = change(self._settings, command.body, CHANGEABLE, trimmed=True)
        except ChangeRefused as refused:
            code = ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR
            return command.reply(code, str(refused))
        if changed:
            logger.info("settings changed", extra=fields(peer=peer.remote_address, **changed))
        return command.reply()
