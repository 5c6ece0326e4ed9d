"""The role of a broker without controllers, and the guarantees of a pair of master and slave.

Invariant: a master has id 0, and a slave another id. In upstream a slave without configured role becomes a second master."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from pydantic import Field, field_validator

from broker.settings.raft import RaftKeys
from ha.settings import PairSettings
from mqruntime.hostports import check_address


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class PairKeys(RaftKeys):
    """The settings of a broker that have an effect only with `enableControllerMode=false`; in ms and bytes."""

    UPSTREAM: ClassVar[dict[str, str]] = {"enableControllerMode": "false"}

    WITHOUT_EFFECT: ClassVar[dict[str, str]] = {
        "haMaxGapNotInSync": "has no effect: use haSlaveFallbehindMax",
    }

    enable_controller_mode: bool = Field(
        True,
        alias="enableControllerMode",
        description="roles come from controllers; false: from `brokerRole`, as one of a pair of master and slaves",
    )
    broker_role: BrokerRole = Field(
        BrokerRole.ASYNC_MASTER,
        alias="brokerRole",
        description="of a pair: `ASYNC_MASTER`, `SYNC_MASTER` (a send waits for one slave) or `SLAVE`; ignored under "
        "controllers",
    )
    broker_id: int = Field(
        0,
        alias="brokerId",
        ge=-1,
        description="of a pair: 0 is the master, each slave has a number of its own above it; ignored under controllers",
    )
    ha_master_address: str = Field(
        "",
        alias="haMasterAddress",
        description="of a pair: HA address of the slave's master, `host:port`; empty: from the name servers",
    )
    sync_flush_timeout: int = Field(
        5_000,
        alias="syncFlushTimeout",
        ge=1,
        description="of a pair: how long a send waits for a slave, and for this disk under `SYNC_FLUSH`",
    )
    ha_slave_fallbehind_max: int = Field(
        256 * 1024 * 1024,
        alias="haSlaveFallbehindMax",
        ge=1,
        description="of a pair: sends do not wait for a slave that is further behind",
    )

    @field_validator("ha_master_address")
    @classmethod
    def _one_address(cls, value: str) -> str:
        if ";" in value:
            raise ValueError(f"{value!r} is not one HOST:PORT: a slave has one master")
        return check_address(value) if value else value

    @property
    def pair(self) -> PairSettings | None:
        """The HA service's settings for a pair; None if this broker is not in a pair."""
        if self.enable_controller_mode or self.enable_d_leger_commit_log:
            return None
        return PairSettings(
            waits_for_slave=self.broker_role is BrokerRole.SYNC_MASTER,
            gap_max=self.ha_slave_fallbehind_max,
            master_ha_address=self.ha_master_address or None,
        )

    @property
    def is_pair_slave(self) -> bool:
        return self.pair is not None and self.broker_role is BrokerRole.SLAVE

    def why_no_pair(self) -> str | None:
        """The error in the combination of role and id; None if there is none."""
        if self.pair is None:
            return None
        if self.broker_role is BrokerRole.SLAVE and self.broker_id < 1:
            return f"brokerId {self.broker_id} of a slave must be 1 or above, and no other slave's"
        if self.broker_role is not BrokerRole.SLAVE and self.broker_id > 0:
            return (
                f"brokerId {self.broker_id} of a master must be 0; if this is a slave, set brokerRole=SLAVE, or there "
                "would be two masters"
            )
        return None
