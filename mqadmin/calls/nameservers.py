"""Requests that change name servers. Each request goes to every name server of the list, because name servers do not
synchronise."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.errors import AdminError, ReplyMalformed, RequestRefused
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import HeaderError
from remoting.header import Header
from remoting.headers.nameserver import (
    AddWritePermResponseHeader,
    BrokerNameHeader,
    GetKVConfigResponseHeader,
    KVConfigHeader,
    PutKVConfigHeader,
    WipeWritePermResponseHeader,
)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


async def set_write_permission(client: AdminClient, namesrv: str, broker_name: str, *, allowed: bool) -> int:
    """Grant (327) or revoke (205) the write permission of a broker set's queues at one name server, and return the number of
    topics."""
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER if allowed else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    reply = await client.ask(namesrv, code, BrokerNameHeader(broker_name))
    try:
        if allowed:
            return AddWritePermResponseHeader.from_ext(reply.ext).add_topic_count
        return WipeWritePermResponseHeader.from_ext(reply.ext).wipe_topic_count
    except HeaderError as error:
        raise ReplyMalformed(f"{namesrv} answered without a count of topics: {error}") from error


async def put_kv(client: AdminClient, namesrv: str, namespace: str, key: str, value: str) -> list[str]:
    """Set one value with PUT_KV_CONFIG (100), and return the name servers that have it now."""
    return await _everywhere(
        client, namesrv, RequestCode.PUT_KV_CONFIG, PutKVConfigHeader(namespace, key, value)
    )


async def delete_kv(client: AdminClient, namesrv: str, namespace: str, key: str) -> list[str]:
    """Remove one value with DELETE_KV_CONFIG (102), and return the name servers that no longer have it."""
    return await _everywhere(client, namesrv, RequestCode.DELETE_KV_CONFIG, KVConfigHeader(namespace, key))


async def get_kv(client: AdminClient, namesrv: str, namespace: str, key: str) -> str:
    """The value that GET_KV_CONFIG (101) returns, from the first name server that answers. Raises `AdminError` if it has
    none."""
    _, reply = await client.ask_any(
        namesrv,
        RequestCode.GET_KV_CONFIG,
        KVConfigHeader(namespace, key),
        advice={ResponseCode.QUERY_NOT_FOUND: "it was never put, or was deleted"},
    )
    value = GetKVConfigResponseHeader.from_ext(reply.ext).value
    if value is None:
        raise AdminError(f"{namespace}/{key} has no value")
    return value


async def add_to_order_conf(client: AdminClient, namesrv: str, topic: str, queues: dict[str, int]) -> str:
    """Change the order conf of a topic, which is the number of queues on each broker set: set the numbers of these broker sets,
    and keep those of other sets. Returns the new order conf."""
    try:
        known = await get_kv(client, namesrv, ORDER_TOPIC_CONFIG, topic)
    except RequestRefused as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        known = ""
    parts = {part.partition(":")[0]: part for part in known.split(";") if part}
    parts |= {name: f"{name}:{count}" for name, count in queues.items()}
    conf = ";".join(parts.values())
    await put_kv(client, namesrv, ORDER_TOPIC_CONFIG, topic, conf)
    return conf


async def _everywhere(client: AdminClient, namesrv: str, code: RequestCode, header: Header) -> list[str]:
    """Send the request to every name server, and return those that succeeded. Raises `AdminError` at the end if one did not."""
    done: list[str] = []
    failed: list[AdminError] = []
    addresses = split_addresses(namesrv)
    for address in addresses:
        try:
            await client.ask(address, code, header)
        except AdminError as error:
            failed.append(error)
        else:
            done.append(address)
    if failed:
        others = f" (done by {', '.join(done)})" if done else ""
        raise AdminError(f"{failed[0]}{others}")
    return done
