"""Settings that requests read (1010) and change (1009), on this controller alone.

Invariant: a change is taken whole or not at all, and only keys in `CHANGEABLE` change: they are read anew whenever they
count. It lasts until the process ends. What is in force after a change is written to `controller.properties` in the store
root, for an operator to see; start-up does not read it."""

from __future__ import annotations

import logging

from controller.decision import Decision
from controller.settings import ControllerSettings
from mqruntime.changedsettings import ChangeRefused, change
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles
from remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

FILE = "controller.properties"
CHANGEABLE = frozenset(
    {
        "electMasterMaxRetryCount", "enableElectUncleanMaster", "notifyBrokerRoleChanged", "scanInactiveMasterInterval",
        "scanNotActiveBrokerInterval",
    }
)  # fmt: skip


class Configuration:
    """The one object that changes `settings` while the controller runs."""

    def __init__(self, settings: ControllerSettings, files: SmallFiles) -> None:
        self._settings = settings
        self._files = files

    def show(self) -> Decision:
        """All keys with their values, `key=value` lines."""
        return Decision(body=self._settings.effective().encode())

    async def update(self, body: bytes | bytearray | memoryview | None) -> Decision:
        """Take the properties in `body`. Keys that the controller does not use are passed over, as upstream
        does; a value that does not fit is refused, where upstream passes it over too."""
        if not body:
            return Decision()
        try:
            change(self._settings, body, CHANGEABLE, black_list=self._settings.black_list)
        except ChangeRefused as refused:
            code = ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR
            return Decision(code, str(refused))
        try:
            await self._files.replace(FILE, self._settings.effective().encode())
        except OSError as error:  # nothing reads it but people
            logger.warning("%s does not show what is in force now", FILE, extra=fields(why=error))
        return Decision()
