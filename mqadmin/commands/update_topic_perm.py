"""updateTopicPerm: changes who may use a topic, and nothing else of it, on one master or on all of a cluster."""

from __future__ import annotations

from dataclasses import replace

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, one_wanted, required_namesrv, run
from mqadmin.commands.update_topic import format_topic, perm_of
from mqadmin.errors import AdminError
from mqadmin.report import Report

SAME = "new perm equals to the old one!\n"


def format_changed(old: int, new: int, address: str) -> str:
    return f"update topic perm from {old} to {new} in {address} success.\n"


@admin_command(
    "updateTopicPerm",
    Argument("b", "brokerAddr", "create topic to which broker"),
    Argument("c", "clusterName", "create topic to which cluster"),
    Argument("t", "topic", "topic name", required=True),
    Argument("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", required=True),
)
def command(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, topic: str, perm: str
) -> None:
    one_wanted(brokeraddr, clustername)
    wanted, name, namesrv = perm_of(perm), topic.strip(), required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        holders = await topics.holders(client, namesrv, name, clustername if not brokeraddr else None)
        addresses = [holder.address for holder in holders if brokeraddr in (None, holder.address)]
        if not addresses:
            raise AdminError(f"{brokeraddr} is no master that has topic {name}; topicRoute shows who has it")
        for address in addresses:
            now = await topics.settings_of(client, address, name)
            if now.perm == wanted:
                report.text(SAME)
            else:
                await client.create_topic(address, replace(now, perm=wanted))
                report.text(format_changed(now.perm, wanted, address))
                if brokeraddr:
                    report.text(format_topic(replace(now, perm=wanted)).rstrip("\n") + ".\n")
            report.add("brokers", {"address": address, "permBefore": now.perm, "perm": wanted})

    run(calls)
