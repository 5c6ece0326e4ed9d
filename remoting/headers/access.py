"""Headers of the requests that read and change users and policies."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header


@dataclass(slots=True)
class UserHeader(Header):
    """AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003) and AUTH_GET_USER (3004)."""

    username: str | None = None


@dataclass(slots=True)
class ListUsersHeader(Header):
    """AUTH_LIST_USER (3005). `filter` is a part of the names wanted."""

    filter: str | None = None


@dataclass(slots=True)
class SubjectHeader(Header):
    """AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007) and AUTH_GET_ACL (3009). A subject is `User:NAME`."""

    subject: str | None = None


@dataclass(slots=True)
class DeleteAclHeader(Header):
    """AUTH_DELETE_ACL (3008). Without `resource` all rights of the subject are deleted."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(slots=True)
class ListAclsHeader(Header):
    """AUTH_LIST_ACL (3010). The filters are parts of the subjects and resources wanted."""

    subject_filter: str | None = None
    resource_filter: str | None = None
