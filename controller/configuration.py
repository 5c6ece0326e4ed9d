"""A running controller's settings. GET_CONTROLLER_CONFIG (1010) reads them, UPDATE_CONTROLLER_CONFIG (1009) changes them.

Invariant: a change is accepted as a whole or not at all. Only keys in `CHANGEABLE` can be changed. Their values are read at
each use, so a change has effect at once. It lasts until the process ends. After a change the settings are written to
`controller.properties` in the store root, for an operator to read; no start reads that file."""

from __future__ import annotations

import logging

from controller.decision import Decision
from controller.settings import ControllerSettings
from mqruntime.changedsettings import SettingsRefused, change
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


class ControllerConfiguration:
    """The only object that changes `settings` while the controller runs."""

    def __init__(self, settings: ControllerSettings, files: SmallFiles) -> None:
        self._settings = settings
        self._files = files

    def show(self) -> Decision:
        """All keys with their values, as `key=value` lines."""
        return Decision(body=self._settings.effective().encode())

    async def update(self, body: bytes | bytearray | memoryview | None) -> Decision:
        """Apply the properties in `body`. As in upstream, keys that the controller does not use are ignored. An invalid value
        is rejected; upstream ignores invalid values."""
        if not body:
            return Decision()
        try:
            change(self._settings, body, CHANGEABLE, black_list=self._settings.black_list)
        except SettingsRefused as refused:
            code = ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR
            return Decision(code, str(refused))
        try:
            await self._files.replace(FILE, self._settings.effective().encode())
        except OSError as error:  # only people read the file
            logger.warning("settings in force not written", extra=fields(file=FILE, why=error))
        return Decision()
