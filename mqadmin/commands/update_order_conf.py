"""updateOrderConf: which queues of an ordered topic each broker set has, as name servers tell clients where
orderMessageEnable is set."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import nameservers
from mqadmin.calls.nameservers import ORDER_TOPIC_CONFIG
from mqadmin.command import Argument, UsageWanted, admin_command, required_namesrv, run
from mqadmin.report import Report
from remoting.bodies.routes import why_no_order_conf

METHODS = "put", "get", "delete"


def format_done(method: str, topic: str, conf: str | None) -> str:
    """Upstream's line of each method; it ends none of them."""
    verb = {"put": "update", "get": "get", "delete": "delete"}[method]
    told = f", orderConf=[{conf}]" if conf is not None else ""
    return f"{verb} orderConf success. topic=[{topic}]{told}{' ' if method == 'get' else ''}"


@admin_command(
    "updateOrderConf",
    Argument("t", "topic", "topic name", required=True),
    Argument("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]"),
    Argument("m", "method", "option type [eg. put|get|delete", required=True),
)
def command(namesrvaddr: str | None, topic: str, orderconf: str | None, method: str) -> None:
    namesrv = required_namesrv(namesrvaddr)
    name, wanted, conf = topic.strip(), method.strip(), (orderconf or "").strip()
    if wanted not in METHODS:
        raise UsageWanted(f"-m {method}: must be put, get or delete")
    if wanted == "put" and (why := why_no_order_conf(conf)) is not None:
        raise UsageWanted(f"-v {orderconf or ''}: {why}")

    async def calls(client: AdminClient, report: Report) -> None:
        shown: str | None = None
        if wanted == "put":
            shown = conf
            await nameservers.put_kv(client, namesrv, ORDER_TOPIC_CONFIG, name, conf)
        elif wanted == "get":
            shown = await nameservers.get_kv(client, namesrv, ORDER_TOPIC_CONFIG, name)
        else:
            await nameservers.delete_kv(client, namesrv, ORDER_TOPIC_CONFIG, name)
        report.text(format_done(wanted, name, shown))
        report.put(topic=name, order_conf=shown)

    run(calls)
