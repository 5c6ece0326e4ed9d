"""Requests that would change who is master, or who is in its set, if they were believed: of living brokers and real epochs.

Invariant: each is well-formed and names members of the set, so that only its sender, and what controllers answer, show that it
is not true. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from epochfile.history import EPOCH_JUMP_MAX
from remoting.bodies.replicas import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.controller import NotifyBrokerRoleChangedHeader
from remoting.headers.group import HandOverHeader
from simulation.hostile.frames import I32_MAX

SET_EPOCHS_ON = 0, 1, EPOCH_JUMP_MAX
EPOCHS_ON = 0, 1, 2, 50, EPOCH_JUMP_MAX, EPOCH_JUMP_MAX + 1


def notification(
    master: int, address: str, epoch: int, members: frozenset[int], set_epoch: int
) -> RemotingCommand:
    """1008"""
    header = NotifyBrokerRoleChangedHeader(address, epoch, set_epoch, master)
    body = SyncStateSet(members, set_epoch).encode()
    return RemotingCommand.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)


def notifications(addresses: Mapping[int, str], epoch: int, set_epoch: int) -> Iterator[RemotingCommand]:
    """Of a set with these brokers, whose epochs are these now: each member as master of this epoch, of the next and of far
    ones, with smaller sets and all of it."""
    whole = frozenset(addresses)
    epochs = [*(epoch + on for on in EPOCHS_ON), I32_MAX]
    set_epochs = [*(set_epoch + on for on in SET_EPOCHS_ON), I32_MAX]
    for master, address in sorted(addresses.items()):
        for members in dict.fromkeys((frozenset({master}), whole, whole - {master})):
            for named in epochs:
                for named_set in set_epochs:
                    yield notification(master, address, named, members, named_set)


def hand_overs(broker_name: str, addresses: Mapping[int, str], epoch: int) -> Iterator[RemotingCommand]:
    """To a master: that it is to make way for each of the members, or that it need not after all."""
    for successor in sorted(addresses):
        for named in (epoch, epoch + 1):
            for called_off in (False, True):
                header = HandOverHeader(broker_name, named, successor, 3_000, 3_000, called_off)
                yield RemotingCommand.request(RequestCode.HAND_OVER, header)
