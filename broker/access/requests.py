"""The requests that read and change users and policies: AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010). Upstream: the
handlers in AdminBrokerProcessor.

Invariant: a change is answered once all members of the SyncStateSet, in Raft mode a majority, have it. Only a super user
changes super users and sees passwords. The credentials that the servers share are no user that could be changed here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from accesscontrol.guard import PASSED_BY, Access
from accesscontrol.policies import ENTRIES_MAX, AccessRefused, added_to, policy_type, resource_of, without
from broker.neighbours.agreement import MetadataReplication
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.switchover.passeddeletions import PASSED_ON
from broker.tables.accesstables import SUBJECT_PREFIX, USERS_MAX, subject_of
from broker.tables.tables import Tables
from mqruntime.clock import Clock
from remoting.bodies.access import DISABLED, ENABLED, NORMAL, SUPER, AclInfo, UserInfo, encode_list
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.headers.access import (
    DeleteAclHeader,
    ListAclsHeader,
    ListUsersHeader,
    SubjectHeader,
    UserHeader,
)
from remoting.peer import Peer
from remoting.router import Handler, Router
from remoting.signing import ACCESS_KEY, SIGNATURE

NAME_BYTES_MAX = 255
PASSWORD_BYTES_MAX = 1_024
RIGHTS_BYTES_MAX = 6 << 20
"""Limit of the rights of all users together. Replicas copy many rows, members of a Raft group all rows, in one frame."""
RIGHTS_PIECES_MAX = 16 * ENTRIES_MAX
"""Limit of a request, which only administrators send: an entry has its actions and sources in lists."""
SYSTEM_ERROR = "An system error occurred, please try again later."
BLANK = "The username is blank"
NO_USER = "The user is not exist"
NO_SUBJECT = "The subject is not exist."
ONLY_SUPER = "The super user can only be {} by super user"
OF_SETTINGS = (
    "{} is the user of {} in this broker's settings; disable the user, or change the settings and restart"
)


OF_JAVA_MASTER = (
    "not changed here: the master is a Java broker, whose users are not copied; change them there, and here while this "
    "broker or another that copies users is master"
)
ADDED = (ACCESS_KEY, SIGNATURE, PASSED_ON, PASSED_BY)
PASSED_MS, PASSED_MAX = 10_000, 64
Change = Callable[[Peer, RemotingCommand, bool], Awaitable[RemotingCommand]]
"""The handler of a change. The last argument says whether the request may be a repetition of one that was carried out."""
Fingerprint = tuple[int, tuple[tuple[str, str], ...], bytes]
PassOn = Callable[[Peer, RemotingCommand], Awaitable[RemotingCommand | None]]
"""Returns the answer of the master; None if this broker has to answer."""


class AccessRequests:
    """The handlers of a broker with these tables."""

    def __init__(
        self,
        tables: Tables,
        agreement: MetadataReplication,
        settings: BrokerSettings,
        access: Access,
        role: Membership,
        pass_on: PassOn,
        clock: Clock,
        master_is_java: Callable[[], bool],
    ) -> None:
        self._tables = tables
        self._users = tables.users
        self._acls = tables.acls
        self._agreement = agreement
        self._settings = settings
        self._access = access
        self._role = role
        self._pass_on = pass_on
        self._clock = clock
        self._master_is_java = master_is_java
        self._passed: dict[Fingerprint, int] = {}
        """Changes that slaves passed on -> until when (monotonic ms) the same request counts as its repetition."""

    def add_to(self, router: Router) -> None:
        changes: dict[RequestCode, Change] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_CREATE_ACL: self._add_rights,
            RequestCode.AUTH_UPDATE_ACL: self._add_rights,
            RequestCode.AUTH_DELETE_ACL: self._delete_rights,
        }
        reads: dict[RequestCode, Handler] = {
            RequestCode.AUTH_GET_USER: self._show_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_GET_ACL: self._show_rights,
            RequestCode.AUTH_LIST_ACL: self._list_rights,
        }
        for code, change in changes.items():
            router.add(code, partial(self._once, change))
        for code, read in reads.items():
            router.add(code, read)

    async def _once(self, change: Change, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Carry out a change. Java's mqadmin sends a change for a cluster to all replicas, in any order. If a slave has passed
        it on, the master has it already when its own request comes. A Java master has users of its own, so its success would
        not mean that anything is changed here."""
        if not self._role.accepts_sends and self._master_is_java():
            return command.reply(ResponseCode.SYSTEM_ERROR, OF_JAVA_MASTER)
        key, now_ms = fingerprint_of(command), self._clock.monotonic_ms()
        is_passed, before = PASSED_ON in command.ext, self._changes
        answer = await change(peer, command, is_passed or now_ms < self._passed.pop(key, 0))
        if is_passed and answer.code == ResponseCode.SUCCESS and self._changes != before:
            if len(self._passed) >= PASSED_MAX:
                del self._passed[next(iter(self._passed))]
            self._passed[key] = now_ms + PASSED_MS
        return answer

    @property
    def _changes(self) -> int:
        return self._users.changes + self._acls.changes

    async def _change(
        self, peer: Peer, command: RemotingCommand, what: str, make: Callable[[], None]
    ) -> RemotingCommand:
        """Carry out a change, or let the master do it. A slave that has the change already lets the master answer, too: the
        slave's copy may be old, and other replicas may not have the change."""
        return await self._pass_on(peer, command) or await self._agreement.change_everywhere(
            command, what, make
        )

    # -- users

    async def _create_user(self, peer: Peer, command: RemotingCommand, is_repeated: bool) -> RemotingCommand:
        name = UserHeader.from_ext(command.ext).username or ""
        if not name.strip():
            return command.reply(ResponseCode.INVALID_PARAMETER, BLANK)
        asked = UserInfo.from_request(command.body)
        try:
            self._check_name(name, asked)
            user = self._new_user(name, asked)
            if self._users.find(name) not in (
                None,
                user,
            ):  # the same may be made again, after an answer without success
                raise AccessRefused("The user is existed")
        except AccessRefused as refused:
            return command.reply(ResponseCode.NO_PERMISSION, str(refused))
        if user.user_type == SUPER and not self._access.is_super(command):
            return command.reply(ResponseCode.SYSTEM_ERROR, ONLY_SUPER.format("create"))
        return await self._change(peer, command, f"user {name}", lambda: self._users.put(user))

    def _new_user(self, name: str, asked: UserInfo) -> UserInfo:
        """Raises AccessRefused."""
        if name not in self._users.rows and len(self._users.rows) >= USERS_MAX:
            raise AccessRefused(f"there are {USERS_MAX} users, which is the most that a broker set keeps")
        if not asked.password:
            raise AccessRefused("password can not be blank")
        return UserInfo(
            name, _checked_password(asked.password), _type_of(asked.user_type), _status_of(asked.user_status)
        )

    async def _update_user(self, peer: Peer, command: RemotingCommand, is_repeated: bool) -> RemotingCommand:
        name = UserHeader.from_ext(command.ext).username or ""
        if not name.strip():
            return command.reply(ResponseCode.INVALID_PARAMETER, BLANK)
        asked = UserInfo.from_request(command.body)
        former = self._users.find(name)
        try:
            self._check_name(name, asked)
            if former is None:
                raise AccessRefused(NO_USER)
            user = self._changed_user(former, asked)
            if SUPER in (former.user_type, user.user_type) and not self._access.is_super(command):
                raise AccessRefused(ONLY_SUPER.format("update"))
        except AccessRefused as refused:
            return command.reply(ResponseCode.NO_PERMISSION, str(refused))

        def make() -> None:  # as in _add_rights
            if (present := self._users.find(name)) is not None:
                self._users.put(self._changed_user(present, asked))

        return await self._change(peer, command, f"user {name}", make)

    @staticmethod
    def _changed_user(former: UserInfo, asked: UserInfo) -> UserInfo:
        """Absent and empty members keep their values. Raises AccessRefused."""
        return replace(
            former,
            password=_checked_password(asked.password) if asked.password else former.password,
            user_type=_type_of(asked.user_type) if asked.user_type else former.user_type,
            user_status=_status_of(asked.user_status) if asked.user_status else former.user_status,
        )

    async def _delete_user(self, peer: Peer, command: RemotingCommand, is_repeated: bool) -> RemotingCommand:
        name = UserHeader.from_ext(command.ext).username or ""
        if not name.strip():
            return command.reply(ResponseCode.INVALID_PARAMETER, BLANK)
        user = self._users.find(name)
        if user is not None and user.user_type == SUPER and not self._access.is_super(command):
            return command.reply(ResponseCode.NO_PERMISSION, ONLY_SUPER.format("update"))
        for key, named in self._names_in_settings().items():
            if named == name:
                return command.reply(ResponseCode.NO_PERMISSION, OF_SETTINGS.format(name, key))
        what = f"the deletion of user {name}"
        return await self._change(peer, command, what, lambda: self._tables.delete_user(name))

    def _show_user(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = UserHeader.from_ext(command.ext).username or ""
        if not name.strip():
            return command.reply(ResponseCode.INVALID_PARAMETER, BLANK)
        user = self._users.find(name)
        return command.reply(body=None if user is None else self._shown(command, user).encode())

    def _list_users(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        part = ListUsersHeader.from_ext(command.ext).filter or ""
        found = [self._shown(command, row) for name, row in sorted(self._users.rows.items()) if part in name]
        return command.reply(body=encode_list(found) if found else None)

    def _shown(self, command: RemotingCommand, user: UserInfo) -> UserInfo:
        return user if self._access.sees_passwords(command) else replace(user, password=None)

    def _check_name(self, name: str, asked: UserInfo) -> None:
        """Raises AccessRefused."""
        if asked.username and asked.username != name:
            raise AccessRefused(f"the header names user {name}, the body {asked.username}")
        if len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
            raise AccessRefused(f"a user name has at most {NAME_BYTES_MAX} bytes, all printable")
        keys = self._settings.inner_keys
        if keys is not None and name == keys.access_key:
            raise AccessRefused(OF_SETTINGS.format(name, "innerClientAuthenticationCredentials"))

    def _names_in_settings(self) -> dict[str, str]:
        """Key -> user name."""
        names = {}
        if self._settings.inner_keys is not None:
            names["innerClientAuthenticationCredentials"] = self._settings.inner_keys.access_key
        if self._settings.init_user is not None:
            names["initAuthenticationUser"] = self._settings.init_user[0]
        return names

    # -- policies

    async def _add_rights(self, peer: Peer, command: RemotingCommand, is_repeated: bool) -> RemotingCommand:
        asked = AclInfo.from_request(command.body, pieces_max=RIGHTS_PIECES_MAX)
        subject = asked.subject or SubjectHeader.from_ext(command.ext).subject
        name = _name_in(subject)
        if name is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)
        try:
            self._check_subject(name)
            named = _name_in(SubjectHeader.from_ext(command.ext).subject)
            if named is not None and named != name:
                raise AccessRefused(f"the header names user {named}, the body {name}")
            asked = replace(asked, subject=subject_of(name))
            self._check_room(added_to(self._acls.find(subject_of(name)), asked))
        except AccessRefused as refused:
            return command.reply(ResponseCode.NO_PERMISSION, str(refused))

        def make() -> None:  # the rights may have changed while another master was asked
            if self._users.find(name) is not None:
                self._acls.put(added_to(self._acls.find(subject_of(name)), asked))

        return await self._change(peer, command, f"rights of {name}", make)

    def _check_room(self, acl: AclInfo) -> None:
        """Raises AccessRefused."""
        others = (row for subject, row in self._acls.rows.items() if subject != acl.subject)
        if sum(len(row.encode()) for row in others) + len(acl.encode()) > RIGHTS_BYTES_MAX:
            raise AccessRefused(f"the rights of all users have {RIGHTS_BYTES_MAX} bytes at most")

    async def _delete_rights(
        self, peer: Peer, command: RemotingCommand, is_repeated: bool
    ) -> RemotingCommand:
        header = DeleteAclHeader.from_ext(command.ext)
        name = _name_in(header.subject)
        if name is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)
        former = self._acls.find(subject_of(name))
        try:
            if self._users.find(name) is None:
                raise AccessRefused(NO_SUBJECT)
            if former is not None:
                self._left(former, header)  # raises for an illegal request
            elif not is_repeated and self._role.accepts_sends:
                raise AccessRefused("The acl is not exist.")
        except AccessRefused as refused:
            return command.reply(ResponseCode.NO_PERMISSION, str(refused))

        def make() -> None:  # as in _add_rights
            present = self._acls.find(subject_of(name))
            left = None if present is None else self._left(present, header)
            self._acls.remove(subject_of(name)) if left is None else self._acls.put(left)

        what = f"the deletion of rights of {name}"
        return await self._change(peer, command, what, make)

    @staticmethod
    def _left(former: AclInfo, header: DeleteAclHeader) -> AclInfo | None:
        """The rights that a deletion leaves. Raises AccessRefused."""
        if not header.resource:
            return None
        kind = policy_type(header.policy_type) if header.policy_type else None
        return without(former, resource_of(header.resource), kind)

    def _check_subject(self, name: str) -> None:
        """Raises AccessRefused."""
        if self._users.find(name) is None:
            raise AccessRefused(f"The subject of {subject_of(name)} is not exist.")

    def _show_rights(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = _name_in(SubjectHeader.from_ext(command.ext).subject)
        if name is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)
        if self._users.find(name) is None:
            return command.reply(ResponseCode.NO_PERMISSION, NO_SUBJECT)
        acl = self._acls.find(subject_of(name))
        return command.reply(body=None if acl is None else acl.encode())

    def _list_rights(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ListAclsHeader.from_ext(command.ext)
        in_subject, in_resource = header.subject_filter or "", header.resource_filter or ""
        found = [
            row if not in_resource or in_resource in subject else shown
            for subject, row in sorted(self._acls.rows.items())
            if in_subject in subject and (shown := _only_resources(row, in_resource)) is not None
        ]
        return command.reply(body=encode_list(found) if found else None)


def fingerprint_of(command: RemotingCommand) -> Fingerprint:
    """The content of the request, without its signature."""
    ext = ((key, value) for key, value in command.ext.items() if key not in ADDED)
    return command.code, tuple(sorted(ext)), bytes(command.body or b"")


def _only_resources(acl: AclInfo, part: str) -> AclInfo | None:
    """The entries whose resource has `part`; None if there are none."""
    if not part or part in (acl.subject or ""):
        return acl
    policies = [
        replace(policy, entries=[entry for entry in policy.entries or () if part in (entry.resource or "")])
        for policy in acl.policies or ()
    ]
    policies = [policy for policy in policies if policy.entries]
    return replace(acl, policies=policies) if policies else None


def _name_in(subject: str | None) -> str | None:
    """The user's name in `User:NAME`; None for another text. Raises BodyError if there is none."""
    if not subject:
        raise BodyError("the request names no subject")
    kind, separator, name = subject.partition(":")
    return name if separator and name and kind.lower() == SUBJECT_PREFIX[:-1].lower() else None


def _checked_password(password: str) -> str:
    """Raises AccessRefused."""
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise AccessRefused(f"a password has at most {PASSWORD_BYTES_MAX} bytes")
    return password


def _type_of(text: str | None) -> str:
    """NORMAL for an absent or unknown type, as upstream."""
    return SUPER if (text or "").lower() == SUPER.lower() else NORMAL


def _status_of(text: str | None) -> str:
    """ENABLED if absent. Raises AccessRefused."""
    if not text or text.lower() == ENABLED:
        return ENABLED
    if text.lower() == DISABLED:
        return DISABLED
    raise AccessRefused("The user status is illegal.")
