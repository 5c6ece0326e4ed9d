"""The consumer groups that this broker knows, with or without connected consumers. Upstream: SubscriptionGroupManager.

Invariant: the groups that clients create by using a new name are limited, so that the table fits into the frame that slaves
copy, together with topics and locks. An administrator may create more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from broker.tables.autocreation import AutoCreation
from messagestore.systemtopics import RETRY_PREFIX
from mqruntime.clock import Clock
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper

SUBSCRIPTION_GROUPS_FILE = "config/subscriptionGroup.json"
NAME_LENGTH_MAX = 255
NEW_LENGTH_MAX = 120
"""Limit of the name of a group that administrators create. Upstream has the same limit from 5.3.4 on."""
NAMED_LENGTH_MAX = 255 - len(RETRY_PREFIX)
"""Limit of the name of a group that clients create. A longer name makes the retry topic's name invalid."""
NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""Upstream's pattern. The retry topic's name, which is a folder, contains the group's name; in the offset table `@` separates
the topic from it."""
NAME_RULE = f"a group's name has 1 to {NAME_LENGTH_MAX} characters, of ^[%|a-zA-Z0-9_-]+$"
SYSTEM_PREFIX = "CID_RMQ_SYS_"
GROUP_BYTES = 352
"""The size of a group in a copied table, without its name, which the copy has twice."""


def is_group_name(name: str) -> bool:
    """Whether a group may be created with this name. Groups that were read from a file may have other names."""
    return NAME.fullmatch(name) is not None


def is_system_group(name: str) -> bool:
    """Whether upstream itself uses the group."""
    return name.startswith(SYSTEM_PREFIX)


class SubscriptionGroups:
    """The configurations of groups by name. `on_change` runs after each change made here."""

    def __init__(self, clock: Clock, *, auto_create: bool, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self.auto_create = auto_create
        """May change while the broker runs."""
        self._on_change = on_change
        self._wrapper = SubscriptionGroupWrapper()
        self._room = AutoCreation("consumer groups", "updateSubGroup", GROUP_BYTES)
        self.on_row: Callable[[str], None] = lambda name: None
        """Called with the name of each group that is changed here, before `on_change`."""

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        return self._wrapper.subscription_group_table.get(name)

    def find_or_create(self, name: str) -> SubscriptionGroupConfig | None:
        """The group; created with upstream's defaults if it is new and that is allowed, else None."""
        group = self.find(name)
        may_be = is_group_name(name) and len(name) <= NAMED_LENGTH_MAX
        if group is None and self.auto_create and may_be and self._room.takes(name):
            group = SubscriptionGroupConfig(name)
            self.put(group)
        return group

    def put(self, group: SubscriptionGroupConfig) -> None:
        if self.find(group.group_name) is None:
            self._room.added(group.group_name)
        self._wrapper.subscription_group_table[group.group_name] = group
        self.on_row(group.group_name)
        self._changed()

    def remove(self, name: str) -> None:
        if self._wrapper.subscription_group_table.pop(name, None) is not None:
            self._room.removed(name)
            self.on_row(name)
            self._changed()

    @property
    def wrapper(self) -> SubscriptionGroupWrapper:
        """The table in the form that slaves get."""
        return self._wrapper

    def adopt(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Adopt the master's table. Returns False if its version equals the own version."""
        if wrapper.data_version == self._wrapper.data_version:
            return False
        self.replace(wrapper)
        return True

    def replace(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Adopt the master's table, even if the versions are equal. Returns whether a group changed."""
        former, self._wrapper = self._wrapper, wrapper
        self._room.are(wrapper.subscription_group_table)
        return (former.subscription_group_table, former.forbidden_table) != (
            wrapper.subscription_group_table,
            wrapper.forbidden_table,
        )

    def apply(
        self, changed: Iterable[SubscriptionGroupConfig], gone: Iterable[str], version: DataVersion
    ) -> bool:
        """Adopt the master's changes, which lead to this version. Returns whether a group or the version changed."""
        table, differs = self._wrapper.subscription_group_table, False
        for group in changed:
            former = table.get(group.group_name)
            if former is None:
                self._room.added(group.group_name)
            if former != group:
                table[group.group_name], differs = group, True
        for name in gone:
            if table.pop(name, None) is not None:
                self._room.removed(name)
                differs = True
        differs |= self._wrapper.data_version != version
        self._wrapper.data_version = version
        return differs

    def encode(self) -> bytes:
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Read the content of subscriptionGroup.json. Raises BodyError."""
        self.replace(SubscriptionGroupWrapper.decode(data))

    def _changed(self) -> None:
        version: DataVersion = self._wrapper.data_version
        self._wrapper.data_version = version.next_version(self._clock.now_ms())
        self._on_change()
