"""A scripted server that stores users and rights, as a Java broker answers valid requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from remoting.codes import RequestCode
from remoting.command import RemotingCommand

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

Json = dict[str, Any]


class AccessTables:
    """The users and rights of one broker."""

    def __init__(self, server: ScriptedServer) -> None:
        self.users: dict[str, Json] = {}
        self.acls: dict[str, Json] = {}
        self.add_user("rocketmq", password="12345678", userType="Super")
        server.answers |= {
            RequestCode.AUTH_CREATE_USER: self._store_user,
            RequestCode.AUTH_UPDATE_USER: self._store_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: lambda asked: _reply(asked, self.users.get(asked.ext["username"])),
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._store_acl,
            RequestCode.AUTH_UPDATE_ACL: self._store_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: lambda asked: _reply(asked, self.acls.get(asked.ext["subject"])),
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }

    def add_user(self, name: str, **members: str | None) -> None:
        before = self.users.get(name, {"userType": "Normal", "userStatus": "enable"})
        self.users[name] = before | members | {"username": name}

    def _store_user(self, asked: RemotingCommand) -> RemotingCommand:
        body = orjson.loads(bytes(asked.body or b""))
        assert body["username"] == asked.ext["username"]
        self.add_user(body.pop("username"), **body)
        return asked.reply(0)

    def _delete_user(self, asked: RemotingCommand) -> RemotingCommand:
        self.users.pop(asked.ext["username"], None)
        self.acls.pop(f"User:{asked.ext['username']}", None)
        return asked.reply(0)

    def _list_users(self, asked: RemotingCommand) -> RemotingCommand:
        part = asked.ext.get("filter", "")
        return _reply(asked, [user for name, user in sorted(self.users.items()) if part in name])

    def _store_acl(self, asked: RemotingCommand) -> RemotingCommand:
        body = orjson.loads(bytes(asked.body or b""))
        assert body["subject"] == asked.ext["subject"]
        [policy] = body["policies"]
        entries = self._entries(body["subject"])
        for entry in policy["entries"]:
            entries[entry["resource"]] = entry | {"decision": entry["decision"].capitalize()}
        self._put(body["subject"], entries)
        return asked.reply(0)

    def _delete_acl(self, asked: RemotingCommand) -> RemotingCommand:
        subject, resource = asked.ext["subject"], asked.ext.get("resource")
        kept = {name: entry for name, entry in self._entries(subject).items() if resource not in (None, name)}
        self._put(subject, kept)
        return asked.reply(0)

    def _list_acls(self, asked: RemotingCommand) -> RemotingCommand:
        subject_part, resource_part = (asked.ext.get(f"{kind}Filter", "") for kind in ("subject", "resource"))
        found = []
        for subject, acl in sorted(self.acls.items()):
            [policy] = acl["policies"]
            entries = [entry for entry in policy["entries"] if resource_part in entry["resource"]]
            if subject_part in subject and entries:
                found.append({"subject": subject, "policies": [policy | {"entries": entries}]})
        return _reply(asked, found)

    def _entries(self, subject: str) -> Json:
        policies = self.acls.get(subject, {}).get("policies", ())
        return {entry["resource"]: entry for policy in policies for entry in policy["entries"]}

    def _put(self, subject: str, entries: Json) -> None:
        policy = {"policyType": "Custom", "entries": list(entries.values())}
        self.acls[subject] = {"subject": subject, "policies": [policy]}
        if not entries:
            del self.acls[subject]


def _reply(asked: RemotingCommand, found: Any) -> RemotingCommand:
    """Without a body if nothing was found."""
    return asked.reply(0, None, None, orjson.dumps(found) if found else None)
