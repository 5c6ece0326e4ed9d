"""The setting of proxies whose PROXY headers are read, the same for every server; upstream has none, and reads everybody's.

Invariant: a host that is not named has no influence on the source address of its connections."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from mqruntime.hostports import AddressRanges
from mqruntime.settings import OURS, Settings


class ProxySettings(Settings):
    """A base class, in addition to a server's own settings."""

    UPSTREAM: ClassVar[dict[str, str]] = {"proxyProtocolHosts": OURS}

    proxy_protocol_hosts: str = Field(
        "",
        alias="proxyProtocolHosts",
        description="`ADDRESS,ADDRESS/BITS`: proxies, such as HAProxy, that name the client in a PROXY header, version 1 or 2. "
        "Every connection from there must begin with one, and policies and logs then use the address of that client; name no "
        "host from which servers or other clients connect. Headers from elsewhere are refused; the replication port and HTTP "
        "pages read none",
    )

    @field_validator("proxy_protocol_hosts")
    @classmethod
    def _ranges(cls, value: str) -> str:
        AddressRanges(value)
        return value

    @property
    def proxies(self) -> AddressRanges:
        return AddressRanges(self.proxy_protocol_hosts)
