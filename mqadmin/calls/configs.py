"""Settings of running servers, as properties: read, and changed one key at a time.

Invariant: a change counts as made only when the server, asked again, shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError, ReplyMalformed
from mqruntime.properties import PropertiesError, dump, parse
from remoting.codes import RequestCode, ResponseCode

NAME_WIDTH = 50
BLACK_LISTED = {ResponseCode.NO_PERMISSION: "this key is set in the file and by a restart only"}


def format_settings(heading: str, settings: dict[str, str]) -> str:
    """Upstream's block: a heading between rules, then a line per key."""
    rows = "".join(f"{key:<{NAME_WIDTH}}=  {value}\n" for key, value in settings.items())
    return f"============{heading}============\n{rows}"


async def broker_settings(client: AdminClient, broker: str) -> dict[str, str]:
    """All keys of one broker in its order (26)."""
    return await _read(client, broker, RequestCode.GET_BROKER_CONFIG)


async def controller_settings(client: AdminClient, controller: str) -> dict[str, str]:
    """All keys of one controller in its order (1010)."""
    return await _read(client, controller, RequestCode.GET_CONTROLLER_CONFIG)


async def change_broker(client: AdminClient, broker: str, key: str, value: str) -> None:
    """Sets one key of a running broker (25)."""
    await _change(client, broker, RequestCode.UPDATE_BROKER_CONFIG, key, value, broker_settings)


async def change_controller(client: AdminClient, controller: str, key: str, value: str) -> None:
    """Sets one key of a running controller (1009)."""
    await _change(client, controller, RequestCode.UPDATE_CONTROLLER_CONFIG, key, value, controller_settings)


async def _read(client: AdminClient, address: str, code: RequestCode) -> dict[str, str]:
    reply = await client.ask(address, code)
    try:
        return {entry.key: entry.value for entry in parse(bytes(reply.body or b"")).entries}
    except PropertiesError as error:
        raise ReplyMalformed(f"{address} answered with settings that are no properties: {error}") from error


async def _change(
    client: AdminClient,
    address: str,
    code: RequestCode,
    key: str,
    value: str,
    read: Callable[[AdminClient, str], Awaitable[dict[str, str]]],
) -> None:
    await client.ask(address, code, body=dump({key: value}).encode(), advice=BLACK_LISTED)
    now = (await read(client, address)).get(key)
    if now is None:
        raise AdminError(f"{address} has no setting {key} and changed nothing; mind upper and lower case")
    if now.strip().lower() != value.strip().lower():
        raise AdminError(f"{address} took {key} = {value} without effect; it still reads {now}")
