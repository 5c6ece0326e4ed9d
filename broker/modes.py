"""The replication mode of a broker's log: slaves copy the master's log, under controllers or in a pair, or a Raft group
replicates the log.

Invariant: the settings name one mode. The parts of a broker that depend on the mode are created here. Other places that ask for
the mode are listed in tests/architecture/test_modes.py, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.access.control import guard_of
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.groupacknowledgement import GroupAcknowledgement
from broker.replication.pairacknowledgement import PairAcknowledgement, StoredHere
from broker.replication.writegate import ReplicationView, SendReplicationView
from broker.role.events import BrokerEvents
from broker.role.leaderhealth import LeaderHealth
from broker.role.manager import ReplicasManager
from broker.role.membership import Membership
from broker.role.switch import RoleSwitch
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from epochfile.file import EpochFile
from ha.service.haservice import HAService
from ha.service.replication import Replication
from messagestore.errors import RaftModeStore
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import FlushDiskType
from mqruntime.clock import Clock
from mqruntime.peercertificate import PeerCertificate, broker_role
from mqruntime.runtime import Runtime
from mqruntime.segments import SegmentDirectory
from mqruntime.settings import SettingsError
from remoting.signing import Signer

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from broker.neighbours.grouptables import GroupTables
    from broker.role.grouproles import GroupRoles
    from raftstore.ledgerstore import LedgerStore
    from raftstore.member import Member
    from raftstore.replication import GroupReplication

RAFT_MODE = "dledger-"  # prefix of the folder of Raft mode's log; the member's id follows
Fatal = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """A plain commit log, which slaves copy from the master."""

    store: MessageStore
    replication: HAService


@dataclass(frozen=True, slots=True)
class GroupLog:
    """A Raft group's log."""

    store: LedgerStore
    replication: GroupReplication
    member: Member


def replicated_log(
    settings: BrokerSettings, runtime: Runtime, *, restart: Callable[[], None], on_fatal: Fatal
) -> CopiedLog | GroupLog:
    """The replicated log of the settings' mode. `restart()` asks for a restart of the process."""
    if settings.raft_group is not None:
        return _group_log(settings, runtime, restart, on_fatal)
    store = MessageStore(runtime, settings, on_fatal=on_fatal)
    replication = HAService(
        store,
        EpochFile(runtime.files, settings.store_path_epoch_file or EPOCH_FILE),
        settings=replace(settings.replication, slave_role=broker_role(settings.broker_name)),
        clock=runtime.clock,
        network=runtime.network,
        host=settings.listens_on,
        port=settings.ha_port,
        advertised_host=settings.ha_host,
        members_min=lambda: settings.min_in_sync_replicas,
        truncation_allowed=lambda: settings.allow_truncation_to,
        catch_up_limit=lambda: settings.catch_up_limit,
        on_fatal=on_fatal,
        pair=settings.pair,
    )
    return CopiedLog(store, replication)


def _group_log(
    settings: BrokerSettings, runtime: Runtime, restart: Callable[[], None], on_fatal: Fatal
) -> GroupLog:
    # imported here, because other brokers do not need these
    from broker.settings.raft import broker_id_of, why_no_members
    from raftstore.ledgerstore import LedgerStore
    from raftstore.member import Member, ledger_settings
    from raftstore.repair import LedgerRepair
    from raftstore.replication import GroupReplication

    group = settings.raft_group
    assert group is not None
    member = Member(
        self_id=group.self_id,
        peers=group.peers,
        group=group.name or settings.broker_name,
        preferred=group.preferred,
        listens_on=settings.listens_on,
        settings=ledger_settings(
            settings,
            pending_max=settings.waiting_sends_max,
            checks_addresses=settings.ha_slave_host_check,
            certificate_role=broker_role(settings.broker_name),
        ),
        runtime=runtime,
        on_fatal=on_fatal,
        why_no_members=why_no_members,
        signer=Signer.of(settings.inner_keys),
    )
    store = LedgerStore(runtime, settings, member, restart=restart, on_fatal=on_fatal)
    LedgerRepair(store, member, runtime.clock)
    return GroupLog(store, GroupReplication(member, store, broker_id_of), member)


def acknowledgements(
    membership: Membership, settings: BrokerSettings, store: BrokerStore, ha: Replication
) -> tuple[SendReplicationView, ReplicationView]:
    """The acknowledgement of sends, and the acknowledgement of delivered delayed messages."""
    if settings.raft_group is not None:
        in_group = GroupAcknowledgement(membership, ha)
        return in_group, in_group
    if settings.under_controllers:
        under_controllers = Acknowledgement(membership, settings, store, ha)
        return under_controllers, under_controllers
    flushes = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    pair = PairAcknowledgement(membership, store, ha, flushes=flushes)
    return pair, StoredHere(pair)


def appointed(settings: BrokerSettings, membership: Membership) -> bool:
    """Whether the configuration names this broker's id, as in a pair or a Raft group. Then no controller asks for lost
    memory."""
    if settings.raft_group is not None:
        membership.member_of_group(settings.raft_group.broker_id)
    elif not settings.under_controllers:
        membership.appointed(settings.broker_id, leads=not settings.is_pair_slave)
    return not settings.under_controllers


def group_roles(
    log: GroupLog,
    membership: Membership,
    manager: ReplicasManager,
    switch: RoleSwitch,
    events: BrokerEvents,
    health: LeaderHealth,
    clock: Clock,
) -> GroupRoles:
    """The part that passes the group's leader on to the membership."""
    from broker.role.grouproles import GroupRoles

    return GroupRoles(membership, log.member, log.store, manager, switch, events, health, clock)


def group_tables(log: CopiedLog | GroupLog, tables: Tables, clock: Clock) -> GroupTables | None:
    """The part that copies and serves the `tables` of the Raft group's members; None in other modes."""
    if isinstance(log, CopiedLog):
        return None
    from broker.neighbours.grouptables import GroupTables

    asked = GroupTables(log.member, tables, clock)
    log.replication.before_leading(asked.read_majority)
    return asked


def group_figures(log: CopiedLog | GroupLog, settings: BrokerSettings) -> list[Collector]:
    """The metrics of a Raft group's member. They are imported only if metrics are on."""
    if isinstance(log, CopiedLog):
        return []
    from broker.exporter.groupcollector import GroupCollector

    return [GroupCollector(settings, log.member)]


def check(settings: BrokerSettings, segments: SegmentDirectory) -> None:
    """Check that this mode can start on the store. Raises RaftModeStore if the store is of Raft mode and this mode is not; Raft
    mode itself continues a plain log. Raises SettingsError if controllers are needed and not named."""
    if settings.under_controllers and not settings.controllers:
        why = "must name controllers: host:port;host:port"
        raise SettingsError("controllerAddr", "", settings.place, None, why)
    found = [folder for folder in segments.subdirectories() if folder.startswith(RAFT_MODE)]
    if settings.raft_group is None and found:
        raise RaftModeStore(found[0])


def guard_members(log: GroupLog, settings: BrokerSettings, tables: Tables, clock: Clock) -> None:
    """Check the requests on the port for members of the group."""
    from raftstore.needs import group_member_table  # as above

    def is_member(certificate: PeerCertificate) -> bool:
        return certificate.speaks_for_one_of(log.member.node.peers.values())

    table = group_member_table(settings.broker_cluster_name)
    guard_of(table, settings, tables, clock, is_server=is_member).guard(log.member.router)
