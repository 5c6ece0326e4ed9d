"""The replicated state: for every broker set its brokers, its master and master epoch, and its SyncStateSet and set epoch.

Invariant: only `apply` changes the state, and `apply` is total and deterministic, so controllers that applied the same events
have the same state. Events do not contain epochs. Epochs count events, so each event must be applied exactly once. The two
tables and the rules of `apply` are those of upstream's ReplicasInfoManager, even where they are odd, so that a log of Java
controllers gives the same state here. A change that must never happen is rejected earlier, by the command. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
)

FIRST_BROKER_ID = 1


@dataclass(slots=True)
class Replica:
    """One registered broker. `check_code` proves which broker applied for the id. `start_number` is the store's start number
    when the process `incarnation` registered, 0 if not sent. `says_code` becomes true when the broker first sends its check
    code, and stays true."""

    address: str
    check_code: str
    start_number: int = 0
    incarnation: int = 0
    says_code: bool = False

    def may_say(self, check_code: str | None) -> bool:
        """Whether a request with this check code may come from this broker; None if the request has no code."""
        return not self.says_code if check_code is None else check_code == self.check_code


@dataclass(slots=True)
class Replicas:
    """All registered brokers of one set, by broker id. `next_broker_id` is the number of ids ever added, plus one."""

    cluster_name: str
    by_id: dict[int, Replica] = field(default_factory=dict)
    next_broker_id: int = FIRST_BROKER_ID
    forgotten: set[str] = field(default_factory=set)
    """Check codes of brokers that were removed since the set began. Their logs are copies of this set's log."""

    def add(self, broker_id: int, replica: Replica) -> None:
        if broker_id not in self.by_id:
            self.by_id[broker_id] = replica
            self.next_broker_id += 1


@dataclass(slots=True)
class SyncState:
    """Master and SyncStateSet of one set. `master_epoch` 0 means that no election was ever held."""

    master_id: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    eligible: frozenset[int] = frozenset()
    """Brokers that left the set and still hold all acknowledged data: see controller.eligibility."""


@dataclass(slots=True)
class ReplicasState:
    """Both tables, by broker name. A set is known when it is in both tables."""

    replicas: dict[str, Replicas] = field(default_factory=dict)
    sync_states: dict[str, SyncState] = field(default_factory=dict)

    def known(self, broker_name: str) -> tuple[Replicas, SyncState] | None:
        replicas = self.replicas.get(broker_name)
        sync_state = self.sync_states.get(broker_name)
        return None if replicas is None or sync_state is None else (replicas, sync_state)

    def check_code(self, key: tuple[str, str, int]) -> str | None:
        """Check code of the broker that has (cluster name, broker name, broker id)."""
        cluster_name, broker_name, broker_id = key
        replicas = self.replicas.get(broker_name)
        if replicas is None or replicas.cluster_name != cluster_name or broker_id not in replicas.by_id:
            return None
        return replicas.by_id[broker_id].check_code

    def apply(self, event: Event) -> None:
        """Change the state by one committed event. An event about an unknown set changes nothing."""
        if isinstance(event, CleanBrokerData) and event.broker_ids is None:
            self.replicas.pop(event.broker_name, None)
            self.sync_states.pop(event.broker_name, None)
            return
        known = self.known(event.broker_name)
        if known is None:
            if isinstance(event, ApplyBrokerId):
                self._create(event)
            return
        replicas, sync_state = known
        match event:
            case AlterSyncStateSet():
                sync_state.members = event.members
                sync_state.eligible = event.eligible
                sync_state.set_epoch += 1
            case ApplyBrokerId():
                replicas.add(event.broker_id, Replica(event.address, event.check_code))
            case ElectMaster(master_id=None):
                sync_state.master_id = None
                sync_state.master_epoch += 1
            case ElectMaster(master_id=int(master_id)):
                sync_state.master_id = master_id
                sync_state.master_epoch += 1
                sync_state.members = frozenset({master_id})
                sync_state.eligible = event.eligible
                sync_state.set_epoch += 1
            case CleanBrokerData():
                self._clean(event, replicas, sync_state)
            case UpdateBrokerAddress():
                if event.broker_id in replicas.by_id:
                    replica = replicas.by_id[event.broker_id]
                    replica.address = event.address
                    replica.start_number = max(replica.start_number, event.start_number)
                    replica.incarnation = event.incarnation
                    replica.says_code = replica.says_code or event.says_code

    def _create(self, event: ApplyBrokerId) -> None:
        """Create the set's entries in both tables; an entry that was left over is replaced."""
        replicas = Replicas(event.cluster_name)
        replicas.add(event.broker_id, Replica(event.address, event.check_code))
        self.replicas[event.broker_name] = replicas
        self.sync_states[event.broker_name] = SyncState()

    def _clean(self, event: CleanBrokerData, replicas: Replicas, sync_state: SyncState) -> None:
        """Remove brokers. Each table's entry is deleted when it becomes empty, independently of the other table."""
        ids = event.broker_ids or frozenset()
        for broker_id in ids & replicas.by_id.keys():
            replicas.forgotten.add(replicas.by_id.pop(broker_id).check_code)
        sync_state.members -= ids
        sync_state.eligible -= ids
        if not replicas.by_id:
            del self.replicas[event.broker_name]
        if not sync_state.members:
            del self.sync_states[event.broker_name]
