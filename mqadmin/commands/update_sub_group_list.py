"""updateSubGroupList: creates or changes the consumer groups of a file."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, run
from mqadmin.configfiles import read_list
from mqadmin.report import Report
from mqadmin.wanted import wanted_masters
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.codes import RequestCode


def format_submitted(address: str, *, of_cluster: bool) -> str:
    what = "subscription group" if of_cluster else "group"
    return f"submit batch of {what} config to {address} success, please check the result later.\n"


@admin_command(
    "updateSubGroupList",
    Argument("b", "brokerAddr", "create groups to which broker"),
    Argument("c", "clusterName", "create groups to which cluster"),
    Argument(
        "f",
        "filename",
        "Path to a file with a list of org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig "
        "in json format",
        required=True,
    ),
)
def command(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, filename: str) -> None:
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        body = SubscriptionGroupList(read_list(SubscriptionGroupConfig, filename.strip()))
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            await client.ask(address, code, body=body.encode())
            report.text(format_submitted(address, of_cluster=brokeraddr is None))
            report.add("brokers", address)
        report.put(groups=[group.group_name for group in body.group_config_list])

    run(calls)
