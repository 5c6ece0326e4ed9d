"""Asks a running broker about its log. The requests need only the standard library, so that a Spark driver or worker needs no
other package of this project.

Invariant: the epochs and the confirm offset of one report are of the same log, because the epochs were equal before and after
the offset was read. The size of a reply and the time for it are limited, whatever the other side sends."""

from __future__ import annotations

import hmac
import json
import socket
import struct
from base64 import b64encode
from dataclasses import dataclass
from time import monotonic
from typing import Any

from mqruntime import hostports
from mqruntime.tlsfiles import FILE_VARIABLE, TlsUnusable, environment_file
from mqruntime.toolcredentials import AccessKeys, CredentialsUnusable, keys_of_environment
from sparkreplay.errors import LiveBrokerFailed, OptionError
from sparkreplay.store.epochs import Epochs

GET_BROKER_RUNTIME_INFO = 28
GET_BROKER_EPOCH_CACHE = 1007
FRAME = struct.Struct(">II")  # number of bytes that follow, size of the JSON header
REPLY_BYTES_MAX = 8 << 20
TIMEOUT_S = 5.0
"""Time limit of all requests to one broker together."""
LOOKS_MAX = 5
CURE = (
    "name a running broker of the store's set (HOST:PORT), or leave address out to read up to the checkpoint"
)


@dataclass(frozen=True)
class BrokerView:
    """One broker's state. Fields that only brokers of this project report are None for a Java broker."""

    address: str
    cluster_name: str
    broker_name: str
    max_offset: int
    epochs: Epochs
    confirm_offset: int | None
    replica_id: int | None
    """The id in the identity file of its store."""
    ran_contract_a: bool


def look_at(addresses: str, cluster_name: str = "", broker_name: str = "") -> BrokerView:
    """The first broker of `HOST:PORT;HOST:PORT` that answers and belongs to the set `broker_name`, if a set is named. Raises
    OptionError or LiveBrokerFailed."""
    failure: LiveBrokerFailed | None = None
    for address in addresses_in(addresses):
        try:
            view = view_of(address)
        except LiveBrokerFailed as error:
            failure = failure or error
            continue
        if not broker_name or (view.cluster_name, view.broker_name) == (cluster_name, broker_name):
            return view
        failure = LiveBrokerFailed(
            address,
            f"is of {view.cluster_name}/{view.broker_name}, but the store of {cluster_name}/{broker_name}; name a broker "
            "of the store's own set",
        )
    assert failure is not None
    raise failure


def addresses_in(text: str) -> list[str]:
    """Raises OptionError."""
    try:
        return hostports.addresses_in(text) or [hostports.check_address(text)]
    except ValueError as error:
        raise OptionError("address", str(error)) from None


def view_of(address: str) -> BrokerView:
    try:
        with Questions(address) as broker:
            cache = broker.ask(GET_BROKER_EPOCH_CACHE)
            for _ in range(LOOKS_MAX):
                table = broker.ask(GET_BROKER_RUNTIME_INFO).get("table")
                again = broker.ask(GET_BROKER_EPOCH_CACHE)
                if epochs_in(address, again) == epochs_in(address, cache):
                    return read_view(address, again, table if isinstance(table, dict) else {})
                cache = again
    except OSError as error:
        raise LiveBrokerFailed(address, f"does not answer ({error}); {CURE}") from error
    raise LiveBrokerFailed(address, "its epochs change all the time; run the job after the elections")


class Questions:
    """One connection, for one request at a time. Raises OSError if the connection fails."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.deadline = monotonic() + TIMEOUT_S
        self.keys = self._keys()
        host, _, port = address.rpartition(":")
        self.connection = self._connect(host.strip("[]"), int(port))

    def _keys(self) -> AccessKeys | None:
        try:
            return keys_of_environment()
        except CredentialsUnusable as error:
            raise LiveBrokerFailed(self.address, f"was not asked: {error}") from None

    def _connect(self, host: str, port: int) -> socket.socket:
        file = environment_file()
        if file is None:
            return socket.create_connection((host, port), TIMEOUT_S)
        from mqruntime.tlsclient import context_from  # it loads the library of settings

        try:
            context = context_from(file)
        except TlsUnusable as error:
            raise LiveBrokerFailed(self.address, f"was not asked: {FILE_VARIABLE}: {error}") from None
        connection = socket.create_connection((host, port), TIMEOUT_S)
        try:
            return context.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, code: int) -> dict[str, Any]:
        """Send request `code`, without header fields but a signature, and without a body; return the body of the reply."""
        asked: dict[str, Any] = {
            "code": code,
            "flag": 0,
            "language": "PYTHON",
            "opaque": code,
            "version": 479,
        }
        if self.keys is not None:
            asked["extFields"] = signed_fields(self.keys)
        header = json.dumps(asked | {"serializeTypeCurrentRPC": "JSON"}).encode()
        self.connection.sendall(FRAME.pack(4 + len(header), len(header)) + header)
        size, word = FRAME.unpack(self.receive(FRAME.size))
        header_bytes = word & 0xFFFFFF
        if not 4 + header_bytes <= size <= REPLY_BYTES_MAX or word >> 24:
            raise LiveBrokerFailed(self.address, f"answers with what is no reply of a broker; {CURE}")
        reply = self.receive(size - 4)
        try:
            header = json.loads(reply[:header_bytes])
            body = json.loads(reply[header_bytes:] or b"null")
            refused, remark = header["code"], str(header.get("remark"))[:200]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LiveBrokerFailed(
                self.address, f"answers request {code} with what cannot be read; {CURE}"
            ) from None
        if refused != 0:
            raise LiveBrokerFailed(self.address, f"refuses request {code} (code {refused}: {remark}); {CURE}")
        return body if isinstance(body, dict) else {}

    def receive(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            left_s = self.deadline - monotonic()
            if left_s <= 0:
                raise TimeoutError("its replies took too long")
            self.connection.settimeout(left_s)
            got = self.connection.recv_into(view)
            if not got:
                raise ConnectionError("the connection ended before the reply did")
            view = view[got:]
        return bytes(buffer)


def signed_fields(keys: AccessKeys) -> dict[str, str]:
    """The fields of a request without other fields and without a body, signed as remoting.signing does."""
    digest = hmac.digest(keys.secret_key.encode(), keys.access_key.encode(), "sha1")
    return {"AccessKey": keys.access_key, "Signature": b64encode(digest).decode()}


def read_view(address: str, cache: dict[str, Any], table: dict[str, Any]) -> BrokerView:
    return BrokerView(
        address=address,
        cluster_name=str(cache.get("clusterName")),
        broker_name=str(cache.get("brokerName")),
        max_offset=number(address, "maxOffset", cache.get("maxOffset")),
        epochs=epochs_in(address, cache),
        confirm_offset=optional(address, "confirmOffset", table),
        replica_id=optional(address, "replicaId", table),
        ran_contract_a=table.get("ranContractA") == "true",
    )


def epochs_in(address: str, cache: dict[str, Any]) -> Epochs:
    spans = cache.get("epochList")
    if not isinstance(spans, list) or not spans or not all(isinstance(span, dict) for span in spans):
        raise LiveBrokerFailed(address, f"reports no epochs: it is empty, or not in controller mode; {CURE}")
    return tuple(
        (number(address, "epoch", span.get("epoch")), number(address, "startOffset", span.get("startOffset")))
        for span in spans
    )


def optional(address: str, name: str, table: dict[str, Any]) -> int | None:
    return number(address, name, table[name]) if name in table else None


def number(address: str, name: str, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 1 << 63):
        raise LiveBrokerFailed(address, f"says {text[:40]!r} for {name}; {CURE}")
    return int(text)
