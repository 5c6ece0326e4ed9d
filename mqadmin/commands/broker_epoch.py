"""getBrokerEpoch: the epoch history of each member of a broker set."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.replies import BrokerEpochs
from mqadmin.report import Report, plain


def format_epochs(address: str, epochs: BrokerEpochs) -> str:
    """One broker in upstream's layout; the broker id is the role's, 0 on the master."""
    heading = (
        f"\n#clusterName\t{epochs.cluster_name}\n#brokerName\t{epochs.broker_name}"
        f"\n#brokerAddr\t{address}\n#brokerId\t{epochs.broker_id}"
    )
    return heading + "".join(f"\n#Epoch: {entry}" for entry in epochs.epochs) + "\n"


@admin_command(
    "getBrokerEpoch",
    Argument("b", "brokerName", "which broker to fetch"),
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "the interval(second) of get info"),
)
def command(
    namesrvaddr: str | None, brokername: str | None, clustername: str | None, interval: str | None
) -> None:
    one_wanted(brokername, clustername, not_both=True)
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        sets = (await client.cluster_info(namesrv)).sets_of(clustername)
        if brokername:
            sets = [brokers for brokers in sets if brokers.broker_name == brokername]
        if not sets:
            wanted = f"broker set {brokername}" if brokername else f"cluster {clustername}"
            raise AdminError(f"{namesrv} knows no {wanted}; clusterList shows what is registered")
        for brokers in sets:
            for address in brokers.addresses.values():
                epochs = await client.broker_epochs(address)
                report.text(format_epochs(address, epochs))
                report.add("brokers", {"brokerAddr": address, **plain(epochs)})

    run(calls, interval=interval)
