"""Answers to admin requests. There is one class per answer, read from the JSON body and the header.

Invariant: a missing optional field is None or empty, as in upstream's reader. A body without a required field raises
`ReplyMalformed`, so functions that format an answer get only complete values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from mqadmin.errors import ReplyMalformed
from mqadmin.report import java_text

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ControllerMetadata:
    """Answer to CONTROLLER_GET_METADATA_INFO (1005): one controller's view of its group. The leader's fields are None while
    the controller knows no leader."""

    group: str | None
    leader_id: str | None
    leader_address: str | None
    is_leader: bool
    peers: tuple[str, ...]  # "id:host:port"

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        peers = tuple(peer for peer in ext.get("peers", "").split(";") if peer)
        return cls(
            ext.get("group"),
            ext.get("controllerLeaderId"),
            ext.get("controllerLeaderAddress"),
            ext.get("isLeader") == "true",
            peers,
        )


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One member of a broker set as the leading controller sees it."""

    broker_name: str
    broker_id: int
    address: str
    alive: bool

    def __str__(self) -> str:
        return (
            f"ReplicaIdentity{{brokerName='{self.broker_name}', brokerId={self.broker_id}, "
            f"brokerAddress='{self.address}', alive={java_text(self.alive)}}}"
        )

    @classmethod
    def from_json(cls, body: Json) -> Self:
        return cls(
            body["brokerName"], int(body["brokerId"]), body["brokerAddress"], bool(body.get("alive", False))
        )


@dataclass(frozen=True, slots=True)
class SyncStateInfo:
    """One broker set in the answer to CONTROLLER_GET_SYNC_STATE_DATA (1006). The master's fields are None while the set has no
    master."""

    broker_name: str
    master_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync: tuple[ReplicaInfo, ...]
    not_in_sync: tuple[ReplicaInfo, ...]

    @classmethod
    def table_from_json(cls, body: Json) -> dict[str, Self]:
        """All sets of the answer by broker name. Sets that the controller does not know are absent."""
        with _reading("sync state data"):
            return {
                name: cls(
                    broker_name=name,
                    master_id=row.get("masterBrokerId"),
                    master_address=row.get("masterAddress"),
                    master_epoch=int(row.get("masterEpoch", 0)),
                    sync_state_set_epoch=int(row.get("syncStateSetEpoch", 0)),
                    in_sync=tuple(map(ReplicaInfo.from_json, row.get("inSyncReplicas") or ())),
                    not_in_sync=tuple(map(ReplicaInfo.from_json, row.get("notInSyncReplicas") or ())),
                )
                for name, row in body["replicasInfoTable"].items()
            }


@dataclass(frozen=True, slots=True)
class MasterInfo:
    """Answer to CONTROLLER_ELECT_MASTER (1002): the present master, and the addresses of its set by broker id."""

    master_id: int
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int
    members: dict[int, str]

    @classmethod
    def from_reply(cls, ext: Mapping[str, str], body: Json) -> Self:
        with _reading("elected master"):
            group = body.get("brokerMemberGroup") or {}
            return cls(
                int(ext["masterBrokerId"]),
                ext["masterAddress"],
                int(ext["masterEpoch"]),
                int(ext["syncStateSetEpoch"]),
                _addresses(group.get("brokerAddrs") or {}),
            )


@dataclass(frozen=True, slots=True)
class EpochRange:
    """One epoch and the bytes of the log that were written in it; `end_offset` is exclusive."""

    epoch: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return (
            f"EpochEntry{{epoch={self.epoch}, startOffset={self.start_offset}, endOffset={self.end_offset}}}"
        )


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """Answer to GET_BROKER_EPOCH_CACHE (1007). The broker id is the role id (0 on the master). The last range ends at
    `max_offset`."""

    cluster_name: str
    broker_name: str
    broker_id: int
    max_offset: int
    epochs: tuple[EpochRange, ...]

    @classmethod
    def from_json(cls, body: Json) -> Self:
        with _reading("broker epochs"):
            max_offset = int(body["maxOffset"])
            epochs = [
                EpochRange(int(row["epoch"]), int(row["startOffset"]), int(row["endOffset"]))
                for row in body.get("epochList") or ()
            ]
            if epochs:
                epochs[-1] = EpochRange(epochs[-1].epoch, epochs[-1].start_offset, max_offset)
            return cls(
                body["clusterName"], body["brokerName"], int(body["brokerId"]), max_offset, tuple(epochs)
            )


@dataclass(frozen=True, slots=True)
class HALink:
    """One slave's connection as its master sees it. Offsets are in bytes of the log; they are -1 before the first ack."""

    address: str
    ack_offset: int
    diff_bytes: int
    in_sync: bool
    bytes_per_second: int
    transfer_offset: int
    learner: bool = False
    broker_id: int | None = None  # in Raft mode


@dataclass(frozen=True, slots=True)
class HAStatus:
    """Answer to GET_BROKER_HA_STATUS (907). A master fills the fields of a master, and a slave those of a slave."""

    is_master: bool
    master_max_offset: int
    in_sync_slaves: int
    links: tuple[HALink, ...]
    master_ha_address: str | None
    max_offset: int
    last_read_ms: int
    last_write_ms: int
    bytes_per_second: int
    master_flush_offset: int

    @classmethod
    def from_json(cls, body: Json) -> Self:
        with _reading("HA status"):
            own = body.get("haClientRuntimeInfo") or {}
            return cls(
                is_master=bool(body["master"]),
                master_max_offset=int(body.get("masterCommitLogMaxOffset", 0)),
                in_sync_slaves=int(body.get("inSyncSlaveNums", 0)),
                links=tuple(
                    HALink(
                        row.get("addr", ""),
                        int(row["slaveAckOffset"]),
                        int(row["diff"]),
                        bool(row["inSync"]),
                        int(row["transferredByteInSecond"]),
                        int(row["transferFromWhere"]),
                        bool(row.get("learner")),
                        row.get("brokerId"),
                    )
                    for row in body.get("haConnectionInfo") or ()
                ),
                master_ha_address=own.get("masterAddr"),
                max_offset=int(own.get("maxOffset", 0)),
                last_read_ms=int(own.get("lastReadTimestamp", 0)),
                last_write_ms=int(own.get("lastWriteTimestamp", 0)),
                bytes_per_second=int(own.get("transferredByteInSecond", 0)),
                master_flush_offset=int(own.get("masterFlushOffset", 0)),
            )


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The live members of one broker set at the name server, by role id (0 is the master)."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]
    enable_acting_master: bool = False

    @classmethod
    def from_json(cls, body: Json) -> Self:
        with _reading("broker data"):
            return cls(
                body["cluster"],
                body["brokerName"],
                _addresses(body.get("brokerAddrs") or {}),
                bool(body.get("enableActingMaster", False)),
            )


@dataclass(frozen=True, slots=True)
class ClusterMembers:
    """Answer to GET_BROKER_CLUSTER_INFO (106): cluster names with their broker names, and every broker set."""

    clusters: dict[str, tuple[str, ...]]
    broker_sets: dict[str, BrokerSet]

    @classmethod
    def from_json(cls, body: Json) -> Self:
        with _reading("cluster info"):
            return cls(
                {
                    name: tuple(sorted(brokers))
                    for name, brokers in (body.get("clusterAddrTable") or {}).items()
                },
                {name: BrokerSet.from_json(row) for name, row in (body.get("brokerAddrTable") or {}).items()},
            )

    def sets_of(self, cluster: str | None) -> list[BrokerSet]:
        """The broker sets of one cluster, or of all clusters for None, ordered by cluster and name."""
        names = [cluster] if cluster is not None else sorted(self.clusters)
        return [
            self.broker_sets[broker]
            for name in names
            for broker in self.clusters.get(name, ())
            if broker in self.broker_sets
        ]


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic for UPDATE_AND_CREATE_TOPIC (17). The bits of `perm` are 4 for read, 2 for write and 1 for inherit."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    perm: int = 6
    order: bool = False
    sys_flag: int = 0
    attributes: dict[str, str] = field(default_factory=dict)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn the errors of an absent or mistyped member into `ReplyMalformed` with the answer's name."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReplyMalformed(f"the answer is no {what}: {error!r}") from error


def _addresses(table: Mapping[str, str]) -> dict[int, str]:
    return {broker_id: table[key] for broker_id, key in sorted((int(key), key) for key in table)}
