"""Creates a broker's access control from its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable

from accesscontrol.audit import AuditLog
from accesscontrol.guard import AccessGuard, OpenAccess, speaks_for_server
from accesscontrol.needs import Table, why_not_for_each_user, why_not_open
from accesscontrol.settings import codes_in
from broker.access.needs import broker_table
from broker.access.rules import TableRules
from broker.role.events import RoleTaken
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import PeerCertificate
from mqruntime.settings import SettingsError
from remoting.bodies.access import ENABLED, SUPER, UserInfo
from remoting.peer import Peer

logger = logging.getLogger("broker.access")


def access_of(
    settings: BrokerSettings,
    tables: Tables,
    clock: Clock,
    is_passed_on: Callable[[Peer], bool],
    why_unsure: Callable[[], str | None],
    is_checked_later: Callable[[int], bool],
) -> AccessGuard | OpenAccess:
    """The access control of the ports for clients. Raises SettingsError."""
    if not settings.authentication_enabled:
        return OpenAccess()
    table = broker_table(settings.broker_cluster_name)
    for key, value, why in (
        (
            "authenticationWhitelist",
            settings.authentication_whitelist,
            why_not_open(table, codes_in(settings.authentication_whitelist)),
        ),
        (
            "authorizationWhitelist",
            settings.authorization_whitelist,
            why_not_for_each_user(table, settings.signed_codes),
        ),
    ):
        if why is not None:
            raise SettingsError(key, value, settings.place, None, why)
    return guard_of(table, settings, tables, clock, is_passed_on, why_unsure, is_checked_later)


def guard_of(
    table: Table,
    settings: BrokerSettings,
    tables: Tables,
    clock: Clock,
    is_passed_on: Callable[[Peer], bool] = lambda peer: False,
    why_unsure: Callable[[], str | None] = lambda: None,
    is_checked_later: Callable[[int], bool] = lambda code: False,
    is_server: Callable[[PeerCertificate], bool] = speaks_for_server,
) -> AccessGuard:
    """The guard of a port whose requests need what `table` says."""
    return AccessGuard(
        table,
        TableRules(tables.users, tables.acls),
        AuditLog("broker", clock),
        cluster=settings.broker_cluster_name,
        server_keys=settings.inner_keys,
        authorizes=settings.authorization_enabled,
        open_codes=settings.open_codes,
        signed_codes=settings.signed_codes,
        is_passed_on=is_passed_on,
        why_unsure=why_unsure,
        is_checked_later=is_checked_later,
        is_server=is_server,
    )


def make_first_administrator(settings: BrokerSettings, tables: Tables, taken: RoleTaken) -> None:
    """Called when a role is taken. A master makes the user of `initAuthenticationUser`, unless there is one of this name."""
    user = settings.init_user
    if taken.leads and user is not None and tables.users.find(user[0]) is None:
        tables.users.put(UserInfo(user[0], user[1], SUPER, ENABLED))
        logger.info("administrator made", extra=fields(user=user[0]))
