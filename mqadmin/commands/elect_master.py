"""electMaster: hands the mastership of a broker set to a chosen member of its SyncStateSet."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, UsageWanted, admin_command, run
from mqadmin.replies import ElectedMaster
from mqadmin.report import Report, plain


def format_elected(cluster: str, broker_name: str, elected: ElectedMaster) -> str:
    """Upstream's lines. Upstream's tool means to list the members and never does; neither does this."""
    return (
        f"\n#ClusterName\t{cluster}\n#BrokerName\t{broker_name}\n#BrokerMasterAddr\t{elected.master_address}"
        f"\n#MasterEpoch\t{elected.master_epoch}\n#SyncStateSetEpoch\t{elected.sync_state_set_epoch}\n"
    )


@admin_command(
    "electMaster",
    Argument("a", "controllerAddress", "The address of controller", required=True),
    Argument("b", "brokerId", "The id of the broker which requires to become master", required=True),
    Argument(
        "bn",
        "brokerName",
        "The broker name of the replicas that require to be manipulated",
        required=True,
    ),
    Argument("c", "clusterName", "the clusterName of broker", required=True),
)
def command(
    namesrvaddr: str | None, controlleraddress: str, brokerid: str, brokername: str, clustername: str
) -> None:
    if not brokerid.isdecimal():
        raise UsageWanted(f"-b {brokerid}: a broker id is a number, see getSyncStateSet")

    async def calls(client: AdminClient, report: Report) -> None:
        elected = await client.elect_master(controlleraddress, clustername, brokername, int(brokerid))
        report.text(format_elected(clustername, brokername, elected))
        report.put(cluster_name=clustername, broker_name=brokername, **plain(elected))

    run(calls)
