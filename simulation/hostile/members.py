"""Requests as members of a Raft group send them to each other, and as brokers send them to controllers, on which no server may
act.

Invariant: requests that name members as senders claim what cannot be: terms that are too far ahead, entries and snapshots that
do not fit, another group. Some requests are valid in themselves, and only the address that they come from shows that they are
forged. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dledger.raft.messages import TERM_MAX, MessageCode
from remoting.bodies.replicas import SyncStateSetBody
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from simulation.hostile.frames import I32_MAX, I64_MAX

TERMS = (I64_MAX, I64_MAX - 1, -1, -I64_MAX - 1, 2**63, 0)
TERMS_FAR = (1 << 40, TERM_MAX)
"""Terms that can be parsed, but that no group reaches."""
TERM_NEAR = 5_000
"""A term that one message can reach. Only its host distinguishes the sender from a member."""


def between_members(group: str, sender: str, receiver: str) -> Iterator[RemotingCommand]:
    """Requests as if member `sender` asked member `receiver`."""
    yield from believable(group, sender, receiver, TERMS_FAR)
    for claims in (
        {"group": group, "localId": sender, "remoteId": receiver},
        {"group": "another", "localId": sender, "remoteId": receiver},
        {"group": group, "localId": "../../n0", "remoteId": receiver},
        {"group": group, "localId": sender, "remoteId": "n" * 60_000},
    ):
        base = {"code": 200, "leaderId": claims["localId"], **claims}
        for term in TERMS:
            for code, fields in of_term(term):
                yield RemotingCommand.request(code, None, json.dumps(base | fields).encode())


def believable(group: str, sender: str, receiver: str, terms: Sequence[int]) -> Iterator[RemotingCommand]:
    """Messages that the receiver can parse."""
    base = {"code": 200, "leaderId": sender, "group": group, "localId": sender, "remoteId": receiver}
    for term in terms:
        for code, fields in of_term(term, TERM_MAX):
            yield RemotingCommand.request(code, None, json.dumps(base | fields).encode())


def of_term(term: int, far: int = I64_MAX) -> Iterator[tuple[int, dict[str, Any]]]:
    """One message of each kind for this term. `far` indexes are beyond reach."""
    ledger = {"ledgerEndIndex": far, "ledgerEndTerm": term}
    for pre in (True, False):
        yield MessageCode.VOTE, {"term": term, "preVote": pre, "leadershipTransfer": True, **ledger}
    yield MessageCode.HEART_BEAT, {"term": term, "readRound": far}
    push = {
        "term": term,
        "preLogIndex": far - 1,
        "preLogTerm": term,
        "commitIndex": far,
        "batchEntry": [],
    }
    for kind in ("COMPARE", "APPEND", "COMMIT", "TRUNCATE"):
        yield MessageCode.PUSH, {**push, "type": kind}
    yield (
        MessageCode.PUSH,
        {
            **push,
            "type": "APPEND",
            "preLogIndex": -1,
            "preLogTerm": -1,
            "batchEntry": [{"magic": 1, "size": -1, "body": "!"}],
        },
    )
    for offset, size, data in (
        (0, -1, ""),
        (far, far, "eA=="),
        (5, 4, "eA=="),
        (0, far, "eHh4"),
        (0, 3, "????"),
    ):
        install = {
            "term": term,
            "snapshotIndex": far,
            "snapshotTerm": term,
            "size": size,
            "check": 1,
            "offset": offset,
        }
        yield MessageCode.INSTALL_SNAPSHOT, {**install, "data": data, "members": "../../n9-h:1"}
    transfer = {
        "term": term,
        "transferId": "n0",
        "transfereeId": "../x",
        "takeLeadershipLedgerIndex": far,
    }
    yield MessageCode.LEADERSHIP_TRANSFER, transfer
    yield MessageCode.STANDING, {"term": term, "session": -1}


def to_controllers(cluster: str, broker_set: str, master: int, slave: int) -> Iterator[RemotingCommand]:
    """Requests about a living set: ids that other brokers have, sets that its master did not request, epochs that are over or
    never were."""
    named = {"clusterName": cluster, "brokerName": broker_set}
    for broker_id in (master, slave, 0, -1, I64_MAX):
        other = {
            **named,
            "brokerId": str(broker_id),
            "brokerAddress": "6.6.6.6:10911",
            "registerCheckCode": "6.6.6.6:1;1",
        }
        yield RemotingCommand.request(RequestCode.CONTROLLER_REGISTER_BROKER, other)
        applied = {**named, "appliedBrokerId": str(broker_id), "registerCheckCode": "6.6.6.6:1;1"}
        if broker_id in (master, slave, -1):
            yield RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, applied)
        beat = {**named, "brokerAddr": "6.6.6.6:10911", "brokerId": str(broker_id), "epoch": str(I32_MAX)}
        beat |= {"maxOffset": str(I64_MAX), "confirmOffset": str(I64_MAX), "electionPriority": "-1"}
        yield RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, beat)
    for claimed in (master, slave):
        for epoch, members, set_epoch in (
            (I32_MAX, {claimed}, I32_MAX),
            (-1, set(), 0),
            (0, {master, 77}, 0),
            (I32_MAX, {slave, I64_MAX}, -1),
        ):
            header = {"brokerName": broker_set, "masterBrokerId": str(claimed), "masterEpoch": str(epoch)}
            body = SyncStateSetBody(frozenset(members), set_epoch).encode()
            yield RemotingCommand.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
    for designated in ("true", "false"):
        elect = {**named, "brokerId": "77", "designateElect": designated}
        yield RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, elect)
    for ids in (str(master), str(slave), f"{master};{slave}", "../x", ";;;", "9" * 30):
        clean = {**named, "brokerControllerIdsToClean": ids, "cleanLivingBroker": "false"}
        yield RemotingCommand.request(RequestCode.CLEAN_BROKER_DATA, clean)
