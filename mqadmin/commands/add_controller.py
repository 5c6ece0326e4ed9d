"""addController: a controller that was started becomes a member of the group."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import controllers
from mqadmin.calls.controllers import Changed, Group
from mqadmin.command import Argument, UsageWanted, admin_command, run
from mqadmin.report import Report


def format_change(change: Changed, *, dry_run: bool) -> str:
    """The list before and the one after, each in a line."""
    said = "#WouldBe" if dry_run else "#Controllers"
    return f"\n#Before\t{listing(change.before)}\n{said}\t{listing(change.after)}\n"


def listing(group: Group) -> str:
    """As controllerDLegerPeers has it, and behind a bar who learns."""
    voters, learners = (
        ";".join(f"{member}-{address}" for member, address in sorted(some.items())) for some in group
    )
    return voters + (f" | {learners}" if learners else "")


def put_change(report: Report, change: Changed, *, dry_run: bool) -> None:
    report.text(format_change(change, dry_run=dry_run))
    report.put(before=change.before._asdict(), after=change.after._asdict(), dry_run=dry_run)


@admin_command(
    "addController",
    Argument("a", "controllerAddress", "The addresses of controllers of the group", required=True),
    Argument("m", "member", "The new one, which runs, as ID-HOST:PORT", required=True),
    Argument("d", "dryRun", "Only ask whether it would, and change nothing", is_flag=True),
)
def command(namesrvaddr: str | None, controlleraddress: str, member: str, dryrun: bool) -> None:
    name, dash, address = member.partition("-")
    if not (name and dash and address):
        raise UsageWanted(f"{member} is not ID-HOST:PORT")

    async def calls(client: AdminClient, report: Report) -> None:
        change = await controllers.add(client, controlleraddress, name, address, dry_run=dryrun)
        put_change(report, change, dry_run=dryrun)

    run(calls)
