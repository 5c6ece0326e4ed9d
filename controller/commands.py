"""Decides commands from the replicated state and the brokers' liveness: registration, alters of a SyncStateSet, reads,
cleaning.

Invariant: nothing here changes state. A decision is safe to apply only to the state on which it was made. A new SyncStateSet
contains its master and only registered brokers, and is never empty. Checks are made in upstream's order, so the code of a
rejection is upstream's. Upstream: ReplicasInfoManager. Elections: `controller.elections`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controller.decision import Decision
from controller.eligibility import UPSTREAM, after_alter
from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
)
from controller.heartbeats import BrokerKey, Liveness
from controller.reasons import BROKER_RESTARTED
from controller.state import FIRST_BROKER_ID, Replica, Replicas, ReplicasState, SyncState
from remoting.bodies.replicas import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo, SyncStateSetBody
from remoting.codes import ResponseCode
from remoting.headers.controller import (
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)

NAME_CHARS_MAX = 255
BROKER_ID_MAX = 2**63 - 1
SETS_MAX, MEMBERS_MAX = 10_000, 1_000
"""Limits of the number of broker sets, and of the ids granted in one set. A set or an id stays in memory and in snapshots, used
or not, until an administrator removes it (cleanBrokerMetadata)."""


START_NUMBERS_ON = 2**31
"""Largest credible step from the last start number. A broker draws at most one start number in 2 s, and only while controllers
hear it."""


class Process(NamedTuple):
    """Identity of a broker process: its start number and its incarnation, each 0 if not sent. `says_code` is True if the
    process sent the check code of its id. A request with a wrong check code is rejected earlier."""

    start_number: int = 0
    incarnation: int = 0
    says_code: bool = False


NOT_SAID = Process()


def alter_sync_state_set(
    state: ReplicasState,
    live: Liveness,
    *,
    broker_name: str,
    master_id: int,
    master_epoch: int,
    members: frozenset[int],
    set_epoch: int,
    members_min: int = UPSTREAM,
) -> Decision:
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001): replace the SyncStateSet of epoch `set_epoch` by `members`. The master
    acknowledges only while the set has at least `members_min` members. A master that only lowers `members_min` sends the same
    members again.

    If a rejected request could succeed later, the rejection increments the set's epoch, and masters of this implementation get
    the new epoch. Otherwise a second copy of the request, received by another controller, could still succeed, although the
    master relies on the rejection."""

    def refused(code: ResponseCode, remark: str) -> Decision:
        return Decision(code, remark, AlterSyncStateSetResponseHeader(0))

    def fenced(code: ResponseCode, remark: str) -> Decision:
        return Decision(
            code,
            remark,
            AlterSyncStateSetResponseHeader(0),
            SyncStateSetBody(sync_state.members, set_epoch + 1).encode() if members_min != UPSTREAM else None,
            (AlterSyncStateSet(broker_name, sync_state.members, sync_state.eligible),),
        )

    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    known = state.known(broker_name)
    if known is None:
        return refused(failed, "Broker metadata is not existed")
    replicas, sync_state = known
    if members == sync_state.members and members_min == UPSTREAM:
        return refused(
            failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
        )
    rejecting = "Rejecting alter syncStateSet request because the"
    if sync_state.master_id is None or sync_state.master_id != master_id:
        was = "null" if sync_state.master_id is None else sync_state.master_id
        return refused(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{rejecting} current leader is:{{{was}}}, not {{{master_id}}}",
        )
    if master_epoch != sync_state.master_epoch:
        return refused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{rejecting} current master epoch is:{{{sync_state.master_epoch}}}, not {{{master_epoch}}}",
        )
    if set_epoch != sync_state.set_epoch:
        return refused(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{rejecting} current syncStateSet epoch is:{{{sync_state.set_epoch}}}, not {{{set_epoch}}}",
        )
    for broker_id in sorted(members):
        if broker_id not in replicas.by_id:
            return fenced(
                ResponseCode.CONTROLLER_INVALID_REPLICAS, f"{rejecting} replicas {{{broker_id}}} don't exist"
            )
        if not live.is_alive((replicas.cluster_name, broker_name, broker_id)):
            return fenced(
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"{rejecting} replicas {{{broker_id}}} don't alive"
            )
    if master_id not in members:
        return refused(failed, f"{rejecting} newSyncStateSet don't contains origin leader {{{master_id}}}")
    return Decision(
        header=AlterSyncStateSetResponseHeader(set_epoch + 1),
        body=SyncStateSetBody(members, set_epoch + 1).encode(),
        events=(
            AlterSyncStateSet(
                broker_name,
                members,
                after_alter(sync_state.members, sync_state.eligible, members, members_min),
            ),
        ),
    )


def next_broker_id(state: ReplicasState, *, cluster_name: str, broker_name: str) -> Decision:
    """CONTROLLER_GET_NEXT_BROKER_ID (1012): a broker id that is free now; the id is not reserved. Upstream's counter may return
    an id that is in use."""
    replicas = state.replicas.get(broker_name)
    if replicas is not None and replicas.cluster_name != cluster_name:
        return of_another_cluster(replicas, broker_name, cluster_name)
    broker_id = FIRST_BROKER_ID if replicas is None else replicas.next_broker_id
    while replicas is not None and broker_id in replicas.by_id:
        broker_id += 1
    return Decision(header=GetNextBrokerIdResponseHeader(cluster_name, broker_name, broker_id))


def apply_broker_id(
    state: ReplicasState, *, cluster_name: str, broker_name: str, broker_id: int, check_code: str
) -> Decision:
    """CONTROLLER_APPLY_BROKER_ID (1013): grant `broker_id` to the broker that generated `check_code` ("address;time").
    Idempotent."""
    header = ApplyBrokerIdResponseHeader(cluster_name, broker_name)
    invalid = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    if len(check_code) > NAME_CHARS_MAX:
        why = f"a registerCheckCode has {NAME_CHARS_MAX} characters at most"
        return Decision(ResponseCode.SYSTEM_ERROR, why, header)
    for name in (cluster_name, broker_name):
        if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
            return Decision(
                ResponseCode.SYSTEM_ERROR, f"not a usable name: {name[:NAME_CHARS_MAX]!r}", header
            )
    known = state.known(broker_name)
    if known is None:
        if broker_id != FIRST_BROKER_ID:
            why = f"Broker-set: {broker_name} hasn't been registered in controller"
            return Decision(invalid, f"{why}, but broker try to apply brokerId: {broker_id}", header)
        if len(state.replicas) >= SETS_MAX:
            why = f"{SETS_MAX} broker sets are registered; clean those that are gone (cleanBrokerMetadata)"
            return Decision(invalid, why, header)
    else:
        replicas, _ = known
        if replicas.cluster_name != cluster_name:
            return of_another_cluster(replicas, broker_name, cluster_name)
        held = replicas.by_id.get(broker_id)
        if held is not None and held.check_code == check_code:
            return Decision(header=header)
        if len(replicas.by_id) >= MEMBERS_MAX:
            why = f"{MEMBERS_MAX} ids are granted in {broker_name}; clean those that are gone (cleanBrokerMetadata)"
            return Decision(invalid, why, header)
        used = any(replica.check_code == check_code for replica in replicas.by_id.values())
        if held is not None or used or not FIRST_BROKER_ID <= broker_id <= BROKER_ID_MAX:
            return Decision(
                invalid, f"Fail to apply brokerId: {broker_id} in broker-set: {broker_name}", header
            )
    address = check_code.split(";", 1)[0]
    event = ApplyBrokerId(cluster_name, broker_name, broker_id, address, check_code)
    return Decision(header=header, events=(event,))


def register_broker(
    state: ReplicasState,
    live: Liveness,
    *,
    cluster_name: str,
    broker_name: str,
    broker_id: int,
    address: str,
    check_code: str | None = None,
    process: Process = NOT_SAID,
    is_late: bool = False,
) -> Decision:
    """CONTROLLER_REGISTER_BROKER (1003): register the address of a started broker, and return the master of its set. The broker
    is rejected if its id has since been granted to another broker, with another `check_code`.

    A master that registers was restarted, perhaps with a shorter log. It must not continue its old epoch, because other brokers
    may hold bytes of that epoch beyond the end of the master's log. So the master is deposed, and an election follows, which it
    may win. If `is_late`, the request changes nothing, because the sender, or a later process on the same store, was already
    heard over a newer connection. A process with an old start number, or a second process of one broker, is rejected
    (`why_not_this_process`)."""
    header = RegisterBrokerToControllerResponseHeader(cluster_name, broker_name)
    unregistered = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    known = state.known(broker_name)
    if known is None:
        return Decision(
            unregistered, f"Broker-set: {broker_name} hasn't been registered in controller", header
        )
    replicas, sync_state = known
    why = _why_unknown(replicas, broker_name, broker_id, check_code)
    if why is not None:
        return Decision(unregistered, why, header)
    if len(address) > NAME_CHARS_MAX:
        why = f"a brokerAddress has {NAME_CHARS_MAX} characters at most"
        return Decision(ResponseCode.SYSTEM_ERROR, why, header)
    events: list[Event] = []
    replica = replicas.by_id[broker_id]
    if not is_late:
        key = (replicas.cluster_name, broker_name, broker_id)
        refusal = why_not_this_process(replica, live, key, address, process)
        if refusal is not None:
            header.known_start_number = refusal.known_start_number
            header.other_address = refusal.other_address
            return Decision(refusal.code, refusal.why, header)
        number = max(process.start_number, replica.start_number)
        incarnation = process.incarnation if process.start_number else 0
        says_code = replica.says_code or process.says_code
        said = replica.address, replica.start_number, replica.incarnation, replica.says_code
        if said != (address, number, incarnation, says_code):
            names = replicas.cluster_name, broker_name
            events.append(UpdateBrokerAddress(*names, broker_id, address, number, incarnation, says_code))
    master_id = sync_state.master_id
    if broker_id == master_id and not is_late:
        events.append(ElectMaster(broker_name, None))
    elif master_id is not None and not live.is_dead((replicas.cluster_name, broker_name, master_id)):
        header.master_broker_id = master_id
        header.master_address = address_of(replicas, master_id)
        header.master_epoch = sync_state.master_epoch
        header.sync_state_set_epoch = sync_state.set_epoch
    body = SyncStateSetBody(sync_state.members, sync_state.set_epoch).encode()
    return Decision(header=header, body=body, events=tuple(events), reason=BROKER_RESTARTED)


class IdentityRefusal(NamedTuple):
    """The reason why a process does not count as the broker that it names. If `known_start_number` is set, the process may
    register again after it has recorded that its disk was set back. `other_address` is the address of the process that counts
    as the broker."""

    code: ResponseCode
    why: str
    known_start_number: int | None = None
    other_address: str | None = None


def why_not_this_process(
    replica: Replica, live: Liveness, key: BrokerKey, address: str, process: Process
) -> IdentityRefusal | None:
    """The reason why `process` at `address` does not count as the registered broker `key`; None if it does.

    Each start on a disk draws a start number above all earlier numbers of this disk. So a new process whose number is not above
    all numbers heard before runs on an earlier image or a copy of the disk. A process without a start number (upstream's) does
    not count if the broker lives and has sent a start number. Of two live processes the registered process counts. Anybody can
    make up a start number. So once a broker has sent its check code, a start number counts only together with that code. A
    store of upstream has no check code."""
    number, incarnation, _ = process
    if not number:
        return _why_not_anonymous(replica, live, key)
    known = max(replica.start_number, live.start_number(key))
    if (why := _why_not_numbered(replica, live, key, process, known)) is not None:
        return IdentityRefusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, why)
    if incarnation == replica.incarnation:
        return None
    is_older = number <= known
    if is_older and not live.is_alive(key) and not live.is_dead(key):
        why = f"this new leader does not know yet whether broker {key[2]} of {key[1]} lives at {replica.address}"
        return IdentityRefusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, why)
    if live.is_alive(key) and (is_older or address != replica.address):
        return IdentityRefusal(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"broker {key[2]} of {key[1]} lives at {replica.address}, and the store at {address} is a copy of its store: stop "
            f"the broker at {address} and empty its store, so that it joins with an id of its own",
            other_address=replica.address,
        )
    if is_older:
        return IdentityRefusal(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"broker {key[2]} of {key[1]} comes with start number {number}, and {known} was heard: its disk was set back",
            known,
        )
    return None


def _why_not_numbered(
    replica: Replica, live: Liveness, key: BrokerKey, process: Process, known: int
) -> str | None:
    broker = f"broker {key[2]} of {key[1]}"
    if replica.says_code and not process.says_code:
        return (
            f"{broker} has sent the check code of its id before, and this request is missing it: restore the file storeMark of "
            "its store, which has it, or empty the store, so that it joins with an id of its own"
        )
    if process.start_number - known > START_NUMBERS_ON:
        return f"{broker} cannot have come from start number {known} to {process.start_number}"
    is_other = replica.incarnation and process.incarnation != replica.incarnation
    if is_other and not process.says_code and live.is_alive(key):
        return (
            f"{broker} lives at {replica.address}; a successor without its check code waits until it is gone"
        )
    return None


def _why_not_anonymous(replica: Replica, live: Liveness, key: BrokerKey) -> IdentityRefusal | None:
    if not (replica.start_number and replica.incarnation and live.is_alive(key)):
        return None
    return IdentityRefusal(
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        f"broker {key[2]} of {key[1]} lives at {replica.address} and sends its start number, which this request is missing: "
        "stop that broker before another version takes over its store",
    )


def is_another_process(replica: Replica, address: str | None, incarnation: int) -> bool:
    """Whether the sender is another process than the process that registered last as this replica."""
    says = incarnation and replica.incarnation
    return bool(says and incarnation != replica.incarnation) or address not in (None, replica.address)


def _why_unknown(replicas: Replicas, broker_name: str, broker_id: int, check_code: str | None) -> str | None:
    """The reason why the controllers do not know a broker with this id and code; None if they do."""
    replica = replicas.by_id.get(broker_id)
    if replica is None:
        return f"BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}"
    if check_code is not None and check_code != replica.check_code:
        return (
            f"BrokerId: {broker_id} in broker-set: {broker_name} was granted to another broker since, at "
            f"{replica.address}; stop this one and empty its store, and it joins with an id of its own"
        )
    return None


def of_another_cluster(replicas: Replicas, broker_name: str, cluster_name: str) -> Decision:
    """Rejection of a broker in the wrong cluster: all replicas of a set must be in one cluster. Upstream accepts such a
    broker."""
    return Decision(
        ResponseCode.CONTROLLER_INVALID_REQUEST,
        f"broker-set {broker_name} is of cluster {replicas.cluster_name}, not {cluster_name}; "
        "correct brokerClusterName or brokerName",
    )


def replica_info(
    state: ReplicasState,
    *,
    broker_name: str,
    asked_by: int | None = None,
    check_code: str | None = None,
    address: str | None = None,
    incarnation: int = 0,
    other_address: str | None = None,
) -> Decision:
    """CONTROLLER_GET_REPLICA_INFO (1004): the recorded master and SyncStateSet, whether the brokers are alive or not.

    A broker that sends its id and `check_code` gets an error when it is not registered (any more). If this set granted the id
    earlier, the error's code allows the broker to register again. Otherwise the store of the broker is of another set. A set
    that was created again counts its epochs from 1, so an old log could be mistaken for a copy of the new log.

    A process that is not the last registered process gets an error too: it must register, and succeeds once the registered
    process is gone. The registered process receives the address of the other process (`other_address`)."""
    known = state.known(broker_name)
    if known is None:
        return Decision(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
    replicas, sync_state = known
    if asked_by is not None:
        why = _why_unknown(replicas, broker_name, asked_by, check_code)
        if why is not None and check_code in replicas.forgotten:
            return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, why)
        if why is not None:
            return Decision(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                f"{why}; its store may be of an earlier set of this name: stop it and empty its store, and it joins with an "
                "id of its own",
            )
        replica = replicas.by_id[asked_by]
        if is_another_process(replica, address, incarnation):
            header = GetReplicaInfoResponseHeader(
                master_epoch=sync_state.master_epoch, other_address=replica.address
            )
            why = f"another process of broker {asked_by}, at {replica.address}, has registered since"
            return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, why, header)
    master_id = sync_state.master_id
    header = GetReplicaInfoResponseHeader(
        master_id, address_of(replicas, master_id), sync_state.master_epoch, other_address
    )
    return Decision(header=header, body=SyncStateSetBody(sync_state.members, sync_state.set_epoch).encode())


def sync_state_data(state: ReplicasState, live: Liveness, *, broker_names: Sequence[str]) -> Decision:
    """CONTROLLER_GET_SYNC_STATE_DATA (1006): every replica of the named sets, in the SyncStateSet or not, alive or not. Unknown
    names are left out."""
    if not broker_names:
        return Decision(ResponseCode.SYSTEM_ERROR, "not set any response code")
    table: dict[str, ReplicasInfo] = {}
    for broker_name in broker_names:
        known = state.known(broker_name)
        if known is None:
            continue
        replicas, sync_state = known
        info = table[broker_name] = ReplicasInfo(
            sync_state.master_id,
            address_of(replicas, sync_state.master_id),
            sync_state.master_epoch,
            sync_state.set_epoch,
        )
        for broker_id, replica in sorted(replicas.by_id.items()):
            alive = live.is_alive((replicas.cluster_name, broker_name, broker_id))
            row = ReplicaIdentity(broker_name, broker_id, replica.address, alive)
            in_sync = broker_id in sync_state.members
            (info.in_sync_replicas if in_sync else info.not_in_sync_replicas).append(row)
    return Decision(body=BrokerReplicasInfo(table).encode())


def clean_broker_data(
    state: ReplicasState, live: Liveness, *, broker_name: str, ids_to_clean: str | None, living_too: bool
) -> Decision:
    """CLEAN_BROKER_DATA (1011): forget the brokers `ids_to_clean` ("1;2"), or the whole set if no ids are given.

    Without `living_too`, a request is rejected if it names a live broker, or if it names no ids and the set has a master. A
    request that names a part of the set is also rejected if it removes all members of the SyncStateSet, the master, or a broker
    that is needed to hold acknowledged data. Cleaning the whole set gives up all of its data. Unlike upstream, liveness is
    looked up under the stored cluster name, ids count with `living_too` too, and a set that loses members gets a new set epoch,
    so that its master is notified."""

    def refused(remark: str) -> Decision:
        return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)

    ids: frozenset[int] | None = None
    if ids_to_clean is not None and ids_to_clean.strip():
        words = [word.strip() for word in ids_to_clean.split(";") if word.strip()]
        if not words or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
            return refused(
                "Please set the option <brokerControllerIdsToClean> according to the format, "
                f'exception: For input string: "{ids_to_clean}"'
            )
        ids = frozenset(map(int, words))
    known = state.known(broker_name)
    if known is None:
        return refused(f"Broker {broker_name} is not existed,clean broker data failure.")
    replicas, sync_state = known
    if ids is None:
        if not living_too and sync_state.master_id is not None:
            return refused(f"Broker {broker_name} has a master, clean up failure")
        return Decision(events=(CleanBrokerData(broker_name, None),))
    if not living_too:
        for broker_id in sorted(ids):
            if live.is_alive((replicas.cluster_name, broker_name, broker_id)):
                return refused(f"Broker [{broker_name},  {broker_id}] is still alive, clean up failure")
    ids = ids.intersection(replicas.by_id)
    if not ids:
        return Decision()
    if ids == replicas.by_id.keys():
        return Decision(events=(CleanBrokerData(broker_name, None),))
    if sync_state.master_id in ids:
        return refused(
            f"Broker {sync_state.master_id} is the master: elect another one first, clean up failure"
        )
    if not sync_state.members - ids:
        return refused(
            f"The syncStateSet of {broker_name} would be left empty: elect a master outside of it first "
            "(enableElectUncleanMaster), clean up failure"
        )
    why = why_needed(broker_name, replicas, sync_state, live, ids)
    if why is not None:
        return refused(f"{why}, clean up failure")
    forgotten = CleanBrokerData(broker_name, ids)
    rest = sync_state.members - ids
    if rest == sync_state.members:
        return Decision(events=(forgotten,))
    return Decision(events=(AlterSyncStateSet(broker_name, rest, sync_state.eligible - ids), forgotten))


def why_needed(
    broker_name: str, replicas: Replicas, sync_state: SyncState, live: Liveness, ids: frozenset[int]
) -> str | None:
    """The reason why `ids` may not be forgotten yet, and a remedy; None if acknowledged data is safe without them.

    The members of the SyncStateSet and the eligible brokers hold the data. The data is safe if at least minInSyncReplicas of
    these holders remain, and one of the remaining holders is alive and not known to be missing data. Async learners do not
    count, because they are never elected."""
    holders = sync_state.members | sync_state.eligible
    left = holders - ids
    if left == holders:
        return None
    reports = live.reports(replicas.cluster_name, broker_name, left)
    left -= {broker_id for broker_id, report in reports.items() if report.is_learner}
    reports = {broker_id: report for broker_id, report in reports.items() if broker_id in left}
    whole = [
        broker_id
        for broker_id, report in reports.items()
        if not report.may_miss
        and (key := (replicas.cluster_name, broker_name, broker_id)) not in live.incomplete
        and live.has_reported(key)
    ]
    named = f"{sorted(holders & ids)} of {broker_name}"
    if not whole:
        return (
            f"{named} may alone hold all that was acknowledged, for none of {sorted(left)} lives and is known to be complete: "
            "start those first; if they are lost, elect a remaining broker with electMaster (one outside the set needs "
            "enableElectUncleanMaster)"
        )
    needed = max(report.members_min for report in reports.values())
    if len(left) < needed:
        return (
            f"without {named} only {sorted(left)} would hold what was acknowledged, and minInSyncReplicas is {needed}: "
            "first have as many others in the SyncStateSet, or lower minInSyncReplicas of its brokers"
        )
    return None


def address_of(replicas: Replicas, broker_id: int | None) -> str | None:
    """Address of a registered broker; None if the broker is not registered (any more)."""
    replica = replicas.by_id.get(broker_id) if broker_id is not None else None
    return replica.address if replica else None
