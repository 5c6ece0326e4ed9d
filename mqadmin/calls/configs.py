"""Read the settings of running servers, as properties, and change them one key at a time.

Invariant: a change counts as made only if the server reports the new value when it is asked again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError, ReplyMalformed
from mqruntime.properties import PropertiesError, dump, parse
from remoting.codes import RequestCode, ResponseCode

NAME_WIDTH = 50
BLACK_LISTED = {ResponseCode.NO_PERMISSION: "this key is set in the file and by a restart only"}


class ServerKind(NamedTuple):
    """The requests that read and change the settings of servers of one kind."""

    read: RequestCode
    change: RequestCode
    plural: str


BROKERS = ServerKind(RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_BROKER_CONFIG, "brokers")
CONTROLLERS = ServerKind(
    RequestCode.GET_CONTROLLER_CONFIG, RequestCode.UPDATE_CONTROLLER_CONFIG, "controllers"
)
NAMESRVS = ServerKind(RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG, "name servers")


def format_settings(heading: str, settings: dict[str, str]) -> str:
    """Upstream's block: a heading between two rules, then one line per key."""
    rows = "".join(f"{key:<{NAME_WIDTH}}=  {value}\n" for key, value in settings.items())
    return f"============{heading}============\n{rows}"


async def settings_of(client: AdminClient, kind: ServerKind, address: str) -> dict[str, str]:
    """All keys of one server, in the server's order."""
    reply = await client.ask(address, kind.read)
    try:
        return {entry.key: entry.value for entry in parse(bytes(reply.body or b"")).entries}
    except PropertiesError as error:
        raise ReplyMalformed(f"{address} answered with settings that are no properties: {error}") from error


async def changed(
    client: AdminClient, kind: ServerKind, addresses: list[str], key: str, value: str
) -> AsyncIterator[str]:
    """Set one key of each of these running servers and yield the address of each that accepted it.

    Raises: `AdminError` at the end if some servers did not accept it, with the first error and the number of errors."""
    failed: list[AdminError] = []
    for address in addresses:
        try:
            await _change(client, kind, address, key, value)
        except AdminError as error:
            failed.append(error)
        else:
            yield address
    if failed:
        others = f" ({len(failed)} of {len(addresses)} {kind.plural} failed)" if len(addresses) > 1 else ""
        raise AdminError(f"{failed[0]}{others}")


async def _change(client: AdminClient, kind: ServerKind, address: str, key: str, value: str) -> None:
    await client.ask(address, kind.change, body=dump({key: value}).encode(), advice=BLACK_LISTED)
    now = (await settings_of(client, kind, address)).get(key)
    if now is None:
        raise AdminError(f"{address} has no setting {key} and changed nothing; mind upper and lower case")
    if now.strip().lower() != value.strip().lower():
        raise AdminError(f"{address} took {key} = {value} without effect; it still reads {now}")
