"""Settings that a request (25) changes while the broker runs.

Invariant: a change is taken whole or not at all, and only keys in `CHANGEABLE` change: they are read anew whenever they
count. It lasts until the process ends; the properties file belongs to its operator."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from broker.settings.broker import BrokerSettings
from mqruntime.log import fields
from mqruntime.properties import PropertiesError, parse
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger("broker.configuration")

CHANGEABLE = frozenset(
    {
        "brokerElectionPriority", "controllerHeartBeatTimeoutMills", "flushIntervalCommitLog",
        "flushIntervalConsumeQueue", "litePullMessageEnable", "longPollingEnable", "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory", "minInSyncReplicas", "shortPollingTimeMills", "slaveReadEnable",
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
        settings = self._settings
        keys = type(settings).keys()
        names = {field.alias or name: name for name, field in type(settings).model_fields.items()}
        try:
            entries = parse(bytes(command.body or b"")).entries
            asked = {entry.key: entry.value.strip() for entry in entries if entry.key in keys}
        except PropertiesError as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"not in the format of properties: {error}")
        now = {key: getattr(settings, name) for key, name in names.items()}
        try:
            wanted = type(settings).model_validate(now | asked)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = first["loc"][0] if first["loc"] else ""
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{place}: {first['msg']}")
        changed = {
            key: getattr(wanted, names[key]) for key in asked if getattr(wanted, names[key]) != now[key]
        }
        if fixed := sorted(changed.keys() - CHANGEABLE):
            return command.reply(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list. {', '.join(fixed)}: change the properties file and restart",
            )
        for key, value in changed.items():
            setattr(settings, names[key], value)
        if changed:
            logger.info("settings changed", extra=fields(peer=peer.remote_address, **changed))
        return command.reply()
