"""getConsumerConfig: the settings of a consumer group on each broker set that has it."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import groups
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.commands.update_sub_group import fields_of
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from remoting.bodies.groups import SubscriptionGroupConfig

RULE = "=" * 29


def format_config(cluster: str, broker_name: str, group: SubscriptionGroupConfig) -> str:
    """Upstream's block: a heading between rules, then a line per field."""
    rows = "".join(
        f"{name:<40}=  {'' if value is None else java_text(value)}\n"
        for name, value in fields_of(group).items()
    )
    return f"{RULE}{cluster}:{broker_name}{RULE}\n{rows}"


@admin_command("getConsumerConfig", Argument("g", "groupName", "subscription group name", required=True))
def command(namesrvaddr: str | None, groupname: str) -> None:
    namesrv, name = required_namesrv(namesrvaddr), groupname.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(configs=[])
        known = False
        for brokers in (await client.cluster_info(namesrv)).sets_of(None):
            address = brokers.addresses[min(brokers.addresses)]
            group = await groups.settings_of(client, address, name)
            if group is None:
                continue
            known = True
            report.text(format_config(brokers.cluster, brokers.broker_name, group))
            report.add(
                "configs", {"cluster": brokers.cluster, "brokerName": brokers.broker_name, **group.members()}
            )
        if not known:
            raise AdminError(f"no broker has a group {name}; consumerProgress lists the groups")

    run(calls)
