"""Accounts of ACL 1.0 work on a guarded broker as they did, and follow its set."""

from __future__ import annotations

import pytest

from accesscontrol.plainacl import convert
from mqadmin.admin import AdminClient
from mqadmin.commands.accessmigration import create_all
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqclient.errors import SendRefused
from remoting.signing import Credentials, Signer
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

ADMIN = Credentials("admin", "admin-password")
SERVERS = '{"accessKey":"servers","secretKey":"servers-secret"}'
ACCESS = {
    "authenticationEnabled": True,
    "innerClientAuthenticationCredentials": SERVERS,
    "initAuthenticationUser": '{"username":"admin","password":"admin-password"}',
}
FILE = {
    "accounts": [
        {"accessKey": "servers", "secretKey": "another-secret"},
        {"accessKey": "admin", "secretKey": "another-secret"},
        {"accessKey": "writer", "secretKey": "writer-secret", "topicPerms": ["orders=PUB"], "defaultTopicPerm": "PUB|SUB"},
        {"accessKey": "reader", "secretKey": "reader-secret", "topicPerms": ["orders=SUB"], "defaultTopicPerm": "PUB|SUB"},
    ]
}  # fmt: skip


def test_imported_accounts_may_do_what_they_could_and_survive_a_failover() -> None:
    with World(921) as world:
        cluster = Cluster(
            world, 3, ports=ACCESS, credentials=ADMIN, **ACCESS, authorizationEnabled=True
        )  # fmt: skip
        cluster.start_up()
        refused = cluster.run(imported(cluster))
        assert len(refused) == 1 and "servers is the user of innerClientAuthenticationCredentials" in str(
            refused[0]
        )
        assert cluster.run(imported(cluster, keys=None))[0].args[0].count("username cannot be null") == 1
        cluster.master.kill()
        world.run_until(lambda: len(cluster.masters) == 1, 30_000)
        cluster.wait_in_sync(2)
        cluster.run(sent_by(cluster, "writer"))
        cluster.run(sent_by(cluster, "reader", "TBW102"))
        with pytest.raises(SendRefused, match="the decision is deny"):
            cluster.run(sent_by(cluster, "reader"))
        assert cluster.app(cluster.master).tables.users.rows["admin"].password == "admin-password"


async def imported(cluster: Cluster, keys: Credentials | None = ADMIN) -> list[AdminError]:
    """The errors of an import by this user."""
    async with cluster.client() as client:
        admin = AdminClient(client.clock, signer=Signer(keys) if keys else None)
        try:
            accounts = convert([("plain_acl.yml", FILE)]).accounts
            return await create_all(
                admin, cluster.app(cluster.master).address, accounts, Report(as_json=True)
            )
        finally:
            await admin.close()


async def sent_by(cluster: Cluster, user: str, topic: str = "orders") -> None:
    """Raises SendRefused."""
    async with cluster.client(credentials=Credentials(user, f"{user}-secret")) as client:
        await client.producer("producers").send(topic, b"x")
