"""Commands for the way to this access control: from the files of ACL 1.0, and from the decisions of Java's brokers.

Invariant: no output has a password."""

from __future__ import annotations

from accesscontrol.javaorder import differences
from accesscontrol.plainacl import Conversion, ConvertedAccount
from accesscontrol.policies import AccessDecision, AccessRefused
from mqadmin.admin import AdminClient
from mqadmin.calls import access
from mqadmin.command import Argument, UsageWanted, admin_command, listed, one_wanted, run
from mqadmin.commands.acls import format_acls
from mqadmin.errors import AdminError, RequestRefused
from mqadmin.plainaclfiles import read_plain_acls
from mqadmin.report import Report, java_text
from mqadmin.wanted import wanted_masters
from remoting.bodies.access import SUPER, AclInfo

USER_COLUMNS = "{:<16}  {:<22}\n"
DIFFERENCE_COLUMNS = "{:<16}  {:<22}  {:<20}  {:<24}  {:<10}  {:<10}\n"
DIFFERENCE_HEADING = DIFFERENCE_COLUMNS.format(
    "#Subject", "#Resource", "#Actions", "#SourceIp", "#Java5.3.3", "#Here"
)
DIFFERENCE_KEYS = ("subject", "resource", "actions", "sourceIp", "java", "here")
SHOWN = {
    AccessDecision.ALLOWED: "Allow",
    AccessDecision.DENIED: "Deny",
    AccessDecision.NO_MATCH: "Deny",
    None: "unknown",
}


@admin_command(
    "importPlainAcl",
    Argument("f", "files", "files and folders of ACL 1.0, eg: 'conf/plain_acl.yml,conf/acl'", required=True),
    Argument("b", "brokerAddr", "create the users on which broker"),
    Argument("c", "clusterName", "create the users on each master of which cluster"),
    Argument("a", "apply", "create the users; without it, print what would be created", is_flag=True),
)
def import_plain_acl(
    namesrvaddr: str | None,
    files: str,
    brokeraddr: str | None,
    clustername: str | None,
    apply: bool | None,
) -> None:
    """Creates users and rights from the accounts of ACL 1.0. Users that exist stay as they are. Not a command of upstream's."""
    if apply:
        one_wanted(brokeraddr, clustername, not_both=True)
    elif brokeraddr or clustername:
        raise UsageWanted("-b and -c need --apply")
    names = listed("-f", files)

    async def calls(client: AdminClient, report: Report) -> None:
        conversion = read_plain_acls(names)
        report.put(lost=conversion.lost)
        if not apply:
            _show(conversion, report)
        failed: list[AdminError] = []
        for broker in await wanted_masters(client, brokeraddr, namesrvaddr, clustername) if apply else ():
            failed += await create_all(client, broker, conversion.accounts, report)
        report.text("".join(f"lost: {line}\n" for line in conversion.lost))
        if failed:
            more = f" (and {len(failed) - 1} more errors)" if len(failed) > 1 else ""
            raise AdminError(f"{failed[0]}{more}")

    run(calls)


def _show(conversion: Conversion, report: Report) -> None:
    """Print what would be created."""
    users = [account.user for account in conversion.accounts]
    acls = [account.acl for account in conversion.accounts if account.acl is not None]
    report.put(users=[{"username": user.username, "userType": user.user_type} for user in users], acls=acls)
    rows = [USER_COLUMNS.format(java_text(user.username), java_text(user.user_type)) for user in users]
    report.text("".join([USER_COLUMNS.format("#UserName", "#UserType"), *rows]))
    report.text(format_acls(acls) + "Nothing was created; --apply with -b or -c creates these users.\n")


async def create_all(
    client: AdminClient, broker: str, accounts: list[ConvertedAccount], report: Report
) -> list[AdminError]:
    """The errors. After an error that is no refusal, the broker gets no more requests."""
    created: list[str] = []
    existing: list[str] = []
    failed: list[AdminError] = []
    for account in accounts:
        name = account.user.username or ""
        try:
            if await access.user_of(client, broker, name) is not None:
                report.text(f"user {name} exists on {broker} and stays as it is.\n")
                existing.append(name)
                continue
            await _create(client, broker, account)
        except AdminError as error:
            failed.append(error)
            if not isinstance(error, RequestRefused):
                break
        else:
            report.text(f"create user {name} to {broker} success.\n")
            created.append(name)
    report.add("brokers", {"address": broker, "created": created, "existing": existing})
    return failed


async def _create(client: AdminClient, broker: str, account: ConvertedAccount) -> None:
    """Raises `AdminError`, which is no `RequestRefused` if the user may be there without rights."""
    await access.create_user(client, broker, account.user)
    if account.acl is None:
        return
    try:
        await access.create_acl(client, broker, account.acl)
    except AdminError as error:
        name = account.user.username
        raise AdminError(
            f"{error}; user {name} has no rights yet: delete it with deleteUser, then import again"
        ) from error


@admin_command(
    "compareAcl",
    Argument("b", "brokerAddr", "compare the rights on which broker"),
    Argument("c", "clusterName", "compare the rights on each master of which cluster"),
)
def compare_acl(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None) -> None:
    """Finds users to whom a Java broker 5.3.3 gives other rights by the same policies. Not a command of upstream's."""
    one_wanted(brokeraddr, clustername, not_both=True)

    async def calls(client: AdminClient, report: Report) -> None:
        subjects: dict[str, None] = {}
        for broker in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            supers = {
                f"User:{user.username}"
                for user in await access.users(client, broker)
                if (user.user_type or "").lower() == SUPER.lower()
            }
            acls = [acl for acl in await access.acls(client, broker) if acl.subject not in supers]
            rows = [row for acl in acls for row in _compared(acl)]
            if rows:
                lines = [DIFFERENCE_COLUMNS.format(*row) for row in rows]
                report.text("".join([DIFFERENCE_HEADING, *lines]))
            shown = [dict(zip(DIFFERENCE_KEYS, row, strict=True)) for row in rows]
            report.add("brokers", {"address": broker, "differences": shown})
            subjects.update(dict.fromkeys(row[0] for row in rows))
        if subjects:
            raise AdminError(
                f"{', '.join(subjects)}: other rights than on Java's brokers 5.3.3, which decide by the order of the entries"
            )

    run(calls)


def _compared(acl: AclInfo) -> list[tuple[str, ...]]:
    """The rows of one subject. A resource is an example of those that differ alike."""
    subject = java_text(acl.subject)
    try:
        found = differences(acl)
    except AccessRefused as error:
        return [(subject, f"refused here: {error}", "", "", SHOWN[None], SHOWN[AccessDecision.DENIED])]
    actions: dict[tuple[str, ...], list[str]] = {}
    for row in found:
        key = (row.need.resource, row.host or "others", SHOWN[row.java], SHOWN[row.ours])
        actions.setdefault(key, []).append(" or ".join(action.value for action in row.need.actions))
    return [
        (subject, resource, ", ".join(names), host, java, here)
        for (resource, host, java, here), names in actions.items()
    ]
