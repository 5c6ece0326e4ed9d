"""Commands about the rights of users: which actions on which resources a user may do, and from where."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import access
from mqadmin.calls.accesschanges import change_brokers
from mqadmin.command import Argument, admin_command, listed, one_of, one_wanted, run
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.wanted import wanted_masters
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

ACTIONS = ("All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
COLUMNS = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}\n"
HEADING = COLUMNS.format("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")


def format_acls(acls: list[AclInfo]) -> str:
    """The table of these rights; nothing if there are none."""
    rows: list[str] = []
    for acl in acls:
        subject = java_text(acl.subject)
        if not acl.policies:
            rows.append(COLUMNS.format(subject, "", "", "", "", ""))
        for policy in acl.policies or ():
            rows.extend(
                COLUMNS.format(
                    subject,
                    java_text(policy.policy_type),
                    java_text(entry.resource),
                    _java_list(entry.actions),
                    _java_list(entry.source_ips),
                    java_text(entry.decision),
                )
                for entry in policy.entries or ()
            )
    return "".join([HEADING, *rows]) if acls else ""


def _java_list(texts: list[str] | None) -> str:
    return "null" if texts is None else f"[{', '.join(texts)}]"


def acl_in(*, subject: str, resources: str, actions: str, sourceip: str | None, decision: str) -> AclInfo:
    """The rights in the options: one for each resource. Raises `UsageWanted` for an empty list, and for an unknown action,
    which upstream's brokers leave out without an error."""
    known = [one_of("-a", action, ACTIONS) for action in listed("-a", actions)]
    sources = listed("-i", sourceip) or None
    entries = [
        PolicyEntryInfo(resource, known, sources, decision.strip()) for resource in listed("-r", resources)
    ]
    return AclInfo(subject.strip(), [PolicyInfo(entries=entries)])


@admin_command(
    "createAcl",
    Argument("b", "brokerAddr", "create acl to which broker"),
    Argument("c", "clusterName", "create acl to which cluster"),
    Argument("s", "subject", "the subject of acl to create.", required=True),
    Argument("r", "resources", "the resources of acl to create", required=True),
    Argument("a", "actions", "the actions of acl to create", required=True),
    Argument("i", "sourceIp", "the sourceIps of acl to create"),
    Argument("d", "decision", "the decision of acl to create", required=True),
)
def create_acl(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, **given: str
) -> None:
    """Gives a user rights on one broker or on every broker of a cluster."""
    one_wanted(brokeraddr, clustername, not_both=True)
    acl = acl_in(**given)

    async def change(client: AdminClient, to: str) -> None:
        await access.create_acl(client, to, acl)

    change_brokers("create acl", brokeraddr, namesrvaddr, clustername, change, acl=acl)


@admin_command(
    "updateAcl",
    Argument("b", "brokerAddr", "update acl to which broker"),
    Argument("c", "clusterName", "update acl to which cluster"),
    Argument("s", "subject", "the subject of acl to update.", required=True),
    Argument("r", "resources", "the resources of acl to update", required=True),
    Argument("a", "actions", "the actions of acl to update", required=True),
    Argument("d", "decision", "the decision of acl to update", required=True),
    Argument("i", "sourceIp", "the sourceIps of acl to update"),
)
def update_acl(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, **given: str
) -> None:
    """Changes rights of a user on one broker or on every broker of a cluster. Rights that the user does not have are added."""
    one_wanted(brokeraddr, clustername, not_both=True)
    acl = acl_in(**given)

    async def change(client: AdminClient, to: str) -> None:
        await access.update_acl(client, to, acl)

    change_brokers("update acl", brokeraddr, namesrvaddr, clustername, change, acl=acl)


@admin_command(
    "deleteAcl",
    Argument("b", "brokerAddr", "delete acl from which broker"),
    Argument("c", "clusterName", "delete acl from which cluster"),
    Argument("s", "subject", "the subject of acl to delete.", required=True),
    Argument("r", "resources", "the resources of acl to delete"),
)
def delete_acl(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    subject: str,
    resources: str | None,
) -> None:
    """Takes one right or all rights from a user, on one broker or on every broker of a cluster."""
    one_wanted(brokeraddr, clustername, not_both=True)
    name, wanted = subject.strip(), listed("-r", resources)

    async def change(client: AdminClient, to: str) -> None:
        for resource in wanted or (None,):
            await access.delete_acl(client, to, name, resource)

    change_brokers("delete acl", brokeraddr, namesrvaddr, clustername, change, subject=name, resources=wanted)


@admin_command(
    "getAcl",
    Argument("b", "brokerAddr", "get acl for which broker"),
    Argument("c", "clusterName", "get acl for specified cluster"),
    Argument("s", "subject", "the subject of acl to get"),
)
def get_acl(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, subject: str | None
) -> None:
    """The rights of one user, as one broker or every master of a cluster reports them."""
    one_wanted(brokeraddr, clustername, not_both=True)
    name = subject.strip() if subject else None

    async def calls(client: AdminClient, report: Report) -> None:
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            acl = await access.acl_of(client, address, name)
            found = [acl] if acl is not None else []
            report.text(format_acls(found))
            report.add("brokers", {"address": address, "acls": found})

    run(calls)


@admin_command(
    "listAcl",
    Argument("b", "brokerAddr", "list acl for which broker."),
    Argument("c", "clusterName", "list acl for specified cluster."),
    Argument("s", "subject", "the subject of acl to filter."),
    Argument("r", "resource", "the resource of acl to filter."),
)
def list_acl(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    subject: str | None,
    resource: str | None,
) -> None:
    """The rights of all users, as one broker or every master of a cluster reports them."""
    one_wanted(brokeraddr, clustername, not_both=True)
    parts = [text.strip() if text else None for text in (subject, resource)]

    async def calls(client: AdminClient, report: Report) -> None:
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            found = await access.acls(client, address, *parts)
            report.text(format_acls(found))
            report.add("brokers", {"address": address, "acls": found})

    run(calls)


async def _acls_to_copy(client: AdminClient, source: str, subjects: list[str]) -> list[AclInfo]:
    """The rights of the named subjects, or of all if none is named. Raises `AdminError` if one of them has no rights."""
    if not subjects:
        return await access.acls(client, source)
    found = {subject: await access.acl_of(client, source, subject) for subject in subjects}
    without = [subject for subject, acl in found.items() if acl is None]
    if without:
        raise AdminError(
            f"{source} has no rights of {', '.join(without)}, so nothing was copied; listAcl shows its rights"
        )
    return [acl for acl in found.values() if acl is not None]


@admin_command(
    "copyAcl",
    Argument("f", "fromBroker", "the source broker that the acls copy from", required=True),
    Argument("t", "toBroker", "the target broker that the acls copy to", required=True),
    Argument("s", "subjects", "the subject list of acl to copy."),
)
def copy_acl(namesrvaddr: str | None, frombroker: str, tobroker: str, subjects: str | None) -> None:
    """Gives users on one broker the rights that they have on another. Other rights that they have there stay."""
    source, target, wanted = frombroker.strip(), tobroker.strip(), listed("-s", subjects)

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(subjects=[])
        for acl in await _acls_to_copy(client, source, wanted):
            if await access.acl_of(client, target, acl.subject) is None:
                await access.create_acl(client, target, acl)
            else:
                await access.update_acl(client, target, acl)
            report.text(f"copy acl of {acl.subject} from {source} to {target} success.\n")
            report.add("subjects", acl.subject)

    run(calls)
