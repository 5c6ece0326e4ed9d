"""A set with access control at all ports, its administrator, and the rights of other users."""

from __future__ import annotations

from typing import Any

from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from remoting.headers.access import SubjectHeader, UserHeader
from remoting.signing import Credentials
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

ADMIN = Credentials("admin", "admin-password")
ALICE = Credentials("alice", "alice-password")
SERVERS = '{"accessKey":"servers","secretKey":"servers-secret"}'
FIRST_USER = '{"username":"admin","password":"admin-password"}'
ACCESS = {
    "authenticationEnabled": True,
    "innerClientAuthenticationCredentials": SERVERS,
    "initAuthenticationUser": FIRST_USER,
}


class GuardedCluster(Cluster):
    """A cluster with access control at all ports; its clients are the administrator's."""

    def __init__(self, world: World, brokers: int, **settings: Any) -> None:
        super().__init__(
            world, brokers, ports=ACCESS, credentials=ADMIN, **ACCESS, authorizationEnabled=True, **settings
        )

    def request(
        self, code: int, header: Any = None, body: bytes | None = None, *, by: Credentials = ADMIN
    ) -> RemotingCommand:
        """The master's answer."""
        reply: RemotingCommand = self.run(
            self.ask(self.app(self.master).address, code, header, body, credentials=by)
        )
        return reply

    def create_user(self, user: Credentials) -> None:
        body = UserInfo(user.access_key, user.secret_key).encode()
        assert self.request(Code.AUTH_CREATE_USER, UserHeader(user.access_key), body).code == 0

    def allow(
        self,
        user: Credentials,
        *entries: tuple[str, list[str]],
        decision: str = "Allow",
        sources: list[str] | None = None,
    ) -> None:
        infos = [PolicyEntryInfo(resource, actions, sources, decision) for resource, actions in entries]
        subject = f"User:{user.access_key}"
        body = AclInfo(subject, [PolicyInfo("Custom", infos)]).encode()
        reply = self.request(Code.AUTH_CREATE_ACL, SubjectHeader(subject), body)
        assert reply.code == 0, reply.remark

    def send_as(self, user: Credentials, topic: str = "orders") -> None:
        """Raises SendRefused."""

        async def send() -> None:
            async with self.client(credentials=user) as client:
                await client.producer("producers").send(topic, b"x")

        self.run(send())
