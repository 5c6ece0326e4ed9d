"""Commands about users of access control.

Invariant: only the tables of getUser and listUser show passwords."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.calls import access
from mqadmin.calls.accesschanges import change_brokers
from mqadmin.command import Argument, UsageWanted, admin_command, listed, one_of, one_wanted, run
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.wanted import wanted_masters
from remoting.bodies.access import DISABLED, ENABLED, NORMAL, SUPER, UserInfo

VARIABLE = "MQ_NEW_PASSWORD"
FROM_ELSEWHERE = "-"
COLUMNS = "{:<16}  {:<22}  {:<22}  {:<22}\n"
HEADING = COLUMNS.format("#UserName", "#Password", "#UserType", "#UserStatus")


def format_users(users: list[UserInfo]) -> str:
    """The table of these users; nothing if there are none."""
    rows = [
        COLUMNS.format(
            java_text(user.username),
            java_text(user.password),
            java_text(user.user_type),
            java_text(user.user_status),
        )
        for user in users
    ]
    return "".join([HEADING, *rows]) if rows else ""


def without_passwords(address: str, users: list[UserInfo]) -> dict[str, Any]:
    """The users of one broker for JSON, which scripts may log."""
    rows = [
        {"username": user.username, "userType": user.user_type, "userStatus": user.user_status}
        for user in users
    ]
    return {"address": address, "users": rows}


def new_password(given: str | None) -> str:
    """The password in -p, or the one in MQ_NEW_PASSWORD if -p is absent or `-`. If that variable is not set, `-` means the
    first line of standard input. Every user of the machine can read a password in an option (`ps`).

    Raises: `UsageWanted` if there is none."""
    text = given
    if given is None or given.strip() == FROM_ELSEWHERE:
        text = os.environ.get(VARIABLE)
        if text is None and given is not None:
            text = getpass("New password: ") if sys.stdin.isatty() else sys.stdin.readline()
    if text is None:
        raise UsageWanted(f"one of -p and {VARIABLE} is needed")
    if not text.strip():
        raise UsageWanted("the password is empty")
    return text.strip()


def user_type(text: str | None) -> str | None:
    """The type in -t. Raises `UsageWanted`: upstream's brokers make an unknown type Normal without an error."""
    return None if text is None else one_of("-t", text, (SUPER, NORMAL))


@admin_command(
    "createUser",
    Argument("b", "brokerAddr", "create user to which broker"),
    Argument("c", "clusterName", "create user to which cluster"),
    Argument("u", "username", "the username of user to create.", required=True),
    Argument(
        "p",
        "password",
        f"the password of user to create; without it {VARIABLE} of the environment; '-': that or standard input",
    ),
    Argument("t", "userType", "the userType of user to create"),
)
def create_user(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    username: str,
    password: str | None,
    usertype: str | None,
) -> None:
    """Creates a user on one broker or on every broker of a cluster."""
    one_wanted(brokeraddr, clustername, not_both=True)
    user = UserInfo(username.strip(), new_password(password), user_type(usertype))

    async def change(client: AdminClient, to: str) -> None:
        await access.create_user(client, to, user)

    change_brokers("create user", brokeraddr, namesrvaddr, clustername, change, username=user.username)


@admin_command(
    "updateUser",
    Argument("b", "brokerAddr", "update user to which broker"),
    Argument("c", "clusterName", "update user to which cluster"),
    Argument("u", "username", "the username of user to update.", required=True),
    Argument(
        "p",
        "password",
        f"the password of user to update; '-': {VARIABLE} of the environment or standard input",
    ),
    Argument("t", "userType", "the userType of user to update"),
    Argument("s", "userStatus", "the userStatus of user to update"),
)
def update_user(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    username: str,
    password: str | None,
    usertype: str | None,
    userstatus: str | None,
) -> None:
    """Changes password, type or status of a user on one broker or on every broker of a cluster."""
    one_wanted(brokeraddr, clustername, not_both=True)
    if sum(text is not None for text in (password, usertype, userstatus)) != 1:
        raise UsageWanted("exactly one of -p, -s and -t is needed")
    user = UserInfo(
        username.strip(),
        new_password(password) if password is not None else None,
        user_type(usertype),
        None if userstatus is None else one_of("-s", userstatus, (ENABLED, DISABLED)),
    )

    async def change(client: AdminClient, to: str) -> None:
        await access.update_user(client, to, user)

    change_brokers("update user", brokeraddr, namesrvaddr, clustername, change, username=user.username)


@admin_command(
    "deleteUser",
    Argument("b", "brokerAddr", "delete user from which broker"),
    Argument("c", "clusterName", "delete acl from which cluster"),
    Argument("u", "username", "the username of user to delete.", required=True),
)
def delete_user(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, username: str
) -> None:
    """Deletes a user with all rights from one broker or from every broker of a cluster."""
    one_wanted(brokeraddr, clustername, not_both=True)
    name = username.strip()

    async def change(client: AdminClient, to: str) -> None:
        await access.delete_user(client, to, name)

    change_brokers("delete user", brokeraddr, namesrvaddr, clustername, change, username=name)


@admin_command(
    "getUser",
    Argument("b", "brokerAddr", "get user for which broker"),
    Argument("c", "clusterName", "get user for specified cluster"),
    Argument("u", "username", "the username of user to get"),
)
def get_user(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, username: str | None
) -> None:
    """One user of one broker, or of the first master of a cluster that has the user."""
    one_wanted(brokeraddr, clustername, not_both=True)
    name = username.strip() if username else None

    async def calls(client: AdminClient, report: Report) -> None:
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            user = await access.user_of(client, address, name)
            found = [user] if user is not None else []
            report.text(format_users(found))
            report.add("brokers", without_passwords(address, found))
            if found:
                break

    run(calls)


@admin_command(
    "listUser",
    Argument("b", "brokerAddr", "list user for which broker"),
    Argument("c", "clusterName", "list user for specified cluster"),
    Argument("f", "filter", "the filter to list users"),
)
def list_user(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, filter: str | None
) -> None:
    """The users of one broker, or of the first master of a cluster that has any."""
    one_wanted(brokeraddr, clustername, not_both=True)
    part = filter.strip() if filter else None

    async def calls(client: AdminClient, report: Report) -> None:
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            found = await access.users(client, address, part)
            report.text(format_users(found))
            report.add("brokers", without_passwords(address, found))
            if found:
                report.text(f"get user from {address} success.\n" if clustername else "")
                break

    run(calls)


async def _users_to_copy(client: AdminClient, source: str, names: list[str]) -> list[UserInfo]:
    """The named users, or all if no name is given. Raises `AdminError` if the source does not have one of them."""
    if not names:
        return await access.users(client, source)
    found = {name: await access.user_of(client, source, name) for name in names}
    unknown = [name for name, user in found.items() if user is None]
    if unknown:
        raise AdminError(
            f"{source} has no user {', '.join(unknown)}, so nothing was copied; listUser shows its users"
        )
    return [user for user in found.values() if user is not None]


@admin_command(
    "copyUser",
    Argument("f", "fromBroker", "the source broker that the users copy from", required=True),
    Argument("t", "toBroker", "the target broker that the users copy to", required=True),
    Argument("u", "usernames", "the username list of user to copy."),
)
def copy_user(namesrvaddr: str | None, frombroker: str, tobroker: str, usernames: str | None) -> None:
    """Creates or changes users on one broker as another broker has them."""
    source, target, wanted = frombroker.strip(), tobroker.strip(), listed("-u", usernames)

    async def calls(client: AdminClient, report: Report) -> None:
        withheld: list[str] = []
        report.put(users=[])
        for user in await _users_to_copy(client, source, wanted):
            if not user.password:
                withheld.append(java_text(user.username))
                continue
            if await access.user_of(client, target, user.username) is None:
                await access.create_user(client, target, user)
            else:
                await access.update_user(client, target, user)
            report.text(f"copy user of {user.username} from {source} to {target} success.\n")
            report.add("users", user.username)
        if withheld:
            raise AdminError(
                f"{source} returned no password of {', '.join(withheld)}, so nothing of them was copied; "
                "sign the request as a Super user"
            )

    run(calls)
