"""A cluster with access control at each port, where clients may connect with or without TLS. Tools use TLS, and servers sign
what they send to each other over plain connections."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from localcluster.cluster import Cluster
from localcluster.layout import TLS_FOLDER
from localcluster.secured import admin_of
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.calls.access import create_acl, create_user, delete_acl, update_user
from mqadmin.errors import AdminError
from mqruntime.passwords import ADMINISTRATOR_FILE, TOOLS_FILE
from remoting.bodies.access import CUSTOM, DISABLED, NORMAL, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.signing import Credentials
from scripts.peers.guarded import let_plain_connections_in
from scripts.peers.keys import key_file
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.conftest import ASKED_SOON

T = TypeVar("T")
REFUSED = re.compile(r"request refused .*\buser=(\S+) .*\bcode=(\d+)\b.*$", re.MULTILINE)


@contextmanager
def guarded_cluster(
    folder: Path, *, administrator: Credentials | None = None, **settings: str
) -> Iterator[Cluster]:
    """The cluster, whole. By default its administrator has a random password."""
    soon = {"messageDelayLevel": "1s 1s 1s 1s 1s", **ASKED_SOON, **NOBODY_IS_LATE}
    with Cluster.create(
        folder, controllers=1, brokers=2, secure=True, broker_settings={**soon, **settings}
    ) as cluster:
        let_plain_connections_in(cluster)
        if administrator is not None:
            name, password = administrator.access_key, administrator.secret_key
            tls = cluster.directory / TLS_FOLDER
            (tls / ADMINISTRATOR_FILE).write_text(json.dumps({"username": name, "password": password}))
            (tls / TOOLS_FILE).write_text(f'accessKey: {name}\nsecretKey: "{password}"\n')
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        yield cluster


class Users:
    """The users of a guarded cluster. Their key files go to `folder`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder

    def add(self, name: str, **rights: str) -> Path:
        """Make a user, and return the key file. See `grant`."""
        password = f"password-of-{name}"
        self._done(lambda admin, master: create_user(admin, master, UserInfo(name, password, NORMAL)))
        self.grant(name, **rights)
        return self.keys(name, password)

    def keys(self, name: str, password: str) -> Path:
        """A key file, whether or not there is such a user."""
        file = self._folder / f"keys-{name}-{len([*self._folder.glob('keys-*')])}"
        return key_file(file, Credentials(name, password))

    def grant(self, name: str, **rights: str) -> None:
        """Give rights: `Topic_a="Pub,Sub"` allows these actions on the topic `a`."""
        entries = [
            PolicyEntryInfo(resource.replace("_", ":", 1), actions.split(","), None, "Allow")
            for resource, actions in rights.items()
        ]
        if entries:
            acl = AclInfo(f"User:{name}", [PolicyInfo(CUSTOM, entries)])
            self._done(lambda admin, master: create_acl(admin, master, acl))

    def revoke(self, name: str, resource: str) -> None:
        self._done(lambda admin, master: delete_acl(admin, master, f"User:{name}", resource))

    def disable(self, name: str) -> None:
        self._done(lambda admin, master: update_user(admin, master, UserInfo(name, user_status=DISABLED)))

    def refusals(self) -> list[tuple[str, str]]:
        """User and line of each refusal in the brokers' logs."""
        found = []
        for name in self._cluster.layout.broker_names:
            log = self._cluster.log_file(name).read_text()
            found += [(match[1], match[0]) for match in REFUSED.finditer(log)]
        return found

    def _done(self, change: Callable[[AdminClient, str], Awaitable[None]]) -> None:
        """Make a change at the master, again while it fails."""

        async def probe(admin: AdminClient) -> None:
            master = (await self._cluster.wait_whole(timeout_ms=WAIT_MS)).master_address or ""
            try:
                await change(admin, master)
            except AdminError as error:
                raise NotYet(str(error)) from error

        async def changed() -> None:
            admin = admin_of(self._cluster.layout)
            try:
                await wait_for("a change of users", lambda: probe(admin), WAIT_MS)
            finally:
                await admin.close()

        asyncio.run(changed())
