"""Registrations of the brokers of one broker set."""

from __future__ import annotations

from namesrv.routes import BrokerRegistration
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.topics import TopicConfig

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def topics(**perms: int) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 4, perm) for name, perm in perms.items()}


TWO = topics(T=6, TBW102=7)


def registration_of(
    broker_id: int,
    address: str,
    *,
    epoch: int = 1,
    counter: int = 1,
    table: dict[str, TopicConfig] | None = None,
    name: str = "broker-a",
    acting_master: bool | None = False,
) -> BrokerRegistration:
    return BrokerRegistration(
        "DefaultCluster",
        name,
        address,
        broker_id,
        f"ha-of-{address}",
        TWO if table is None else table,
        DataVersion(epoch, 0, counter),
        channel=f"channel-of-{address}",
        acting_master=acting_master,
    )
