"""Commands about name servers: settings, the key-value store, write permission in routes."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs, nameservers
from mqadmin.calls.writepermission import set_everywhere
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report

KV_UPDATED = "create or update kv config to namespace success.\n"


@admin_command(
    "updateKvConfig",
    Argument("s", "namespace", "set the namespace", required=True),
    Argument("k", "key", "set the key name", required=True),
    Argument("v", "value", "set the key value", required=True, may_be_empty=True),
)
def update_kv_config(namesrvaddr: str | None, namespace: str, key: str, value: str) -> None:
    """Sets one value of the name servers' key-value store."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        wanted = (namespace.strip(), key.strip(), value.strip())
        report.put(name_servers=await nameservers.put_kv(client, namesrv, *wanted))
        report.text(KV_UPDATED)

    run(calls)


KV_DELETED = "delete kv config from namespace success.\n"


@admin_command(
    "deleteKvConfig",
    Argument("s", "namespace", "set the namespace", required=True),
    Argument("k", "key", "set the key name", required=True),
)
def delete_kv_config(namesrvaddr: str | None, namespace: str, key: str) -> None:
    """Removes one value of the name servers' key-value store."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        gone_from = await nameservers.delete_kv(client, namesrv, namespace.strip(), key.strip())
        report.put(name_servers=gone_from)
        report.text(KV_DELETED)

    run(calls)


@admin_command("wipeWritePerm", Argument("b", "brokerName", "broker name", required=True))
def wipe_write_perm(namesrvaddr: str | None, brokername: str) -> None:
    """Makes name servers return no queue of a broker set to producers, until it registers something new."""
    set_everywhere(namesrvaddr, brokername.strip(), allowed=False)


@admin_command("addWritePerm", Argument("b", "brokerName", "broker name", required=True))
def add_write_perm(namesrvaddr: str | None, brokername: str) -> None:
    """Undoes wipeWritePerm."""
    set_everywhere(namesrvaddr, brokername.strip(), allowed=True)


@admin_command("getNamesrvConfig")
def namesrv_config(namesrvaddr: str | None) -> None:
    """The settings in force on each name server of the list."""
    addresses = split_addresses(required_namesrv(namesrvaddr))

    async def calls(client: AdminClient, report: Report) -> None:
        found: dict[str, dict[str, str]] = {}
        for address in addresses:
            found[address] = await configs.settings_of(client, configs.NAMESRVS, address)
            report.text(configs.format_settings(address, found[address]))
            report.put(name_servers=found)

    run(calls)


def format_updated(addresses: list[str], key: str, value: str) -> str:
    """Upstream's lines. The list of name servers is printed as Java prints lists."""
    return f"update name server config success![{', '.join(addresses)}]\n{key} : {value}\n"


@admin_command(
    "updateNamesrvConfig",
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def update_namesrv_config(namesrvaddr: str | None, key: str, value: str) -> None:
    """Changes one setting of every name server of the list, while they run."""
    addresses = split_addresses(required_namesrv(namesrvaddr))

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(key=key, value=value, name_servers=[])
        done: list[str] = []
        async for address in configs.changed(client, configs.NAMESRVS, addresses, key, value):
            done.append(address)
            report.add("nameServers", address)
        report.text(format_updated(done, key, value))

    run(calls)
