"""A guard with a directory that a test changes, and requests from one client."""

from __future__ import annotations

from typing import Any, cast

from accesscontrol.audit import AuditLog
from accesscontrol.directory import KnownUser
from accesscontrol.guard import AccessGuard
from accesscontrol.needs import ClusterRows, Row, Table
from accesscontrol.policies import Action, Kind, Need, Rights
from mqruntime.clock import Clock
from mqruntime.peercertificate import NOT_ASKED, PeerCertificate
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.signing import Credentials, Signer
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer

ALICE, ROOT = Credentials("alice", "wonderland"), Credentials("root", "root-password")
SERVERS = Credentials("servers", "servers-secret")
READ, CHANGE, SEND, SERVE, READ_BY_SERVERS, SEND_MANY = 1, 2, 3, 4, 5, 6
ROWS = ClusterRows("C")


def named(request: RemotingCommand) -> list[Need]:
    return [Need(Kind.TOPIC, request.ext["topic"], (Action.PUB,))]


TABLE: Table = {
    READ: ROWS.reads,
    CHANGE: ROWS.changes,
    SEND: Row(named),
    SERVE: ROWS.of_servers,
    READ_BY_SERVERS: ROWS.read_by_servers,
    SEND_MANY: Row(named, at_least=Need(Kind.TOPIC, "", (Action.PUB,))),
}


class Users:
    """A directory."""

    def __init__(self) -> None:
        self.changes = 0
        self.known = {
            user.access_key: KnownUser(user.access_key, user.secret_key.encode(), is_super=user is ROOT)
            for user in (ALICE, ROOT)
        }
        self.acls: dict[str, Rights] = {}
        self.asked = 0

    def user(self, name: str) -> KnownUser | None:
        return self.known.get(name)

    def rights(self, name: str) -> Rights | None:
        self.asked += 1
        return self.acls.get(name)

    def put(self, user: KnownUser) -> None:
        self.known[user.name] = user
        self.changes += 1

    def allow(self, *resources: str, decision: str = "Allow", host: str | None = None) -> None:
        """These are now all rights of alice, to do everything there."""
        entries = [PolicyEntryInfo(each, ["All"], host and [host] or None, decision) for each in resources]
        self.acls["alice"] = Rights(AclInfo("User:alice", [PolicyInfo(None, entries)]))
        self.changes += 1


class ClientPeer(RecordingPeer):
    had_its_turn = False

    def __init__(self, address: str = "10.0.0.9:5000", certificate: PeerCertificate = NOT_ASKED) -> None:
        super().__init__()
        self.remote_address = address
        self.certificate = certificate

    @property
    def peer(self) -> Peer:
        return cast(Peer, self)


class Scene:
    """`settings` are the arguments of the guard."""

    def __init__(self, **settings: Any) -> None:
        self.users = Users()
        self.clock = ManualClock()
        self.audit = AuditLog("broker", cast(Clock, self.clock))
        self.guard = AccessGuard(
            TABLE,
            self.users,
            self.audit,
            cluster="C",
            **{"server_keys": (SERVERS.access_key, SERVERS.secret_key), **settings},
        )
        self.client = ClientPeer()

    def refusal(
        self, request: RemotingCommand, by: ClientPeer | None = None
    ) -> tuple[int, str | None] | None:
        """Code and remark; None if the request is accepted."""
        reply = self.guard.refusal((by or self.client).peer, request)
        assert reply is None or (reply.opaque, reply.ext, reply.body) == (request.opaque, {}, None)
        return None if reply is None else (reply.code, reply.remark)

    def asked(self, code: int, user: Credentials | None = ALICE, **ext: str) -> tuple[int, str | None] | None:
        return self.refusal(request(code, user, None, **ext))


def request(
    code: int, user: Credentials | None = ALICE, body: bytes | None = None, **ext: str
) -> RemotingCommand:
    command = RemotingCommand.request(code, ext, body)
    command.opaque = 77
    if user is not None:
        Signer(user).sign(command)
    return command


def no_right(resource: str, host: str = "10.0.0.9", why: str = "no matched policies.") -> tuple[int, str]:
    return 16, f"User:alice has no permission to access {resource} from {host}, {why}"
