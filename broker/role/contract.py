"""One sentence on what acknowledged sends survive under given settings.

The contracts say where a message is before its send is acknowledged, weakest first. A: on the master alone. B: in the memory of
every member of the SyncStateSet. C: as B, with at least two members. D: as C, and on the disk of every member."""

from __future__ import annotations

from broker.settings.broker import BrokerSettings
from broker.settings.pair import BrokerRole
from messagestore.store.settings import FlushDiskType


def runs_contract_a(settings: BrokerSettings) -> bool:
    """Whether sends are acknowledged before other replicas have them. broker.role.contractmark marks such a broker's store."""
    if settings.raft_group is not None:
        return False
    return settings.pair is not None or not settings.all_ack_in_sync_state_set


def contract_sentence(settings: BrokerSettings) -> str:
    """The contract of these settings, and the losses that the contract allows."""
    on_disk = (
        " The master also has it on disk." if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH else ""
    )
    if settings.raft_group is not None:
        return (
            f"Raft mode, {len(settings.raft_group.peers)} members: a send is answered once a majority has it on disk; the loss "
            "of fewer disks than that, or power loss of all members at once, loses nothing."
        )
    if settings.pair is not None:
        return _pair_sentence(settings) + on_disk
    if runs_contract_a(settings):
        return (
            "contract A: a send is answered once this master alone has it; an election may lose what no slave has yet."
            + on_disk
        )
    if settings.all_flush_in_sync_state_set:
        if settings.min_in_sync_replicas < 2:
            return (
                "contract B on disk: a send is answered once every member of the SyncStateSet has it on disk; the set may be "
                "this master alone, and then the loss of its disk loses it. Contract D needs minInSyncReplicas=2."
            )
        return (
            f"contract D: a send is answered once every member of the SyncStateSet, {settings.min_in_sync_replicas} or "
            "more, has it on disk; power loss of all of them at once loses nothing."
        )
    if settings.min_in_sync_replicas < 2:
        return (
            "contract B: a send is answered once every member of the SyncStateSet has it in memory; the set may be "
            "this master alone, and then its failure loses the tail, as power loss of all members does."
            + on_disk
        )
    return (
        f"contract C: a send is answered once every member of the SyncStateSet, {settings.min_in_sync_replicas} or "
        "more, has it in memory; power loss of all of them at once may lose the last moments." + on_disk
    )


def _pair_sentence(settings: BrokerSettings) -> str:
    if settings.is_pair_slave:
        return "slave of a pair: it holds what its master sends, and nobody is elected."
    if settings.broker_role is BrokerRole.SYNC_MASTER:
        return (
            "SYNC_MASTER of a pair: a send is answered OK once one slave has it in memory, too; what is answered with "
            "SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, and with power loss of both the last moments, may be lost."
        )
    return "ASYNC_MASTER of a pair: a send is answered once this master alone has it; its loss loses what no slave has yet."
