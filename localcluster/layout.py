"""The processes of a local cluster, their ports, and their properties files.

Invariant: a layout uses only ports in the span that begins at its base port. File names, `env.json` and the keys in the
properties files are those that tools for Java clusters expect."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from mqruntime.passwords import ADMINISTRATOR_FILE, SERVERS_FILE

HOST = "127.0.0.1"
HOST_BEHIND_RELAY = "127.0.0.2"
"""Processes listen here if a relay listens on their ports at HOST (`localcluster.relay`)."""
CLUSTER_NAME = "DefaultCluster"
BROKER_SET = "broker-a"
CONTROLLER_GROUP = "group1"
SEGMENT_BYTES = 64 * 1024 * 1024
MIN_IN_SYNC_REPLICAS = 2
TLS_FOLDER = "tls"
PORTS_PER_BROKER = 4  # listen - 2 (fast), one unused, listen, listen + 1 (replication)


class Mode(StrEnum):
    """Which processes elect the set's master."""

    CONTROLLER = "controller"
    RAFT = "raft"
    """The brokers themselves, whose log belongs to a Raft group (`enableDLegerCommitLog`). There are no controllers."""


class LayoutError(ValueError):
    """The requested layout is impossible. The text says what to change."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One name server, `controllers` controllers (none in Raft mode) and `brokers` replicas of one broker set.

    Every process is known by its address at HOST. It opens its ports there, or at `bind_host` behind a relay.
    `broker_settings` and `controller_settings` are properties that are added to the files of all brokers or all controllers.
    """

    directory: Path
    base_port: int
    controllers: int = 3
    brokers: int = 3
    segment_bytes: int = SEGMENT_BYTES
    broker_settings: dict[str, str] = field(default_factory=dict)
    controller_settings: dict[str, str] = field(default_factory=dict)
    bind_host: str = HOST
    mode: Mode = Mode.CONTROLLER
    secure: bool = False
    """Whether all connections use TLS, with a certificate at both ends."""

    def __post_init__(self) -> None:
        if self.in_raft_mode and self.controllers:
            raise LayoutError("a cluster in Raft mode has no controllers")
        if self.brokers < 1 or (self.controllers < 1 and not self.in_raft_mode):
            raise LayoutError("a cluster has at least one controller and one broker")
        if not 1024 <= self.base_port <= 65536 - ports_needed(self.controllers, self.brokers):
            raise LayoutError(
                f"base port {self.base_port}: {ports_needed(self.controllers, self.brokers)} ports from there "
                "must lie between 1024 and 65535"
            )

    @property
    def host(self) -> str:
        """The host of all addresses."""
        return HOST

    @property
    def in_raft_mode(self) -> bool:
        return self.mode is Mode.RAFT

    @property
    def names(self) -> list[str]:
        """All processes, in the order in which they are started."""
        return ["namesrv", *self.controller_names, *self.broker_names]

    @property
    def controller_names(self) -> list[str]:
        return [f"controller-{number}" for number in range(self.controllers)]

    @property
    def broker_names(self) -> list[str]:
        return [f"broker-{number}" for number in range(self.brokers)]

    @property
    def ports(self) -> range:
        """Every port that the cluster may listen on."""
        return range(self.base_port, self.base_port + ports_needed(self.controllers, self.brokers))

    @property
    def namesrv(self) -> str:
        return f"{HOST}:{self.base_port}"

    @property
    def controller_list(self) -> str:
        """The addresses of all controllers, separated by `;` as in options and settings."""
        return ";".join(self.address(name) for name in self.controller_names)

    def address(self, name: str) -> str:
        """The address of the process `name` for clients and admin tools. Raises `LayoutError` for an unknown name."""
        kind, _, number = name.partition("-")
        if name == "namesrv":
            return self.namesrv
        if name in self.controller_names:
            return f"{HOST}:{self.base_port + 1 + int(number)}"
        if name in self.broker_names:
            return f"{HOST}:{self.base_port + 1 + self.controllers + PORTS_PER_BROKER * int(number) + 2}"
        raise LayoutError(f"no process {name!r}; this cluster has {', '.join(self.names)}")

    def ports_of(self, name: str) -> list[int]:
        """The ports that the process `name` listens on. Raises `LayoutError` for an unknown name."""
        port = int(self.address(name).rpartition(":")[2])
        return [port - 2, port, port + 1] if name in self.broker_names else [port]

    def member_address(self, name: str) -> str:
        """A Raft-mode broker's address for the other members of its group."""
        return f"{HOST}:{self.ports_of(name)[-1]}"

    @property
    def members(self) -> dict[str, str]:
        """Addresses of the brokers' Raft group, by member id."""
        return {f"n{number}": self.member_address(name) for number, name in enumerate(self.broker_names)}

    def name_of(self, address: str) -> str | None:
        """The process that listens at `address`; None if no process of the cluster does."""
        return next((name for name in self.names if self.address(name) == address), None)

    def module(self, name: str) -> str:
        """The module that `python -m` runs for `name`."""
        return name.partition("-")[0]

    def properties(self, name: str) -> dict[str, str]:
        """Settings of `name` in upstream's keys."""
        return self._properties(name) | (self._secured(name) if self.secure else {})

    def _secured(self, name: str) -> dict[str, str]:
        folder = self.directory / TLS_FOLDER
        rights = {"authorizationEnabled": "true"} if name in self.broker_names else {}
        return rights | {
            "tls.server.mode": "enforcing",
            "tls.config.file": str(folder / f"{name}.properties"),
            "authenticationEnabled": "true",
            "innerClientAuthenticationCredentials": f"file:{folder / SERVERS_FILE}",
            "initAuthenticationUser": f"file:{folder / ADMINISTRATOR_FILE}",
        }

    def _properties(self, name: str) -> dict[str, str]:
        data = str(self.directory / name)
        port = self.address(name).rpartition(":")[2]
        if name == "namesrv":
            return {
                "bindAddress": self.bind_host,
                "listenPort": port,
                "kvConfigPath": f"{data}/kvConfig.json",
            }
        if name in self.controller_names:
            peers = ";".join(
                f"n{number}-{self.address(peer)}" for number, peer in enumerate(self.controller_names)
            )
            return {
                "controllerDLegerGroup": CONTROLLER_GROUP,
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{name.partition('-')[2]}",
                "controllerStorePath": data,
                "bindAddress": self.bind_host,
                "mappedFileSize": str(10 * 1024 * 1024),
                **self.controller_settings,
            }
        return {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_SET,
            "namesrvAddr": self.namesrv,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": self.bind_host,
            "listenPort": port,
            "storePathRootDir": data,
            "mappedFileSizeCommitLog": str(self.segment_bytes),
            "autoCreateTopicEnable": "true",
            **(self._raft_keys(name) if self.in_raft_mode else self._controller_keys(int(port) + 1)),
            **self.broker_settings,
        }

    def _controller_keys(self, ha_port: int) -> dict[str, str]:
        return {
            "brokerId": "-1",
            "brokerRole": "SLAVE",
            "enableControllerMode": "true",
            "controllerAddr": self.controller_list,
            "haListenPort": str(ha_port),
            "allAckInSyncStateSet": "true",
            "minInSyncReplicas": str(min(MIN_IN_SYNC_REPLICAS, self.brokers)),
            "shutdownForwardSeconds": "0",
        }

    def _raft_keys(self, name: str) -> dict[str, str]:
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": BROKER_SET,
            "dLegerPeers": ";".join(f"{member}-{address}" for member, address in self.members.items()),
            "dLegerSelfId": f"n{name.partition('-')[2]}",
        }

    def file(self, name: str) -> str:
        """The properties file of `name`: a description, the command to run the process by hand, and `key=value` lines."""
        heading = (
            f"# {name} of the local cluster in {self.directory}\n"
            f"# run it by hand: python -m {self.module(name)} -c {name}.conf\n"
        )
        lines = (f"{key}={escaped(value)}\n" for key, value in self.properties(name).items())
        return heading + "".join(lines)

    def environment(self) -> dict[str, Any]:
        """The content of `env.json`: addresses for tools, and what `from_environment` needs."""
        return {
            "namesrv": self.namesrv,
            "controllers": self.controller_list,
            "brokerName": BROKER_SET,
            "clusterName": CLUSTER_NAME,
            "brokers": {name: self.address(name) for name in self.broker_names},
            "layout": {
                "base_port": self.base_port,
                "controllers": self.controllers,
                "brokers": self.brokers,
                "segment_bytes": self.segment_bytes,
                "broker_settings": self.broker_settings,
                "controller_settings": self.controller_settings,
                "bind_host": self.bind_host,
                "mode": self.mode,
                "secure": self.secure,
            },
        }

    @staticmethod
    def from_environment(directory: Path, text: str) -> Layout:
        """The layout whose `env.json` has the content `text`. Raises `LayoutError` if that is not a local cluster's."""
        try:
            fields = json.loads(text)["layout"]
            return Layout(directory, **{**fields, "mode": Mode(fields.get("mode", Mode.CONTROLLER))})
        except (ValueError, KeyError, TypeError) as error:
            raise LayoutError(f"{directory / 'env.json'} is not of a local cluster: {error!r}") from None


def ports_needed(controllers: int, brokers: int) -> int:
    """The number of consecutive ports of a cluster."""
    return 1 + controllers + PORTS_PER_BROKER * brokers


def escaped(value: str) -> str:
    """A value in the form of a properties file. Only a backslash and a leading blank must be escaped."""
    value = value.replace("\\", "\\\\")
    return "\\" + value if value.startswith(" ") else value
