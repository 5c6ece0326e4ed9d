"""cleanBrokerMetadata: makes the controllers forget brokers that will not come back."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, UsageWanted, admin_command, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from remoting.codes import RequestCode
from remoting.headers.controller import CleanBrokerDataHeader


def format_cleaned(broker_name: str) -> str:
    return f"clear broker {broker_name} metadata from controller success! \n"


@admin_command(
    "cleanBrokerMetadata",
    Argument("a", "controllerAddress", "The address of controller", required=True),
    Argument(
        "b",
        "brokerControllerIdsToClean",
        "The brokerController id list which requires to clean metadata. eg: 1;2;3, means that clean broker-1, "
        "broker-2 and broker-3",
    ),
    Argument(
        "bn",
        "brokerName",
        "The broker name of the replicas that require to be manipulated",
        required=True,
    ),
    Argument("c", "clusterName", "The clusterName of broker"),
    Argument(
        "l", "cleanLivingBroker", "Whether clean up living brokers,default value is false", is_flag=True
    ),
)
def command(
    namesrvaddr: str | None,
    controlleraddress: str,
    brokercontrolleridstoclean: str | None,
    brokername: str,
    clustername: str | None,
    cleanlivingbroker: bool,
) -> None:
    if not cleanlivingbroker and not clustername:
        raise UsageWanted("-c is needed unless -l is given")
    ids = [part.strip() for part in (brokercontrolleridstoclean or "").split(";") if part.strip()]
    if not all(part.isdecimal() for part in ids) or (brokercontrolleridstoclean is not None and not ids):
        raise UsageWanted(f"-b {brokercontrolleridstoclean}: write broker ids as 1;2;3")

    async def calls(client: AdminClient, report: Report) -> None:
        state = (await client.sync_states(controlleraddress, [brokername])).get(brokername)
        if state is None:
            raise AdminError(f"the controllers know no broker set {brokername}; clusterList shows what runs")
        members = {replica.broker_id for replica in (*state.in_sync, *state.not_in_sync)}
        unknown = [part for part in ids if int(part) not in members]
        if unknown:
            raise AdminError(
                f"{brokername} has no broker {', '.join(unknown)}; getSyncStateSet shows which it has"
            )
        leader = await client.leader(controlleraddress)
        await client.ask(
            leader,
            RequestCode.CLEAN_BROKER_DATA,
            CleanBrokerDataHeader(
                broker_name=brokername,
                cluster_name=clustername,
                broker_controller_ids_to_clean=";".join(ids) or None,
                is_clean_living_broker=cleanlivingbroker,
                invoke_time=client.clock.now_ms(),
            ),
        )
        report.text(format_cleaned(brokername))
        report.put(broker_name=brokername, broker_ids=[int(part) for part in ids])

    run(calls)
