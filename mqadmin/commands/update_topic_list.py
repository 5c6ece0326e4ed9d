"""updateTopicList: creates or changes the topics of a file, all or none on each broker."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, run
from mqadmin.configfiles import read_list
from mqadmin.report import Report
from mqadmin.wanted import wanted_masters
from remoting.bodies.topics import TopicConfig, TopicConfigList
from remoting.codes import RequestCode


def format_submitted(address: str) -> str:
    return f"submit batch of topic config to {address} success, please check the result later.\n"


@admin_command(
    "updateTopicList",
    Argument("b", "brokerAddr", "create topic to which broker"),
    Argument("c", "clusterName", "create topic to which cluster"),
    Argument(
        "f",
        "filename",
        "Path to a file with list of org.apache.rocketmq.common.TopicConfig in json format",
        required=True,
    ),
)
def command(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, filename: str) -> None:
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        body = TopicConfigList(read_list(TopicConfig, filename.strip()))
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())
            report.text(format_submitted(address))
            report.add("brokers", address)
        report.put(topics=[topic.topic_name for topic in body.topic_config_list])

    run(calls)
