"""Commands about controllers and their state: SyncStateSets, elections, members."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs, controllers, leadership
from mqadmin.calls.controllers import Changed, Group
from mqadmin.command import Argument, UsageWanted, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.replies import ControllerMetadata, MasterInfo, SyncStateInfo
from mqadmin.report import Report, java_text, plain
from remoting.codes import RequestCode
from remoting.headers.controller import CleanBrokerDataHeader


def format_sync_state(state: SyncStateInfo) -> str:
    """One broker set in upstream's layout: a heading, the members of the SyncStateSet, and the other members."""
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
def sync_state_set(
    namesrvaddr: str | None,
    controlleraddress: str,
    brokername: str | None,
    clustername: str | None,
    interval: str | None,
) -> None:
    """Master, epochs and members of broker sets, as the leading controller has them."""
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


def format_metadata(metadata: ControllerMetadata) -> str:
    """Upstream's lines; unknown values are `null`."""
    lines = [
        "",
        f"#ControllerGroup\t{java_text(metadata.group)}",
        f"#ControllerLeaderId\t{java_text(metadata.leader_id)}",
        f"#ControllerLeaderAddress\t{java_text(metadata.leader_address)}",
        *(f"#Peer:\t{peer}" for peer in metadata.peers),
    ]
    return "\n".join(lines) + "\n"


@admin_command(
    "getControllerMetaData",
    Argument("a", "controllerAddress", "the address of controller", required=True),
)
def controller_metadata(namesrvaddr: str | None, controlleraddress: str) -> None:
    """One controller's view of its group and leader."""

    async def calls(client: AdminClient, report: Report) -> None:
        metadata = await client.controller_metadata(split_addresses(controlleraddress)[0])
        report.text(format_metadata(metadata))
        report.put(**plain(metadata))

    run(calls)


ADDRESS_HELP = "Controller address list, eg: 192.168.0.1:9878;192.168.0.2:9878"


@admin_command(
    "getControllerConfig",
    Argument("a", "controllerAddress", ADDRESS_HELP, required=True),
)
def controller_config(namesrvaddr: str | None, controlleraddress: str) -> None:
    """The settings in force on controllers."""

    async def calls(client: AdminClient, report: Report) -> None:
        found: dict[str, dict[str, str]] = {}
        for address in split_addresses(controlleraddress):
            found[address] = await configs.settings_of(client, configs.CONTROLLERS, address)
            report.text(configs.format_settings(address, found[address]))
            report.put(controllers=found)

    run(calls)


def format_updated(addresses: list[str], key: str, value: str) -> str:
    return f"update controller config success![{', '.join(addresses)}]\n{key} : {value}\n"


@admin_command(
    "updateControllerConfig",
    Argument("a", "controllerAddress", ADDRESS_HELP, required=True),
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def update_controller_config(namesrvaddr: str | None, controlleraddress: str, key: str, value: str) -> None:
    """Changes one setting of running controllers, on each of them."""

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = split_addresses(controlleraddress)
        report.put(key=key, value=value, controllers=[])
        async for address in configs.changed(client, configs.CONTROLLERS, addresses, key, value):
            report.add("controllers", address)
        report.text(format_updated(addresses, key, value))

    run(calls)


def format_elected(cluster: str, broker_name: str, elected: MasterInfo) -> str:
    """Upstream's lines. Upstream's tool is meant to list the members but never does, so this tool does not list them."""
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
def elect_master(
    namesrvaddr: str | None, controlleraddress: str, brokerid: str, brokername: str, clustername: str
) -> None:
    """Makes a chosen member of its SyncStateSet the master of a broker set."""
    if not brokerid.isdecimal():
        raise UsageWanted(f"-b {brokerid}: a broker id is a number, see getSyncStateSet")

    async def calls(client: AdminClient, report: Report) -> None:
        elected = await client.elect_master(controlleraddress, clustername, brokername, int(brokerid))
        report.text(format_elected(clustername, brokername, elected))
        report.put(cluster_name=clustername, broker_name=brokername, **plain(elected))

    run(calls)


@admin_command(
    "leadershipTransfer",
    Argument("a", "controllerAddress", "The address of controller", required=True),
    Argument("t", "transfereeId", "The id of the controller that is to lead; left out: the leader chooses"),
)
def leadership_transfer(namesrvaddr: str | None, controlleraddress: str, transfereeid: str | None) -> None:
    """Transfers the leadership of the controllers to another one."""

    async def calls(client: AdminClient, report: Report) -> None:
        moved = await leadership.transfer(client, controlleraddress, transfereeid or "")
        report.text(
            f"\n#ControllerGroup\t{moved.group}\n#FormerLeaderId\t{moved.former_id}\n#ControllerLeaderId\t{moved.leader_id}"
            f"\n#ControllerLeaderAddress\t{moved.leader_address}\n"
        )
        report.put(**moved._asdict())

    run(calls)


def format_change(change: Changed, *, dry_run: bool) -> str:
    """The list of members before and after the change, one line each."""
    said = "#WouldBe" if dry_run else "#Controllers"
    return f"\n#Before\t{listing(change.before)}\n{said}\t{listing(change.after)}\n"


def listing(group: Group) -> str:
    """The members in the form of controllerDLegerPeers. Learners follow after a bar."""
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
def add_controller(namesrvaddr: str | None, controlleraddress: str, member: str, dryrun: bool) -> None:
    """Adds a started controller to the group."""
    name, dash, address = member.partition("-")
    if not (name and dash and address):
        raise UsageWanted(f"{member} is not ID-HOST:PORT")

    async def calls(client: AdminClient, report: Report) -> None:
        change = await controllers.add(client, controlleraddress, name, address, dry_run=dryrun)
        put_change(report, change, dry_run=dryrun)

    run(calls)


@admin_command(
    "removeController",
    Argument("a", "controllerAddress", "The addresses of controllers of the group", required=True),
    Argument("i", "controllerId", "The id of the one that goes; stop it afterwards", required=True),
    Argument("d", "dryRun", "Only ask whether it would, and change nothing", is_flag=True),
)
def remove_controller(
    namesrvaddr: str | None, controlleraddress: str, controllerid: str, dryrun: bool
) -> None:
    """Removes a controller from the group; a leader transfers leadership first."""

    async def calls(client: AdminClient, report: Report) -> None:
        change = await controllers.remove(client, controlleraddress, controllerid, dry_run=dryrun)
        put_change(report, change, dry_run=dryrun)

    run(calls)


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
def clean_broker_metadata(
    namesrvaddr: str | None,
    controlleraddress: str,
    brokercontrolleridstoclean: str | None,
    brokername: str,
    clustername: str | None,
    cleanlivingbroker: bool,
) -> None:
    """Makes the controllers forget brokers that will not come back."""
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
