"""deleteSubGroup: takes a consumer group, and what was kept for its retries, from brokers."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import groups, topics
from mqadmin.command import Argument, admin_command, boolean, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.wanted import wanted_masters


def format_deleted(group: str, broker: str, cluster: str | None) -> str:
    where = f" in cluster [{cluster}]" if cluster else ""
    return f"delete subscription group [{group}] from broker [{broker}]{where} success.\n"


@admin_command(
    "deleteSubGroup",
    Argument("b", "brokerAddr", "delete subscription group from which broker"),
    Argument("c", "clusterName", "delete subscription group from which cluster"),
    Argument("g", "groupName", "subscription group name", required=True),
    Argument("r", "removeOffset", "remove offset"),
)
def command(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    groupname: str,
    removeoffset: str | None,
) -> None:
    one_wanted(brokeraddr, clustername)
    clean_offset = boolean("-r", removeoffset)

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        if not any([await groups.is_known(client, address, groupname) for address in addresses]):
            raise AdminError(
                f"no broker of {', '.join(addresses)} has a group {groupname}; consumerProgress lists groups"
            )
        for address in addresses:
            await groups.delete(client, address, groupname, clean_offset=clean_offset)
            report.text(format_deleted(groupname, address, None if brokeraddr else clustername))
            report.add("brokers", address)
        report.put(group=groupname)
        if not brokeraddr:
            namesrv = required_namesrv(namesrvaddr)
            for prefix in (topics.RETRY_PREFIX, topics.DEAD_LETTER_PREFIX):
                for address in addresses:
                    await topics.delete_on_broker(client, address, prefix + groupname)
                await topics.delete_on_name_servers(client, namesrv, prefix + groupname, clustername)

    run(calls)
