"""consumerConnection: the consumers that are connected for a group, and what they subscribe to."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import groups
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.versions import version_name
from remoting.bodies.heartbeats import ConsumerConnection

HEADING = f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version\n"
TOPIC_HEADING = f"{'#Topic':<20} #SubExpression\n"


def format_group(connected: ConsumerConnection) -> str:
    """Clients, subscriptions by topic, and how they consume."""
    clients = "".join(
        f"{row.client_id:<36} {row.client_addr:<22} {row.language:<10} {version_name(row.version)}\n"
        for row in connected.connection_set
    )
    wanted = "".join(
        f"{data.topic:<20} {data.sub_string}\n" for _, data in sorted(connected.subscription_table.items())
    )
    return (
        f"{HEADING}{clients}\nBelow is subscription:\n{TOPIC_HEADING}{wanted}\n"
        f"ConsumeType: {java_text(connected.consume_type)}\nMessageModel: {java_text(connected.message_model)}\n"
        f"ConsumeFromWhere: {java_text(connected.consume_from_where)}\n"
    )


async def must_be_online(
    client: AdminClient, namesrv: str | None, broker: str | None, group: str
) -> ConsumerConnection:
    """The consumers of a group at `broker`, or at all masters. Raises `AdminError` where none is connected."""
    masters = [broker] if broker else await groups.one_of_each_set(client, required_namesrv(namesrv))
    found = await groups.consumers(client, masters, group)
    if found is None:
        raise AdminError(f"no consumer of group {group} is online; consumerProgress lists the groups")
    return found


@admin_command(
    "consumerConnection",
    Argument("g", "consumerGroup", "consumer group name", required=True),
    Argument("b", "brokerAddr", "broker address"),
)
def command(namesrvaddr: str | None, consumergroup: str, brokeraddr: str | None) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        found = await must_be_online(client, namesrvaddr, brokeraddr, consumergroup.strip())
        report.text(format_group(found))
        report.put(**found.to_json())

    run(calls)
