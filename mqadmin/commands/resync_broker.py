"""resyncBroker: a replica sets its store aside and begins anew with an empty one."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, run
from mqadmin.report import Report
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import ResyncBrokerHeader, ResyncBrokerResponseHeader

ADVICE = {
    ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA: "getSyncStateSet shows who is in the set",
}


def format_resync(said: ResyncBrokerResponseHeader, broker: str, *, dry_run: bool) -> str:
    """One line what, one what becomes of the folder."""
    begins = "would begin" if dry_run else "begins"
    then = (
        "and stays there, for it may hold what no other replica has"
        if said.keeps
        else "and is removed when the new copy is in the SyncStateSet"
    )
    return (
        f"broker {said.broker_id} at {broker} {begins} anew, under an id of its own\n"
        f"its store, with {said.log_bytes} bytes of log, goes to {said.folder} below storePathRootDir, {then}\n"
    )


@admin_command(
    "resyncBroker",
    Argument("b", "brokerAddr", "Address of a replica that is not the master", required=True),
    Argument("d", "dryRun", "Only ask whether it would, and change nothing", is_flag=True),
)
def command(namesrvaddr: str | None, brokeraddr: str, dryrun: bool) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(
            brokeraddr, RequestCode.RESYNC_BROKER, ResyncBrokerHeader(dry_run=dryrun), advice=ADVICE
        )
        said = ResyncBrokerResponseHeader.from_ext(reply.ext)
        report.text(format_resync(said, brokeraddr, dry_run=dryrun))
        report.put(
            broker=brokeraddr,
            broker_id=said.broker_id,
            folder=said.folder,
            log_bytes=said.log_bytes,
            keeps=said.keeps,
            dry_run=dryrun,
        )

    run(calls)
