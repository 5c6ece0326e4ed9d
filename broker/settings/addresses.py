"""The addresses and ports of a broker, and the addresses of the servers that it calls.

Invariant: records and message ids can hold the address that clients get. Every port derived from another port is valid."""

from __future__ import annotations

from ipaddress import ip_address
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from mqruntime.hostports import addresses_in, check_host
from mqruntime.settings import OURS, Settings


class AddressSettings(Settings):
    """The settings of a broker about the network."""

    UPSTREAM: ClassVar[dict[str, str]] = {
        "bindAddress": "every address",
        "brokerIP1": "first address that is not loopback",
        "brokerIP2": "first address that is not loopback",
        "fastListenPort": OURS,
        "haListenPort": "10912",
    }

    broker_ip1: str = Field(
        "127.0.0.1", alias="brokerIP1", description="IP address for clients and controllers"
    )
    broker_ip2: str = Field("", alias="brokerIP2", description="IP address for slaves; empty: `brokerIP1`")
    bind_address: str = Field(
        "",
        alias="bindAddress",
        description="host that the ports are opened on; empty: `brokerIP1`; a wider one is warned of",
    )
    listen_port: int = Field(
        10911,
        alias="listenPort",
        ge=0,
        le=65535,
        description="port for clients, admin tools and other brokers; 0 takes a free one",
    )
    fast_listen_port: int = Field(
        0, alias="fastListenPort", ge=0, le=65535, description="second port for the same; 0: `listenPort` - 2"
    )
    ha_listen_port: int = Field(
        0,
        alias="haListenPort",
        ge=0,
        le=65535,
        description="port that slaves fetch the log from; 0: `listenPort` + 1",
    )
    namesrv_addr: str = Field("", alias="namesrvAddr", description="name servers, `host:port;host:port`")
    controller_addr: str = Field(
        "", alias="controllerAddr", description="controllers, `host:port;host:port`; required but in a pair"
    )
    server_channel_max_idle_time_seconds: int = Field(
        120,
        alias="serverChannelMaxIdleTimeSeconds",
        ge=1,
        description="a connection on which nothing moves for so long is closed",
    )

    @field_validator("broker_ip1", "broker_ip2")
    @classmethod
    def _ip_address(cls, value: str) -> str:
        if value and ip_address(value).is_unspecified:  # records and message ids contain the IP address
            raise ValueError(
                f"{value} is no address that others reach; name one, and open all with bindAddress={value}"
            )
        return value

    @field_validator("namesrv_addr", "controller_addr")
    @classmethod
    def _addresses(cls, value: str) -> str:
        addresses_in(value)
        return value

    @field_validator("bind_address")
    @classmethod
    def _host(cls, value: str) -> str:
        return check_host(value) if value else value

    @model_validator(mode="after")
    def _derived_ports(self) -> Self:
        for key, port, cause in (
            ("haListenPort", self.ha_port, "listenPort + 1"),
            ("fastListenPort", self.fast_port, "listenPort - 2"),
        ):
            if self.listen_port and not 0 < port <= 65535:
                raise ValueError(f"{key} would be {cause} = {port}; set {key}, or another listenPort")
        return self

    @property
    def address(self) -> str:
        """The address that clients and controllers call."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def listens_on(self) -> str:
        """The host of all ports."""
        return self.bind_address or self.broker_ip1

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or (self.listen_port + 1 if self.listen_port else 0)

    @property
    def ha_host(self) -> str:
        """The host part of the address that slaves get."""
        return self.broker_ip2 or self.broker_ip1

    @property
    def fast_port(self) -> int:
        """Upstream's fast (VIP) port: Java slaves request the topics at this port."""
        return self.fast_listen_port or max(self.listen_port - 2, 0)

    @property
    def controllers(self) -> list[str]:
        return addresses(self.controller_addr)

    @property
    def name_servers(self) -> list[str]:
        return addresses(self.namesrv_addr)


def addresses(text: str) -> list[str]:
    """Split `host:port;host:port` into a list, without blanks and empty parts."""
    return [part.strip() for part in text.split(";") if part.strip()]
