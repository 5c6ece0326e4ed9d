"""Checks each request of a port before its handler: who signed it, and whether they may. Upstream: AuthenticationPipeline and
AuthorizationPipeline.

A request is accepted if it is signed by a user who has what the request needs, or by the credentials that the servers of a
cluster share, or, for requests between servers, if the connection has a server's certificate. What upstream remembers for 60
seconds about a connection is not remembered here: each signature is checked, and a decision about rights counts until any user
or policy changes.

Invariant: a request that is refused here reaches no handler. If the check itself fails, the request is refused."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from accesscontrol.audit import AuditLog
from accesscontrol.directory import Directory, KnownUser
from accesscontrol.needs import ClusterRows, Row, Table
from accesscontrol.policies import AccessDecision, Need
from mqruntime.peercertificate import PeerCertificate
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError
from remoting.fastjson import FastJsonError
from remoting.passedfields import FORMER_FIELDS, as_it_came
from remoting.peer import Peer
from remoting.router import Outcome, Router
from remoting.signing import ACCESS_KEY, SIGNATURE, signature_of

if TYPE_CHECKING:
    from nativepath.native import Sends

logger = logging.getLogger(__name__)

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
ADDS_KEY_AFTER_SIGNING = 399
"""Version (V4_9_3) up to which Java's clients add UNIQUE_KEY_QUERY after they have signed."""
DECISIONS_MAX = 100_000
NAME_LENGTH_MAX = 512
PASSED_BY = "passedBy"
"""Ext field with the user whose request a slave passes on to its master, signed by the slave. For the audit log."""
PASSED_FOR = "passedFor"
"""Ext field with the client's host, in requests that a former master passes on."""
OF_TABLES = frozenset({"unknown user", "disabled user", "wrong signature", "no permission", "unsure"})
"""Kinds of denials that depend on users and policies."""
LONG_BODY_BYTES = 16 << 10
BLOCK_BYTES = 64
INNER_PAD, OUTER_PAD = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))
_sha1 = hashlib.sha1  # noqa: S324 - upstream's signatures are made with it; HMAC does not need what SHA-1 has lost


class AccessDenied(Exception):
    """`kind` is one of few; the text is the remark."""

    def __init__(self, kind: str, remark: str, code: ResponseCode = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.kind = kind
        self.code = code


class Caller(NamedTuple):
    """The user who sent a request, and the client's host; both empty without access control. `known` is the user as this server
    knew the user then: another password ends what the former one began."""

    user: str = ""
    host: str = ""
    known: KnownUser | None = None


NOBODY = Caller()


class Access(Protocol):
    """What the senders of accepted requests may do besides the request itself."""

    def why_not(self, peer: Peer, request: RemotingCommand, need: Need) -> str | None:
        """Why the sender does not have this right, too, which depends on what the request finds; None if they have it."""
        ...

    def recheck(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """The reply that refuses a request that has waited after it was accepted; None if it may be served now."""
        ...

    def sees_passwords(self, request: RemotingCommand) -> bool: ...

    def is_super(self, request: RemotingCommand) -> bool:
        """Whether the sender is a server or a super user; without access control everybody is."""
        ...

    def caller(self, peer: Peer, request: RemotingCommand) -> Caller: ...

    def signer(self, peer: Peer, request: RemotingCommand) -> str | None:
        """The user who signed a request that may not be checked yet; None if the signature is wrong. Empty without access
        control."""
        ...

    def allows(self, caller: Caller, code: int, need: Need) -> bool:
        """Whether the sender of a former request may send a request of this code that needs this, now."""
        ...

    def has_lost(self, caller: Caller, code: int, needs: Iterable[Need]) -> bool:
        """Whether the users and policies that this server knows, which may be old, do not allow such a request any more, or not
        with the password of that time."""
        ...


class OpenAccess:
    """Without access control everybody may do everything, except see passwords."""

    def why_not(self, peer: Peer, request: RemotingCommand, need: Need) -> str | None:
        return None

    def recheck(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        return None

    def sees_passwords(self, request: RemotingCommand) -> bool:
        return False

    def is_super(self, request: RemotingCommand) -> bool:
        return True

    def caller(self, peer: Peer, request: RemotingCommand) -> Caller:
        return NOBODY

    def signer(self, peer: Peer, request: RemotingCommand) -> str | None:
        return ""

    def allows(self, caller: Caller, code: int, need: Need) -> bool:
        return True

    def has_lost(self, caller: Caller, code: int, needs: Iterable[Need]) -> bool:
        return False


def speaks_for_server(certificate: PeerCertificate) -> bool:
    return certificate.is_of_server


HashStates = tuple["hashlib._Hash", "hashlib._Hash"]
"""SHA-1 objects that have hashed the inner and the outer padded key of an HMAC [RFC 2104]."""


class AccessGuard:
    """`server_keys` are the name and password that the servers of the cluster share. `open_codes` need no signature,
    `signed_codes` a signature only. `is_passed_on` says whether a connection is that of a former master, which names the hosts
    of its clients; it may not know the present users, so signatures and rights are checked again here. `why_unsure()` returns
    why this server may not know the present users and policies, or None if it knows them. Then it does not say that a user, a
    password or a right does not exist. `is_checked_later(code)` says whether requests of the code only wait here or are passed
    on, and are checked when they are served. `is_server` says whether a certificate is that of a server from which this port
    expects requests."""

    def __init__(
        self,
        table: Table,
        directory: Directory,
        audit: AuditLog,
        *,
        cluster: str,
        server_keys: tuple[str, str] | None = None,
        authorizes: bool = True,
        open_codes: Collection[int] = (),
        signed_codes: Collection[int] = (),
        is_passed_on: Callable[[Peer], bool] = lambda peer: False,
        why_unsure: Callable[[], str | None] = lambda: None,
        is_checked_later: Callable[[int], bool] = lambda code: False,
        is_server: Callable[[PeerCertificate], bool] = speaks_for_server,
    ) -> None:
        self._table = table
        self._otherwise = ClusterRows(cluster).changes
        self._directory = directory
        self.audit = audit
        self._server_user = (
            None if server_keys is None else KnownUser(server_keys[0], server_keys[1].encode(), is_super=True)
        )
        self._authorizes = authorizes
        self._open_codes = frozenset(open_codes)
        self._signed_codes = frozenset(signed_codes)
        self._is_passed_on = is_passed_on
        self._why_unsure = why_unsure
        self._is_server = is_server
        self._is_checked_later = is_checked_later
        self._decided_at = directory.changes
        self._decisions: dict[tuple[str, str, Need], AccessDecision] = {}
        self._states: dict[bytes, HashStates] = {}
        self._sends_allowed: set[tuple[str, bytes, bytes]] = set()
        self._topic_need: Callable[[str], Need] | None = None

    def guard(self, router: Router, topic_need: Callable[[str], Need] | None = None) -> None:
        """From now on check the requests of `router`, and report administrative ones. `topic_need` returns what a send to a
        topic needs."""
        router.admission = self
        self._topic_need = topic_need
        for code, row in self._table.items():
            if row.is_administrative and code in router.handlers:
                router.watch(code, self._watch)

    # -- remoting.router.RequestAdmission

    def refusal(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """The reply that refuses the request; None if it is accepted, or has to wait and is checked later by `recheck`."""
        return self._refusal(peer, request, may_wait=True)

    def recheck(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """As `refusal`, for a request that has waited."""
        return self._refusal(peer, request, may_wait=False)

    def _refusal(self, peer: Peer, request: RemotingCommand, *, may_wait: bool) -> RemotingCommand | None:
        if request.code in self._open_codes:
            return None
        row = self._table.get(request.code, self._otherwise)
        try:
            if not (row.from_servers(request) and self._comes_from_server(peer.certificate)):
                self._check(peer, request, row)
        except AccessDenied as denied:
            is_unsure = denied.kind in OF_TABLES and self._why_unsure() is not None
            if is_unsure and may_wait and self._is_checked_later(request.code):
                return None
            refused = self._unless_unsure(denied)
            self.audit.refused(peer, request, request.ext.get(ACCESS_KEY, ""), refused.kind, str(refused))
            return request.reply(refused.code, str(refused))
        except (HeaderError, BodyError, FastJsonError) as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        return None

    def admits_sends(self, peer: Peer, sends: Sends) -> bool:
        """Whether all of these plain sends are accepted. If not, each is looked at by `refusal`."""
        self._forget_former_decisions()
        if self._why_unsure() is not None or self._is_passed_on(peer):
            return False
        host = _host_of(peer)
        for name, topic in sends.signers:
            key = host, name, topic
            if key not in self._sends_allowed:
                if not self._may_send(host, name, topic):
                    return False
                if len(self._sends_allowed) >= DECISIONS_MAX:
                    self._sends_allowed.clear()
                self._sends_allowed.add(key)
        return sends.signed_by(self._states)

    # -- Access

    def why_not(self, peer: Peer, request: RemotingCommand, need: Need) -> str | None:
        if not self._authorizes or request.code in self._open_codes | self._signed_codes:
            return None
        name = request.ext.get(ACCESS_KEY, "")
        try:
            if not self._enabled(name).is_super:
                self._check_right(name, need, self._host_of(peer, request))
        except AccessDenied as refused:
            self.audit.refused(peer, request, name, refused.kind, str(refused))
            return str(refused)
        return None

    def sees_passwords(self, request: RemotingCommand) -> bool:
        return self.is_super(request)

    def is_super(self, request: RemotingCommand) -> bool:
        user = self._user(request.ext.get(ACCESS_KEY, ""))
        return request.code not in self._open_codes and user is not None and user.is_super

    def caller(self, peer: Peer, request: RemotingCommand) -> Caller:
        name = request.ext.get(ACCESS_KEY, "")
        return Caller(name, self._host_of(peer, request), self._user(name))

    def signer(self, peer: Peer, request: RemotingCommand) -> str | None:
        try:
            return self._signer(peer, request).name
        except AccessDenied:
            return None

    def allows(self, caller: Caller, code: int, need: Need) -> bool:
        return self._why_unsure() is None and not self.has_lost(caller, code, (need,))

    def has_lost(self, caller: Caller, code: int, needs: Iterable[Need]) -> bool:
        try:
            user = self._enabled(caller.user)
            if caller.known is not None and caller.known.secret_key != user.secret_key:
                return True
            if not user.is_super and self._authorizes and code not in self._signed_codes:
                for need in needs:
                    self._check_right(caller.user, need, caller.host)
        except AccessDenied:
            return True
        return False

    # -- requests that are passed on

    def name_client(self, peer: Peer, requests: Iterable[RemotingCommand]) -> None:
        """Add the client's host to requests that are passed on to another master, which takes it from former masters only."""
        for request in requests:
            host = self._host_of(peer, request)
            if not self._is_passed_on(peer):
                request.ext.pop(FORMER_FIELDS, None)  # only former masters say what they changed
            request.ext[PASSED_FOR] = host

    # -- the check

    def _check(self, peer: Peer, request: RemotingCommand, row: Row) -> None:
        """Raises AccessDenied, HeaderError, BodyError."""
        user = self._signer(peer, request)
        if user is self._server_user:
            return
        if not (user.is_super and row.is_of_cluster) and (why := self._why_unsure()) is not None:
            raise AccessDenied("unsure", why, ResponseCode.SYSTEM_BUSY)
        if user.is_super:
            return
        if row.only_super:
            raise AccessDenied("no permission", f"User:{user.name} is no super user, and no server.")
        if not self._authorizes or request.code in self._signed_codes:
            return
        host = self._host_of(peer, request)
        if row.at_least is not None and len(request.body or b"") > LONG_BODY_BYTES:
            self._check_some(user.name, row.at_least, host)
        for need in row.needs(request):
            self._check_right(user.name, need, host)

    def _unless_unsure(self, denied: AccessDenied) -> AccessDenied:
        """The same, or that this server is busy if it may not know what the denial depends on."""
        why = self._why_unsure() if denied.kind in OF_TABLES else None
        return denied if why is None else AccessDenied("unsure", why, ResponseCode.SYSTEM_BUSY)

    def _comes_from_server(self, certificate: PeerCertificate) -> bool:
        return certificate.was_asked and self._is_server(certificate)

    def _signer(self, peer: Peer, request: RemotingCommand) -> KnownUser:
        """The user who signed the request. Raises AccessDenied, with upstream's remarks."""
        name = request.ext.get(ACCESS_KEY)
        if not name:
            raise AccessDenied("unsigned", "username cannot be null.")
        user = self._enabled(name)
        if not is_signed(request, user.secret_key, is_passed_on=self._is_passed_on(peer)):
            raise AccessDenied("wrong signature", "check signature failed.")
        return user

    def _enabled(self, name: str) -> KnownUser:
        """Raises AccessDenied, with upstream's remarks."""
        user = self._user(name)
        if user is None:
            raise AccessDenied("unknown user", f"User:{name} is not found.")
        if not user.is_enabled:
            raise AccessDenied("disabled user", f"User:{name} is disabled.")
        return user

    def _user(self, name: str) -> KnownUser | None:
        server = self._server_user
        return server if server is not None and name == server.name else self._directory.user(name)

    def _check_right(self, name: str, need: Need, host: str) -> None:
        """Raises AccessDenied."""
        if len(need.name) > NAME_LENGTH_MAX:  # no topic, group or cluster has such a name
            raise AccessDenied("no permission", f"User:{name} has no permission: the name is too long.")
        self._forget_former_decisions()
        key = name, host, need
        verdict = self._decisions.get(key)
        if verdict is None:
            rights = self._directory.rights(name)
            verdict = AccessDecision.NO_MATCH if rights is None else rights.verdict(need, host)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = verdict
        if verdict is not AccessDecision.ALLOWED:
            remark = f"User:{name} has no permission to access {need.resource} from {host}, {verdict.value}"
            raise AccessDenied("no permission", remark)

    def _check_some(self, name: str, need: Need, host: str) -> None:
        """Raises AccessDenied."""
        rights = self._directory.rights(name)
        if rights is None or not rights.allows_some(need, host):
            none = AccessDecision.NO_MATCH.value
            remark = f"User:{name} has no permission to access any {need.kind.value} from {host}, {none}"
            raise AccessDenied("no permission", remark)

    def _may_send(self, host: str, name: bytes, topic: bytes) -> bool:
        """Whether the user may send to the topic. From now on the user's signatures can be checked."""
        user = self._user(name.decode())
        if user is None or not user.is_enabled or self._topic_need is None:
            return False
        if self._authorizes and not user.is_super:
            try:
                self._check_right(user.name, self._topic_need(topic.decode()), host)
            except AccessDenied:
                return False
        self._states[name] = hash_states(user.secret_key)
        return True

    def _forget_former_decisions(self) -> None:
        if self._decided_at != self._directory.changes:
            self._decided_at = self._directory.changes
            self._decisions.clear()
            self._sends_allowed.clear()
            self._states.clear()

    def _host_of(self, peer: Peer, request: RemotingCommand) -> str:
        passed_for = request.ext.get(PASSED_FOR)
        return passed_for if passed_for and self._is_passed_on(peer) else _host_of(peer)

    def _watch(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        name = request.ext.get(ACCESS_KEY, "")
        if self._server_user is not None and name == self._server_user.name:
            name = request.ext.get(PASSED_BY, name)

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                self.audit.served(peer, request, name, outcome.code, outcome.remark or "")
            else:
                self.audit.served(peer, request, name, -1, "" if outcome is None else type(outcome).__name__)

        return answered


def is_signed(request: RemotingCommand, secret_key: bytes, *, is_passed_on: bool = False) -> bool:
    """Whether the request has the right signature, over its fields as they came, or as they came to the former master that has
    passed it on."""
    ext = as_it_came(request.ext) if is_passed_on else request.ext
    signature = ext.get(SIGNATURE)
    if not signature:
        return False
    added = {UNIQUE_KEY_QUERY} if request.version <= ADDS_KEY_AFTER_SIGNING else set[str]()
    if is_passed_on:
        added.add(PASSED_FOR)
    if not added.isdisjoint(ext):
        ext = {key: value for key, value in ext.items() if key not in added}
    pieces = () if request.body is None else (request.body,)
    right = signature_of(ext, pieces, secret_key)
    return hmac.compare_digest(signature.encode(errors="replace"), right.encode())


def hash_states(secret_key: bytes) -> HashStates:
    key = _sha1(secret_key).digest() if len(secret_key) > BLOCK_BYTES else secret_key
    block = key.ljust(BLOCK_BYTES, b"\0")
    return _sha1(block.translate(INNER_PAD)), _sha1(block.translate(OUTER_PAD))


def _host_of(peer: Peer) -> str:
    return peer.remote_address.rpartition(":")[0]
