"""Access control of a server that keeps no users: a name server or a controller. It knows the administrators in the settings
and in `administratorsFile`, and the credentials that the servers share."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from aiofiles.base import wrap

from accesscontrol.audit import AuditLog
from accesscontrol.directory import Administrators
from accesscontrol.guard import AccessGuard
from accesscontrol.needs import Table, why_not_open
from accesscontrol.settings import PortAccessSettings
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.properties import PropertiesError, parse
from mqruntime.settings import SettingsError
from remoting.router import Router

logger = logging.getLogger(__name__)

LOOK_MS = 500
BYTES_MAX = 1 << 20


class PortAccess:
    """`server` is the kind of the server in the audit log."""

    def __init__(
        self, settings: PortAccessSettings, table: Table, *, server: str, cluster: str, clock: Clock
    ) -> None:
        """Raises SettingsError if the file of administrators cannot be read."""
        self._settings = settings
        self._file = Path(settings.administrators_file).expanduser() if settings.administrators_file else None
        self._read: bytes | None = None
        self._administrators = Administrators(settings.administrators)
        if (unfit := why_not_open(table, settings.open_codes)) is not None:
            raise SettingsError(
                "authenticationWhitelist", settings.authentication_whitelist, settings.place, None, unfit
            )
        if settings.authentication_enabled and (why := self._read_again()) is not None:
            raise SettingsError("administratorsFile", str(self._file), settings.place, None, why)
        self.audit = AuditLog(server, clock)
        self._guard = AccessGuard(
            table,
            self._administrators,
            self.audit,
            cluster=cluster,
            server_keys=settings.inner_keys,
            open_codes=settings.open_codes,
        )
        self._reported: str | None = None

    def guard(self, router: Router) -> None:
        """From now on check the requests of `router`, if access control is on."""
        if self._settings.authentication_enabled:
            self._guard.guard(router)

    async def run(self) -> None:
        """Read the file of administrators again whenever it changes. While it cannot be read, the last ones count."""
        while self._settings.authentication_enabled and self._file is not None:
            await asyncio.sleep(LOOK_MS / 1000)
            why = await wrap(self._read_again)()
            if why is not None and why != self._reported:
                logger.error("administrators not read again", extra=fields(file=self._file, why=why))
            self._reported = why

    def _read_again(self) -> str | None:
        """Why the file cannot be used; None if it is used."""
        if self._file is None:
            return None
        try:
            if not self._file.is_file():
                return "there is no such file"
            with self._file.open("rb") as file:
                data = file.read(BYTES_MAX + 1)
            if data == self._read:
                return None
            if len(data) > BYTES_MAX:
                return f"it has more than {BYTES_MAX} bytes"
            entries = parse(data).entries
            found = {entry.key: entry.value for entry in entries}
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except PropertiesError as error:
            return f"line {error.line}: {error.why}"
        if commented := [entry for entry in entries if entry.in_xml_comment]:
            return f"line {commented[0].line}: it is inside <!-- -->, which is no comment here; only # begins one"
        if blank := sorted(name for name, password in found.items() if not password):
            return f"{', '.join(blank)}: the password is missing"
        self._read = data
        self._administrators.replace({**self._settings.administrators, **found})
        logger.info("administrators read", extra=fields(file=self._file, names=";".join(sorted(found))))
        return None
