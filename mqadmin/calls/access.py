"""Reads and changes users and rights on one broker: AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mqadmin.admin import AdminClient, body_of
from mqadmin.errors import ReplyMalformed
from remoting.bodies.access import AclInfo, UserInfo, acls_in, users_in
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.headers.access import (
    DeleteAclHeader,
    ListAclsHeader,
    ListUsersHeader,
    SubjectHeader,
    UserHeader,
)

RowT = TypeVar("RowT", UserInfo, AclInfo)


async def create_user(client: AdminClient, broker: str, user: UserInfo) -> None:
    await client.ask(broker, RequestCode.AUTH_CREATE_USER, UserHeader(user.username), body=user.encode())


async def update_user(client: AdminClient, broker: str, user: UserInfo) -> None:
    """Change the members that `user` has; the user keeps the others."""
    await client.ask(broker, RequestCode.AUTH_UPDATE_USER, UserHeader(user.username), body=user.encode())


async def delete_user(client: AdminClient, broker: str, username: str) -> None:
    """Delete a user with all rights. A missing user is no error."""
    await client.ask(broker, RequestCode.AUTH_DELETE_USER, UserHeader(username))


async def user_of(client: AdminClient, broker: str, username: str | None) -> UserInfo | None:
    """None if the broker has no such user."""
    reply = await client.ask(broker, RequestCode.AUTH_GET_USER, UserHeader(username))
    return body_of(UserInfo, broker, reply) if reply.body else None


async def users(client: AdminClient, broker: str, part: str | None = None) -> list[UserInfo]:
    """The users whose names contain `part`."""
    reply = await client.ask(broker, RequestCode.AUTH_LIST_USER, ListUsersHeader(part))
    return _rows(users_in, broker, reply)


async def create_acl(client: AdminClient, broker: str, acl: AclInfo) -> None:
    """Give a subject rights. A right of the same resource is replaced."""
    await client.ask(broker, RequestCode.AUTH_CREATE_ACL, SubjectHeader(acl.subject), body=acl.encode())


async def update_acl(client: AdminClient, broker: str, acl: AclInfo) -> None:
    """Brokers do the same as for `create_acl`."""
    await client.ask(broker, RequestCode.AUTH_UPDATE_ACL, SubjectHeader(acl.subject), body=acl.encode())


async def delete_acl(client: AdminClient, broker: str, subject: str, resource: str | None) -> None:
    """Delete the right of one resource, or all rights of the subject."""
    header = DeleteAclHeader(subject, resource=resource)
    await client.ask(broker, RequestCode.AUTH_DELETE_ACL, header)


async def acl_of(client: AdminClient, broker: str, subject: str | None) -> AclInfo | None:
    """None if the subject has no rights. The broker refuses an unknown subject."""
    reply = await client.ask(broker, RequestCode.AUTH_GET_ACL, SubjectHeader(subject))
    return body_of(AclInfo, broker, reply) if reply.body else None


async def acls(
    client: AdminClient, broker: str, subject_part: str | None = None, resource_part: str | None = None
) -> list[AclInfo]:
    """The rights whose subjects and resources contain these parts."""
    header = ListAclsHeader(subject_part, resource_part)
    return _rows(acls_in, broker, await client.ask(broker, RequestCode.AUTH_LIST_ACL, header))


def _rows(read: Callable[[bytes | None], list[RowT]], broker: str, reply: RemotingCommand) -> list[RowT]:
    try:
        return read(bytes(reply.body) if reply.body else None)
    except BodyError as error:
        raise ReplyMalformed(f"{broker} answered with a body that is no list: {error}") from error
