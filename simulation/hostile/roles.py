"""Forged requests with existing brokers and real epochs. They would change the master or its set if a server acted on them.

Invariant: each request is well-formed and names members of the set. Only the address that it comes from, and what the
controllers answer when asked, show that it is forged. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from epochfile.history import EPOCH_JUMP_MAX
from remoting.bodies.replicas import SyncStateSetBody
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.controller import NotifyBrokerRoleChangedHeader, RegisterBrokerToControllerHeader
from remoting.headers.group import HandOverHeader
from simulation.hostile.frames import I32_MAX

NUMBERS_ON = 0, 1, 1_000, 2**31 + 1, 2**62
CLUSTER = "DefaultCluster"
SET_EPOCHS_ON = 0, 1, EPOCH_JUMP_MAX
EPOCHS_ON = 0, 1, 2, 50, EPOCH_JUMP_MAX, EPOCH_JUMP_MAX + 1


def notification(
    master: int, address: str, epoch: int, members: frozenset[int], set_epoch: int
) -> RemotingCommand:
    """NOTIFY_BROKER_ROLE_CHANGED (1008)."""
    header = NotifyBrokerRoleChangedHeader(address, epoch, set_epoch, master)
    body = SyncStateSetBody(members, set_epoch).encode()
    return RemotingCommand.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)


def notifications(addresses: Mapping[int, str], epoch: int, set_epoch: int) -> Iterator[RemotingCommand]:
    """Notifications for a set with these brokers and present epochs. They name each member as master of this epoch, the next
    epoch and far epochs, with smaller sets and the whole set."""
    whole = frozenset(addresses)
    epochs = [*(epoch + on for on in EPOCHS_ON), I32_MAX]
    set_epochs = [*(set_epoch + on for on in SET_EPOCHS_ON), I32_MAX]
    for master, address in sorted(addresses.items()):
        for members in dict.fromkeys((frozenset({master}), whole, whole - {master})):
            for named in epochs:
                for named_set in set_epochs:
                    yield notification(master, address, named, members, named_set)


def registration(
    broker_name: str, broker_id: int, address: str, number: int, incarnation: int
) -> RemotingCommand:
    """CONTROLLER_REGISTER_BROKER (1003) of a process with this start number. The check code of its id is missing, because
    strangers do not know it."""
    header = RegisterBrokerToControllerHeader(
        broker_name, broker_id, address, CLUSTER, incarnation=incarnation, start_number=number
    )
    return RemotingCommand.request(RequestCode.CONTROLLER_REGISTER_BROKER, header)


def registrations(
    broker_name: str, processes: Mapping[int, tuple[str, int, int]]
) -> Iterator[RemotingCommand]:
    """Registrations for a controller with these registered processes (address, start number, incarnation). They are of new
    processes of each broker, at its own address and another's, with numbers that follow, that are far, or that no disk draws.
    The registered processes are repeated, too."""
    for broker_id, (own, number, incarnation) in sorted(processes.items()):
        for address in sorted({own, *(address for address, _, _ in processes.values())}):
            for on in NUMBERS_ON:
                yield registration(broker_name, broker_id, address, number + on, incarnation + 1_000)
            yield registration(broker_name, broker_id, address, number + 1, incarnation)


def hand_overs(broker_name: str, addresses: Mapping[int, str], epoch: int) -> Iterator[RemotingCommand]:
    """Requests to a master to hand over to each of the members, and to cancel that."""
    for successor in sorted(addresses):
        for named in (epoch, epoch + 1):
            for called_off in (False, True):
                header = HandOverHeader(broker_name, named, successor, 3_000, 3_000, called_off)
                yield RemotingCommand.request(RequestCode.HAND_OVER, header)
