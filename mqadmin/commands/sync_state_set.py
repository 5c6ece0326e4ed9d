"""getSyncStateSet: master, epochs and members of broker sets, as the leading controller has them."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.replies import SyncState
from mqadmin.report import Report, java_text


def format_sync_state(state: SyncState) -> str:
    """One broker set in upstream's layout: heading, members of the SyncStateSet, then the others."""
    heading = (
        f"\n#brokerName\t{state.broker_name}\n#MasterBrokerId\t{java_text(state.master_id)}"
        f"\n#MasterAddr\t{java_text(state.master_address)}\n#MasterEpoch\t{state.master_epoch}"
        f"\n#SyncStateSetEpoch\t{state.sync_state_set_epoch}"
        f"\n#SyncStateSetNums\t{len(state.in_sync)}\n"
    )
    inside = "".join(f"\nInSyncReplica:\t{replica}\n" for replica in state.in_sync)
    outside = "".join(f"\nNotInSyncReplica:\t{replica}\n" for replica in state.not_in_sync)
    return heading + inside + outside


@admin_command(
    "getSyncStateSet",
    Argument("a", "controllerAddress", "the address of controller", required=True),
    Argument("b", "brokerName", "which broker to fetch"),
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "the interval(second) of get info"),
)
def command(
    namesrvaddr: str | None,
    controlleraddress: str,
    brokername: str | None,
    clustername: str | None,
    interval: str | None,
) -> None:
    one_wanted(brokername, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        if brokername:
            names = [brokername]
        else:
            cluster = await client.cluster_info(required_namesrv(namesrvaddr))
            names = [brokers.broker_name for brokers in cluster.sets_of(clustername)]
        states = await client.sync_states(controlleraddress, names) if names else {}
        if not states:
            wanted = f"broker set {brokername}" if brokername else f"cluster {clustername}"
            raise AdminError(f"{wanted} is unknown; clusterList shows what is registered")
        for name in sorted(states):
            report.text(format_sync_state(states[name]))
            report.add("brokerSets", states[name])

    run(calls, interval=interval)
